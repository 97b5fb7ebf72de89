"""One trainer a run directory: an advisory lock that the system drops when its process ends, however it ends."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import IO

from foxhunt_cli.diag.writer import FileError


def lock_run(run: Path, doing: str = "training in this run; wait for it or choose another --name") -> IO[str]:
    """Hold ``run/lock`` while the returned file is open. Raises FileError where a process ``doing`` that holds it."""
    path = run / "lock"
    try:
        file = path.open("w")
    except OSError as error:
        raise FileError(
            f"{path}: cannot be written: {error.strerror}; a run goes on where it is, so its folder must be writable"
        ) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise FileError(f"{run}: another process is {doing}") from None
    return file
