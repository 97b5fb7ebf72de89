"""The folder of converted data sets: `$XDG_CACHE_HOME/foxhunt/data`, one `.fhx` per source and options.

A cache may fail without harm: a damaged entry is rebuilt, and a folder that cannot be written costs a
warning. Deleting the folder is always safe.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from foxhunt_cli.config.places import cache_folder
from foxhunt_cli.data.errors import DataError, file_error
from foxhunt_cli.data.fhx import DamagedFile, layout_id, read_fhx, write_fhx
from foxhunt_cli.data.market_data import MarketData
from foxhunt_cli.data.options import DataOptions

FORMAT = 1
"""Raise it when readers or cleaning change what they make of the same bytes."""
FULL_DIGEST_BYTES = 256 << 20
_SAMPLE_BYTES = 4 << 20


def cache_path(paths: tuple[Path, ...], options: DataOptions) -> Path:
    """The entry that belongs to these files and options."""
    hasher = hashlib.blake2b(f"{FORMAT}|{layout_id()}|{options.key()}".encode(), digest_size=16)
    for path in paths:
        hasher.update(file_digest(path))
        hasher.update(path.name.encode())  # the name is in the description, and LOBSTER's holds the day
    return cache_folder() / "data" / f"{hasher.hexdigest()}.fhx"


def file_digest(path: Path) -> bytes:
    """Digest of a file's content; above 256 MB of its size, modification time, first, middle and last 4 MB."""
    hasher = hashlib.blake2b(digest_size=16)
    try:
        with open(path, "rb") as file:
            stat = os.fstat(file.fileno())
            if stat.st_size <= FULL_DIGEST_BYTES:
                while chunk := file.read(1 << 20):
                    hasher.update(chunk)
            else:
                hasher.update(f"{stat.st_size}|{stat.st_mtime_ns}".encode())
                for at in (0, stat.st_size // 2, stat.st_size - _SAMPLE_BYTES):
                    file.seek(at)
                    hasher.update(file.read(_SAMPLE_BYTES))
    except OSError as error:
        raise file_error(path, "read", error) from error
    return hasher.digest()


def load_cached(path: Path) -> MarketData | None:
    """The entry, or None where there is none or it is damaged (it is removed then)."""
    try:
        return read_fhx(path) if path.exists() else None
    except DamagedFile:
        path.unlink(missing_ok=True)
        return None
    except (DataError, KeyError, ValueError):
        return None


def store(path: Path, data: MarketData) -> str | None:
    """Keep `data`; returns a warning where that was not possible."""
    try:
        write_fhx(path, data)
    except DataError as error:
        return f"the converted data could not be cached ({error}); --no-cache silences this"
    return None
