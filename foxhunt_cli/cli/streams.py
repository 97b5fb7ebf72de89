"""stdin, stdout and stderr as the process got them: closed, full, without a reader, in any encoding.

Owns what is done about them before the first command runs. Loads nothing: it is part of the way in.
"""

from __future__ import annotations

import os
import sys
from typing import Any, TextIO


def make_usable() -> None:
    """Open what was closed, as nothing at all; let characters pass that a stream cannot encode, as escapes."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # the next file to be opened would be taken for the closed stream
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as the process
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def say(text: str) -> None:
    """One line on stderr; where nobody can read it, none."""
    print(text, file=BestEffort(sys.stderr), flush=True)


class BestEffort:
    """A text stream whose failures do not matter: at the first one it writes to nowhere from then on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Length of ``text``, written or not."""
        try:
            self._stream.write(text)
        except OSError:
            self._give_up()
        return len(text)

    def flush(self) -> None:
        """Whatever is left goes where it can."""
        try:
            self._stream.flush()
        except OSError:
            self._give_up()

    def _give_up(self) -> None:
        """What is buffered would fail again when Python ends, and change the exit status."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)
