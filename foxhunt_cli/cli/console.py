"""The terminal: results on stdout, progress and messages on stderr.

Owns how output reaches people and pipes. rich honours NO_COLOR and drops colour and motion where the stream is not
a terminal. Commands render through a ``Terminal`` and never call ``print``.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Terminal:
    """Where a command writes. ``quiet`` silences notes and live displays, never results and errors."""

    quiet: bool = False

    @cached_property
    def out(self) -> Console:
        """Results: tables, figures, JSON."""
        return _console(stderr=False)

    @cached_property
    def err(self) -> Console:
        """Progress and messages."""
        return _console(stderr=True)

    @property
    def live(self) -> bool:
        """Whether a moving display belongs on stderr: only on a terminal, and not when quiet."""
        return self.err.is_terminal and not self.quiet

    def note(self, text: str) -> None:
        """One message line on stderr, never wrapped, unless quiet."""
        if not self.quiet:
            self.err.print(text, soft_wrap=True)

    def show(self, renderable: Any) -> None:
        """A result on stdout: a string is printed as it is, a rich renderable at the width of the terminal."""
        if isinstance(renderable, str):
            self.out.print(renderable, soft_wrap=True)
        else:
            self.out.print(renderable)

    def json(self, value: Any) -> None:
        """A result on stdout as one JSON document, indented."""
        import orjson

        options = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY
        sys.stdout.write(orjson.dumps(value, option=options, default=str).decode() + "\n")


def _console(stderr: bool) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)
