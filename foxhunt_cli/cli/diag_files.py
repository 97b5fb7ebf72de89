"""``foxhunt diag plot`` and ``export``: a run as files for other programs and for reports."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foxhunt_cli.cli.diag_run import tell_torn

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory or its run.jsonl.")]


def plot(
    source: Run,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help=".png, .svg or .html [RUN/run.png].")
    ] = None,
) -> None:
    """Draw a run as a page of panels.

    PnL, trades, actions, losses, entropy, controllers, hindsight, held-out results; .html is one file that needs
    nothing else, with the verdicts and the configuration around the panels.

    \b
    Examples:
      foxhunt diag plot runs/demo
      foxhunt diag plot runs/demo -o demo.html
    """
    from foxhunt_cli.cli.console import Terminal
    from foxhunt_cli.diag.page import page
    from foxhunt_cli.diag.plots import POINTS, draw
    from foxhunt_cli.diag.summary import summarize
    from foxhunt_cli.diag.writer import write_file

    summary = summarize(source, POINTS)
    output = output or summary.path.parent / "run.png"
    form = output.suffix.lower().removeprefix(".")
    if form not in ("png", "svg", "html"):
        raise typer.BadParameter(f"--output: expected a name that ends in .png, .svg or .html, got '{output}'")
    picture = draw(summary, "svg" if form == "svg" else "png")
    write_file(output, page(summary, picture).encode() if form == "html" else picture)
    terminal = Terminal()
    tell_torn(terminal, summary.path)
    terminal.show(str(output))


def export(
    source: Run,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help=".csv, .parquet, or a folder.")],
    fields: Annotated[
        list[str] | None,
        typer.Argument(metavar="FIELD", help="Fields, or groups such as loss. ; all if none is named."),
    ] = None,
) -> None:
    """Write a run's log as CSV, Parquet or TensorBoard events.

    The name says which: .csv, .parquet, or none for a folder of event files.

    \b
    Examples:
      foxhunt diag export runs/demo -o demo.csv
      foxhunt diag export runs/demo loss. market.pnl_step_usd -o demo.parquet
      foxhunt diag export runs/demo loss. -o events/
    """
    from foxhunt_cli.cli.console import Terminal
    from foxhunt_cli.diag import columns as tables

    table = {".csv": tables.write_csv, ".parquet": tables.write_parquet}
    write = tables.write_tensorboard if output.suffix == "" else table.get(output.suffix.lower())
    if write is None:
        raise typer.BadParameter(f"--output: expected .csv, .parquet or a folder, got '{output}'")
    try:
        columns = tables.read_columns(source, fields)
    except KeyError as error:
        raise typer.BadParameter(f"FIELD: {error.args[0]}") from None
    write(columns, output)
    terminal = Terminal()
    tell_torn(terminal, source)
    terminal.show(f"{output}: {len(columns['step']):,} lines, {len(columns):,} columns")
