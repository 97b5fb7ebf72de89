"""The manifest beside a run's log, as far as it can be trusted: readers of logs do without what it does not say.

``train/run_dir.py`` writes manifests, and is the strict reader that a run is continued by.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def manifest_of(log: Path) -> dict[str, Any]:
    """What the manifest beside the run log ``log`` holds; empty where there is none to read."""
    try:
        found = json.loads((log.parent / "manifest.json").read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def part(document: dict[str, Any], name: str) -> dict[str, Any]:
    """An object inside another; empty where there is none."""
    found = document.get(name)
    return found if isinstance(found, dict) else {}


def kernels(log: Path) -> list[str] | None:
    """Kernels of the run; None where the manifest does not say."""
    found = manifest_of(log).get("kernels")
    return found if isinstance(found, list) else None


def rows(log: Path) -> int | None:
    """Rows of the run, B; None where the manifest does not say."""
    found = part(manifest_of(log), "config").get("batch")
    return found if isinstance(found, int) and not isinstance(found, bool) else None
