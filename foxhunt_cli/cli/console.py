"""The terminal: results on stdout, progress and messages on stderr.

Owns how output reaches people and pipes. rich honours NO_COLOR and drops colour and motion where the stream is not
a terminal. Commands render through a ``Terminal`` and never call ``print``.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO

from foxhunt_cli.cli.streams import BestEffort

if TYPE_CHECKING:
    from rich.console import Console

NARROWEST = 40  # columns to set text in, where a terminal says that it has fewer, or none
WIDEST = 1_000  # columns; more than any table has


@dataclass(frozen=True)
class Terminal:
    """Where a command writes. ``quiet`` silences notes and live displays, never results and errors."""

    quiet: bool = False

    @cached_property
    def out(self) -> Console:
        """Results: tables, figures, JSON. A reader that has left raises BrokenPipeError."""
        return _console(None)

    @cached_property
    def err(self) -> Console:
        """Progress and messages: what nobody can read is dropped, the work goes on."""
        return _console(BestEffort(sys.stderr))

    @property
    def live(self) -> bool:
        """Whether a moving display belongs on stderr: only on a terminal that can move, and not when quiet."""
        return self.err.is_terminal and not self.err.is_dumb_terminal and not self.quiet

    def note(self, text: str) -> None:
        """One message line on stderr, never wrapped, unless quiet."""
        if not self.quiet:
            self.err.print(text, soft_wrap=True)

    def show(self, renderable: Any) -> None:
        """A result on stdout: a string is printed as it is, a rich renderable at the width of the terminal.

        A terminal too narrow for a table gets it at the table's least width: wrapped by the terminal, figures whole.
        """
        if isinstance(renderable, str):
            self.out.print(renderable, soft_wrap=True)
            return
        width = self.out.width
        with self.out.capture() as text:
            self.out.width = max(width, _least_width(self.out, renderable))
            self.out.print(renderable)
        self.out.width = width
        sys.stdout.write("".join(f"{line.rstrip(' ')}\n" for line in text.get().splitlines()))

    def json(self, value: Any) -> None:
        """A result on stdout as one JSON document, indented."""
        import orjson

        options = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY
        sys.stdout.write(orjson.dumps(value, option=options, default=str).decode() + "\n")


def _least_width(console: Console, renderable: Any) -> int:
    """Columns that ``renderable`` needs so that no word is cut, nor a cell of a column that is never wrapped."""
    from rich.console import Group
    from rich.measure import Measurement
    from rich.table import Table

    if isinstance(renderable, Group):
        return max((_least_width(console, part) for part in renderable.renderables), default=0)
    options = console.options.update(width=WIDEST)
    least = Measurement.get(console, options, renderable).minimum
    for column in renderable.columns if isinstance(renderable, Table) else ():
        if column.no_wrap:
            cells = [Measurement.get(console, options, cell) for cell in (column.header, *column.cells)]
            least += max(cell.maximum for cell in cells) - max(cell.minimum for cell in cells)
    return least


def _console(file: TextIO | None) -> Console:
    from rich.console import Console

    class OurConsole(Console):
        def on_broken_pipe(self) -> None:
            """rich would end the program, with the status of a failed check."""
            raise BrokenPipeError

    console = OurConsole(file=file, highlight=False, markup=False, emoji=False)
    if console.width < NARROWEST:  # set at need alone: a width that is set no longer follows the terminal
        console.width = NARROWEST
    return console
