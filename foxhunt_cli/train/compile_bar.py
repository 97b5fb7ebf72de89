"""The bar that is shown while kernels compile: only where it takes long enough to be noticed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foxhunt_cli.cli.console import Terminal


@contextmanager
def compile_bar(terminal: Terminal) -> Iterator[Callable[[int, int, str], None]]:
    """Yields a callback ``progress(done, total, label)``; a bar on a terminal, one plain line elsewhere."""
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        TextColumn("compiling kernels"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} {task.fields[label]}"),
    )
    with Progress(*columns, console=terminal.err, transient=True, disable=not terminal.live) as bar:
        tasks: list = []

        def progress(done: int, total: int, label: str) -> None:
            if not tasks:
                tasks.append(bar.add_task("", total=total, label=label))
                if not terminal.live:
                    terminal.note(
                        f"compiling {total} kernel file{'s' if total > 1 else ''} (once; the cache keeps them)"
                    )
            bar.update(tasks[0], completed=done, total=total, label=label)

        yield progress
