"""``foxhunt eval``: what a trained run earns on data it never saw, beside simple rules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from foxhunt_cli.cli.console import Terminal
    from foxhunt_cli.market.evaluate import Evaluation

ALIASES = {"pi": "agent", "q": "critic"}
LABEL_WIDTH, FIGURE_WIDTH, GAP = 28, 9, 2  # characters of the table's columns


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    policy: Annotated[
        str, typer.Option("--policy", help="Whose trades go into files: pi (agent), q (critic) or a rule's name.")
    ] = "pi",
    blotter: Annotated[
        Path | None, typer.Option("--blotter", metavar="FILE", help="Write every trade to a .csv or .parquet file.")
    ] = None,
    plots: Annotated[
        Path | None, typer.Option("--plots", metavar="FOLDER", help="Write equity.png and trades.png there.")
    ] = None,
    best: Annotated[
        bool, typer.Option("--best", help="The best checkpoint kept by train --best, not the newest.")
    ] = False,
    data: Annotated[
        list[Path] | None,
        typer.Option("--data", metavar="FILE", help="Where the run's data are now [where it read them]."),
    ] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")] = False,
) -> None:
    """Play a run's policy on its held-out data.

    The policy acts greedily on a range that training never sampled. Simple rules stand beside it, and what perfect
    foresight would have earned there at the same costs. Conventions are printed under the table.

    \b
    Examples:
      foxhunt eval runs/demo
      foxhunt eval runs/demo --blotter trades.csv --plots pictures
      foxhunt eval runs/demo --policy flow --blotter flow.parquet --json
    """
    from foxhunt_cli.cli.console import Terminal
    from foxhunt_cli.config.load import Setting, load_config
    from foxhunt_cli.diag.extras import require
    from foxhunt_cli.market.evaluate import POLICIES
    from foxhunt_cli.train.evaluate import evaluate_run

    if blotter is not None and blotter.suffix.lower() not in (".csv", ".parquet"):
        raise typer.BadParameter(f"--blotter: expected a name that ends in .csv or .parquet, got '{blotter}'")
    chosen = ALIASES.get(policy, policy)
    if chosen not in POLICIES:
        raise typer.BadParameter(f"--policy: expected pi, q or one of {', '.join(POLICIES)}, got '{policy}'")
    load_config(options=[Setting("device", device, "--device")])  # refuses a device that nobody knows
    if blotter is not None and blotter.suffix.lower() == ".parquet":
        require("pyarrow", "parquet", "a Parquet file")
    if plots is not None:
        require("matplotlib", "plots", "a plot")
    terminal = Terminal()
    evaluation = evaluate_run(run, terminal, device=device, best=best, paths=data or ())
    if chosen not in evaluation.plays:
        raise typer.BadParameter(f"--policy: expected pi, q or one of {', '.join(evaluation.plays)}, got '{policy}'")
    if json:
        terminal.json(evaluation.as_dict())
    else:
        terminal.show(as_table(evaluation, terminal.out.width))
        for note in evaluation.notes:
            terminal.show(note)
    _write(evaluation, chosen, blotter, plots, terminal)


def as_table(evaluation: Evaluation, width: int = 80) -> Group:
    """One row a metric, one column a policy (the agent first); several tables where ``width`` does not hold them."""
    from rich.console import Group

    names = list(evaluation.policies)
    each = max(1, (width - LABEL_WIDTH - GAP) // (FIGURE_WIDTH + GAP))
    tables: list[Table | str] = []
    for at in range(0, len(names), each):
        tables += ["", _columns(evaluation, names[at : at + each])] if tables else [_columns(evaluation, names[:each])]
    return Group(*tables)


def _columns(evaluation: Evaluation, names: list[str]) -> Table:
    from foxhunt_cli.cli.tables import plain_table
    from foxhunt_cli.diag.figures import number

    table = plain_table("", *names)
    for metric in dict.fromkeys(metric for figures in evaluation.policies.values() for metric in figures):
        figures = (evaluation.policies[name].get(metric, float("nan")) for name in names)
        table.add_row(metric, *(number(value) for value in figures))
    return table


def _write(evaluation: Evaluation, policy: str, file: Path | None, folder: Path | None, terminal: Terminal) -> None:
    """The files that were asked for; their names go to stderr, results have stdout."""
    from foxhunt_cli.diag.columns import write_csv, write_parquet
    from foxhunt_cli.market.blotter import blotter

    play, played = evaluation.plays[policy], evaluation.played
    assert play.fills is not None and played is not None
    if file is not None:
        made = blotter(play.fills, played)
        (write_csv if file.suffix.lower() == ".csv" else write_parquet)(made, file)
        terminal.note(f"{file}: {len(made['row']):,} trades of {policy}")
    if folder is not None:
        from foxhunt_cli.diag.writer import write_file
        from foxhunt_cli.market.plots import equity, trade_chart

        write_file(folder / "equity.png", equity(evaluation.plays, played))
        write_file(folder / "trades.png", trade_chart(play, played, policy))
        terminal.note(f"{folder}: equity.png and trades.png")
