"""``foxhunt eval``: what a trained run earns on data it never saw, beside simple rules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from foxhunt_cli.market.evaluate import Evaluation


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")] = False,
) -> None:
    """Play a run's policy on its held-out data.

    The policy acts greedily on a range that training never sampled; simple rules stand beside it.

    \b
    Example:
      foxhunt train --steps 2000 --name demo && foxhunt eval runs/demo
    """
    from foxhunt_cli.cli.console import Terminal
    from foxhunt_cli.train.evaluate import evaluate_run

    terminal = Terminal()
    evaluation = evaluate_run(run, terminal, device=device)
    if json:
        terminal.json(evaluation.as_dict())
        return
    terminal.show(as_table(evaluation))
    for note in evaluation.notes:
        terminal.show(note)


def as_table(evaluation: Evaluation) -> Table:
    """One row a metric, one column a policy (the agent first)."""
    from rich.table import Table

    from foxhunt_cli.diag.verdict import number

    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("")
    for policy in evaluation.policies:
        table.add_column(policy, justify="right")
    metrics = dict.fromkeys(metric for figures in evaluation.policies.values() for metric in figures)
    for metric in metrics:
        table.add_row(metric, *(number(figures.get(metric, float("nan"))) for figures in evaluation.policies.values()))
    return table
