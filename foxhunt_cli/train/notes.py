"""The run's log.txt: every message a person saw while it trained, with its time. Owns that file."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foxhunt_cli.diag.writer import FileError

if TYPE_CHECKING:
    from foxhunt_cli.cli.console import Terminal


class LoggedTerminal:
    """A terminal whose notes also go to a file, once there is one; earlier notes are kept until then."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._waiting: list[str] = []
        self._path: Path | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._terminal, name)

    def note(self, text: str) -> None:
        """One message line for people and for the log. Raises FileError where the log cannot be written."""
        self._terminal.note(text)
        self._waiting.append(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {text}\n")
        self._flush()

    def log_to(self, path: Path) -> None:
        """From now on append to ``path``, beginning with what was said before. Raises FileError."""
        self._path = path
        self._flush()

    def _flush(self) -> None:
        if self._path is None:
            return
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.writelines(self._waiting)
        except OSError as error:
            message = f"{self._path}: cannot be written: {error.strerror}; free space or choose another runs_dir"
            raise FileError(message) from None
        self._waiting.clear()
