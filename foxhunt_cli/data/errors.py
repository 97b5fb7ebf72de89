"""The two ways in which data can fail a user, and the exit status that each one stands for."""

from __future__ import annotations

import os
from pathlib import Path


class DataError(Exception):
    """The data are wrong, or not what the options say. Exit status 5.

    The message names file, record and field, what was expected, what was found, and what to do.
    """


class DataFileError(DataError):
    """A file cannot be opened, read or written (absent, permission, disk full). Exit status 6."""


def file_error(path: Path | str, verb: str, error: OSError) -> DataFileError:
    """The operating system's refusal, in one line that names the file and the remedy."""
    if isinstance(error, FileNotFoundError):
        return DataFileError(f"{path}: no such file; check its path")
    if isinstance(error, PermissionError):
        return DataFileError(f"{path}: permission denied; you need the right to {verb} it")
    if isinstance(error, IsADirectoryError):
        remedy = "name the files in it" if verb == "read" else "name a file"
        return DataFileError(f"{path}: is a folder; {remedy}")
    return DataFileError(f"{path}: cannot {verb}: {error.strerror or error}")


def is_utf8(path: Path | str) -> bool:
    """Whether a file's name is text: manifests, headers and JSON have to hold it."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def require_utf8(path: Path) -> None:
    """Raises DataFileError where the name of ``path`` is no text."""
    if not is_utf8(path):
        raise DataFileError(f"{os.fsencode(path)!r}: the name is not UTF-8; rename the file or link to it")
