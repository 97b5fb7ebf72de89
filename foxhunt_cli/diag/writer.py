"""Writing run.jsonl: whole lines only, flushed once a drain.

Owns the file while a run is on. A number that is not finite becomes null and its field is named in ``nonfinite``,
so that nothing is masked and every line is plain JSON.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from foxhunt_cli.data.whole import replacing


class FileError(OSError):
    """A file of the run cannot be written; the message names it, the reason and the remedy."""


class RunLogWriter:
    """Appends records to a run log. Usable as a context manager."""

    def __init__(self, path: Path) -> None:
        """Opens ``path`` for appending, making it if needed. Raises FileError."""
        self.path = path
        try:
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise FileError(_message(path, error)) from error

    def write(self, records: Iterable[dict[str, Any]]) -> None:
        """Appends ``records`` as lines, all of them or none. Raises FileError (disk full, file system gone)."""
        block = b"".join(encode(record) for record in records)
        end = self._file.seek(0, os.SEEK_END)
        try:
            view = memoryview(block)
            while view:
                view = view[self._file.write(view) :]
        except OSError as error:
            self._cut_back(end)
            raise FileError(_message(self.path, error)) from error

    def sync(self) -> None:
        """Makes what was written last through a power cut. Raises FileError."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise FileError(_message(self.path, error)) from error

    def _cut_back(self, end: int) -> None:
        """Drops a half-written block; where even that fails, readers tolerate the torn line."""
        try:
            self._file.truncate(end)
        except OSError:
            return

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> RunLogWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def write_file(path: Path, content: bytes) -> None:
    """A file for people (a picture, a page), whole or not at all; makes its folder. Raises FileError."""
    with whole_file(path) as temporary:
        temporary.write_bytes(content)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """``replacing`` for a file for people. Raises FileError."""
    try:
        with replacing(path) as part:
            yield part
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror or error}; choose another place") from error


def encode(record: dict[str, Any]) -> bytes:
    """One line: ``record`` with non-finite numbers as null and ``nonfinite`` naming their fields."""
    named = list(record.get("nonfinite", ()))
    named += [name for name in _nonfinite(record, "") if name not in named]
    return orjson.dumps({**record, "nonfinite": named}, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY)


def _nonfinite(value: Any, name: str) -> list[str]:
    """Dotted names of the numbers under ``value`` that are not finite."""
    if isinstance(value, dict):
        prefix = f"{name}." if name else ""
        return [found for key, item in value.items() for found in _nonfinite(item, f"{prefix}{key}")]
    if isinstance(value, list | tuple):
        return [found for index, item in enumerate(value) for found in _nonfinite(item, f"{name}.{index}")]
    if value is None or isinstance(value, str | bool | int):
        return []
    return [] if math.isfinite(value) else [name]


def _message(path: Path, error: OSError) -> str:
    return f"{path}: cannot be written: {error.strerror}; free space or choose another place with --set runs_dir=DIR"
