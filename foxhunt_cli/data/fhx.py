"""The `.fhx` file: a converted data set, a short header and the raw records, memory-mapped when read.

Layout: 8 bytes magic, 8 bytes header length, 16 bytes digest of the header, the header (JSON), zeros to a
multiple of 4096, the records. The header holds a checksum of the records; a file that fails any check raises
`DamagedFile`, and the cache rebuilds it.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import orjson

from foxhunt_cli.config.instruments import Instrument
from foxhunt_cli.data.errors import DataError, file_error
from foxhunt_cli.data.market_data import MarketData, checksum
from foxhunt_cli.data.record import FIELDS, SNAPSHOT
from foxhunt_cli.data.report import CleaningReport
from foxhunt_cli.data.whole import whole_file

MAGIC = b"FOXHUNT\x01"
_PAGE = 4096
_PREFIX = 32


class DamagedFile(DataError):
    """The file is not what was written."""


def layout_id() -> str:
    """Hex digest of the record's declaration: a file of another layout is not read."""
    return hashlib.blake2b(repr([(f.name, f.ctype, f.count) for f in FIELDS]).encode(), digest_size=8).hexdigest()


def write_fhx(path: Path, data: MarketData) -> None:
    """Write `data`; raises DataFileError (disk full, permission) and leaves nothing behind then."""
    header = orjson.dumps(
        {
            "layout": layout_id(),
            "count": len(data.records),
            "checksum": checksum(data.records),
            "session_start": data.session_start.tolist(),
            "instrument": data.instrument.model_dump(mode="json"),
            "reference_ticks": data.reference_ticks,
            "report": data.report.model_dump(mode="json"),
            "source": data.source,
            "digest": data.digest,
        }
    )
    lead = MAGIC + len(header).to_bytes(8, "little") + hashlib.blake2b(header, digest_size=16).digest() + header
    lead += bytes(-len(lead) % _PAGE)
    with whole_file(path) as part, part.open("wb") as file:
        file.write(lead)
        file.write(np.ascontiguousarray(data.records).view(np.uint8).data)


def read_fhx(path: Path) -> MarketData:
    """Map a file; every byte is checked against the header's checksum. Raises DamagedFile or DataFileError."""
    try:
        with open(path, "rb") as file:
            header, offset = _read_header(file, path)
        actual = os.path.getsize(path)
        count = int(header["count"])
        if count < 1 or actual != offset + count * SNAPSHOT.itemsize:
            expected = offset + count * SNAPSHOT.itemsize
            raise DamagedFile(f"{path}: expected {expected:,} bytes, got {actual:,}; convert the source again")
        records = np.memmap(path, SNAPSHOT, mode="r", offset=offset, shape=(count,))
    except OSError as error:
        raise file_error(path, "read", error) from error
    records = np.asarray(records)  # a plain array over the map: indexing memmap objects is slow
    if checksum(records) != header["checksum"]:
        raise DamagedFile(f"{path}: the records do not match the header's checksum; convert the source again")
    return MarketData(
        records=records,
        session_start=np.array(header["session_start"], np.int64),
        instrument=Instrument.model_validate(header["instrument"]),
        reference_ticks=int(header["reference_ticks"]),
        report=CleaningReport.model_validate(header["report"]),
        source=header["source"],
        digest=header["digest"],
    )


def _read_header(file, path: Path) -> tuple[dict, int]:
    prefix = file.read(_PREFIX)
    if len(prefix) < _PREFIX or prefix[:8] != MAGIC:
        raise DamagedFile(f"{path}: not an .fhx file of this version; convert the source again")
    length = int.from_bytes(prefix[8:16], "little")
    if length > os.fstat(file.fileno()).st_size:
        raise DamagedFile(f"{path}: the header is damaged; convert the source again")
    text = file.read(length)
    if hashlib.blake2b(text, digest_size=16).digest() != prefix[16:32]:
        raise DamagedFile(f"{path}: the header is damaged; convert the source again")
    header = orjson.loads(text)
    if header["layout"] != layout_id():
        raise DamagedFile(f"{path}: was written with another record layout; convert the source again")
    return header, -(-(_PREFIX + length) // _PAGE) * _PAGE
