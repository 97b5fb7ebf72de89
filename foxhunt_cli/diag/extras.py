"""Optional packages: what needs one, and what to install."""

from __future__ import annotations

import importlib
from types import ModuleType


class MissingExtra(RuntimeError):
    """An optional package is not installed; the message names it and the command that installs it."""


def require(package: str, extra: str, purpose: str) -> ModuleType:
    """The imported package. Raises MissingExtra."""
    try:
        return importlib.import_module(package)
    except ImportError:
        name = package.split(".")[0]
        raise MissingExtra(f"{purpose} needs {name}, which is not installed; pip install 'foxhunt[{extra}]'") from None
