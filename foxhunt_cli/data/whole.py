"""Files that appear whole or not at all: written beside their place under another name, then renamed.

A reader never sees half of one, and two writers at once do no harm.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from foxhunt_cli.data.errors import file_error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Where to write what becomes ``path`` at the end: a file that stood there is lost to a whole one alone.

    Makes the folder. Raises OSError (disk full, permission) and leaves nothing behind then.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    part = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))  # the user's umask decides who may read it
    try:
        yield part
        part.replace(path)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """``replacing`` for a data set. Raises DataFileError."""
    try:
        with replacing(path) as part:
            yield part
    except OSError as error:
        raise file_error(path, "write", error) from error
