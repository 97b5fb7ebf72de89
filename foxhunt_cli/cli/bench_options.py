"""What the commands of ``foxhunt bench`` share: their options, and how a result is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from foxhunt_cli.bench.text import Block
    from foxhunt_cli.cli.console import Terminal
    from foxhunt_cli.config.run import RunConfig

WIDE = 100  # characters of the widest table; narrower terminals get fewer columns
PIPE = 1_000  # where there is no terminal: no table is as wide, so none is wrapped

Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")]
Batch = Annotated[int | None, typer.Option("-b", "--batch", help="Rows.")]
Rollout = Annotated[int | None, typer.Option("--rollout", help="Environment steps an iteration.")]
Encoder = Annotated[str | None, typer.Option("--encoder", help="full or mlp.")]
Preset = Annotated[str | None, typer.Option("--preset", help="foxhunt or seed.")]
Context = Annotated[str | None, typer.Option("--context", help="heads or encoder.")]
Sets = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set any configuration key. Repeatable.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")]
Steps = Annotated[int | None, typer.Option("--steps", min=1, help="Environment steps of each row.")]
Seeds = Annotated[int, typer.Option("--seeds", min=1, help="Runs of each kind, with seeds 0, 1, ...")]
Every = Annotated[int, typer.Option("--every", min=1, help="Steps between two evaluations.")]
Curves = Annotated[
    Path | None, typer.Option("-o", "--curves", metavar="FILE", help="Keep the curves there; the next call goes on.")
]


def _plottable(path: Path | None) -> Path | None:
    """Said before anything is trained: a picture that cannot be drawn. Raises MissingExtra, BadParameter."""
    from foxhunt_cli.diag.extras import require

    if path is not None:
        if path.suffix.lower() != ".png":
            raise typer.BadParameter(f"expected a name that ends in .png, got '{path}'")
        require("matplotlib", "plots", "a plot")
    return path


Plot = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE", callback=_plottable, help="Write a PNG there; needs matplotlib."),
]


def sizes(batches: str) -> list[int]:
    """Numbers of rows. Raises BadParameter."""
    sizes = [int(text) if text.strip().isdecimal() else 0 for text in batches.split(",")]
    if min(sizes) < 1:
        raise typer.BadParameter(f"--batch: expected whole numbers from 1 on, with commas, got '{batches}'")
    return sizes


def configurer(sets: Sequence[str] | None, **named: Any) -> Callable[[Sequence[str]], RunConfig]:
    """What a bench calls with the settings of one of its runs; they win over ``--set``, named options over both."""
    from foxhunt_cli.config.load import Setting, load_config

    flags = {"synthetic.preset": "--market", "graph": "--no-graph"}
    options = [Setting(key, value, flags.get(key, f"--{key}")) for key, value in named.items()]
    return lambda own: load_config(sets=[*(sets or ()), *own], options=options)


def words(text: str) -> list[str]:
    """The words of a list with commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def write_plot(path: Path | None, draw: Callable[[], bytes], terminal: Terminal) -> None:
    """Draws and writes the PNG where a path was given. Raises MissingExtra, FileError."""
    if path is not None:
        from foxhunt_cli.diag.writer import write_file

        write_file(path, draw())
        terminal.note(f"{path}: written")


def report(
    found: dict[str, Any], render: Callable[[dict[str, Any]], list[Block]], json: bool, terminal: Terminal
) -> None:
    """The result as JSON, or as lines and tables, never narrower than the widest table unless on a terminal."""
    from foxhunt_cli.cli.tables import plain_table

    if json:
        terminal.json(found)
        return
    if not terminal.out.is_terminal:
        terminal.out.width = PIPE
    for block in render(found):
        if isinstance(block, str):
            terminal.show(block)
            continue
        block = block if terminal.out.width >= WIDE else block.without(block.spare)
        table = plain_table(*block.names, left=(block.names[0], *block.left))
        for row in block.rows:
            table.add_row(*row)
        terminal.show(table)
