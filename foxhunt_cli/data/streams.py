"""Bytes of a file, decompressed where it is zstd. Knows frames and truncation; knows no record."""

from __future__ import annotations

import io
from pathlib import Path
from typing import BinaryIO

import zstandard

from foxhunt_cli.data.errors import DataError, file_error

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_CHUNK = 1 << 20
_SLICE = 1 << 11  # compressed bytes at a time: zstd makes up to 32,000 times as many of them, so 64 MB at most


class ByteStream(io.RawIOBase):
    """Reads a plain or zstd file front to back. `truncated` is known once the end is reached.

    A zstd file may be several frames in a row (Databento writes the header and the records as frames of
    their own), and may end inside one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.truncated = False
        self._data = memoryview(b"")
        self._packed = memoryview(b"")
        self._at = 0
        self._started = False
        try:
            self._file: BinaryIO = open(path, "rb")  # noqa: SIM115 (closed by close)
            magic = self._file.read(4)
            self._file.seek(0)
        except OSError as error:
            raise file_error(path, "read", error) from error
        self.compressed = magic == ZSTD_MAGIC
        self._frame = zstandard.ZstdDecompressor().decompressobj() if self.compressed else None

    def readable(self) -> bool:
        return True

    def readinto(self, target) -> int:  # io.RawIOBase's contract: bytes written, 0 at the end
        data = self.take(len(target))
        target[: len(data)] = data
        return len(data)

    def take(self, count: int) -> memoryview:
        """Up to `count` bytes, without a copy where they lie together; fewer only at the end of the file."""
        parts = []
        while count > 0:
            if self._at == len(self._data):
                self._data, self._at = memoryview(self._more()), 0
                if not len(self._data):
                    break
            part = self._data[self._at : self._at + count]
            self._at += len(part)
            count -= len(part)
            parts.append(part)
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))

    def _more(self) -> bytes:
        """The next decompressed bytes; empty at the end of the file."""
        while True:
            chunk, self._packed = self._packed[:_SLICE], self._packed[_SLICE:]
            if not len(chunk):
                try:
                    read = self._file.read(_CHUNK)
                except OSError as error:
                    raise file_error(self.path, "read", error) from error
                if not self.compressed:
                    return read
                if not read:
                    self.truncated = self._started and not self._frame.eof
                    return b""
                self._packed = memoryview(read)
                continue
            data = self._decompress(chunk)
            if data:
                return data

    def _decompress(self, chunk: bytes | memoryview) -> bytes:
        out = []
        while chunk:
            if self._frame.eof:
                self._frame = zstandard.ZstdDecompressor().decompressobj()
            self._started = True
            try:
                out.append(self._frame.decompress(chunk))
            except zstandard.ZstdError as error:
                raise DataError(
                    f"{self.path.name}: the zstd compression is damaged ({error}); fetch the file again"
                ) from error
            chunk = self._frame.unused_data if self._frame.eof else b""
        return b"".join(out)

    def close(self) -> None:
        self._file.close()
        super().close()
