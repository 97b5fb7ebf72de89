"""Where foxhunt keeps what it can make again. Needs the standard library alone."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/foxhunt``, or the same under ``~/.cache``. Deleting it is always safe."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "foxhunt"
