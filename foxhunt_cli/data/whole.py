"""Files that appear whole or not at all: written beside their place under another name, then renamed.

A reader never sees half of one, and two writers at once do no harm.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from foxhunt_cli.data.errors import file_error


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Where to write what becomes ``path`` at the end; makes its folder.

    Raises DataFileError (disk full, permission) and leaves nothing behind then.
    """
    part: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        os.close(handle)
        part = Path(name)
        yield part
        part.chmod(0o644)
        part.replace(path)
    except OSError as error:
        raise file_error(path, "write", error) from error
    finally:
        if part is not None:
            part.unlink(missing_ok=True)
