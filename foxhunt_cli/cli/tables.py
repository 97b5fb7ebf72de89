"""Tables without lines, the same in every command: they read well at 80 columns, in a pipe and without colour."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def plain_table(*names: str, left: Collection[str] = ("",)) -> Table:
    """An empty table with these columns; those named in ``left`` hold words, the others figures.

    The first column is never wrapped: it names the row.
    """
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0), show_header=any(names))
    for index, name in enumerate(names):
        table.add_column(name, justify="left" if name in left else "right", overflow="fold", no_wrap=index == 0)
    return table
