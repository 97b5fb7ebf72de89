"""``foxhunt diag summarize``, ``check`` and ``compare``: what the logs of runs say, for people and as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from foxhunt_cli.cli.console import Terminal

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory or its run.jsonl.")]
JSON = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]


def tell_torn(terminal: Terminal, *sources: Path) -> None:
    """A line on stderr for each log whose last line is torn (summarize and check say it among their results)."""
    from foxhunt_cli.diag.reader import torn_note

    for note in filter(None, map(torn_note, sources)):
        terminal.note(note)


def summarize(source: Run, json: JSON = False) -> None:
    """Say what happened in a run, verdicts first.

    Then PnL over time, losses, actions, controllers, signals, and anomalies with the step where each began.

    \b
    Examples:
      foxhunt diag summarize runs/demo
      foxhunt diag summarize runs/demo/run.jsonl --json
    """
    from foxhunt_cli.cli.console import Terminal
    from foxhunt_cli.diag.summary import as_document
    from foxhunt_cli.diag.summary import summarize as read
    from foxhunt_cli.diag.verdict import verdicts

    terminal, summary = Terminal(), read(source)
    if json:
        terminal.json({**as_document(summary), "verdicts": [vars(verdict) for verdict in verdicts(summary)]})
        return
    from foxhunt_cli.diag.render import render

    ascii_only = not terminal.out.encoding.lower().startswith("utf")
    for part in render(summary, verdicts(summary), terminal.out.width, ascii_only):
        terminal.show(part)


def check(source: Run, json: JSON = False) -> None:
    """Hold a run against the kill criteria.

    Exit status 1 if any is not met: finite numbers, losses that do not diverge, trades to the end, a policy that
    still explores, no controller dead or stuck at a bound without a reason, hindsight that fires on closes only.

    \b
    Examples:
      foxhunt diag check runs/demo
      foxhunt diag check runs/demo --json
    """
    from foxhunt_cli.cli.console import Terminal
    from foxhunt_cli.diag.check import check as judge
    from foxhunt_cli.diag.check import failed
    from foxhunt_cli.diag.manifest import kernels
    from foxhunt_cli.diag.render import verdict_table
    from foxhunt_cli.diag.summary import summarize as read

    terminal, summary = Terminal(), read(source)
    criteria = judge(summary, kernels(summary.path))
    not_met = sum(criterion.mark == "bad" for criterion in criteria)
    if json:
        terminal.json(
            {"path": str(summary.path), "passed": not failed(criteria), "criteria": [vars(c) for c in criteria]}
        )
    else:
        terminal.show(verdict_table(criteria))
        terminal.show(f"{not_met} of {len(criteria)} criteria not met" if not_met else "all criteria met")
    if failed(criteria):
        raise typer.Exit(1)


def compare(
    sources: Annotated[list[Path], typer.Argument(metavar="RUN", help="Two or more run directories.")],
    json: JSON = False,
) -> None:
    """Put runs side by side.

    First what differs in their settings, then their figures: means over the last quarter of each run, per row; held
    out: the final evaluation.

    \b
    Examples:
      foxhunt diag compare runs/demo runs/other
      foxhunt diag compare runs/demo runs/other --json
    """
    from foxhunt_cli.cli.console import Terminal
    from foxhunt_cli.diag.compare import differences, load, rows

    if len(sources) < 2:
        raise typer.BadParameter(f"RUN: expected two or more runs, got {len(sources)}")
    terminal, runs = Terminal(), load(sources)
    tell_torn(terminal, *sources)
    figures, settings = list(rows(runs)), differences(runs)
    if json:
        terminal.json(
            {
                "runs": [run.name for run in runs],
                "differences": settings,
                "figures": {row.label: row.values for row in figures},
            }
        )
        return
    from foxhunt_cli.cli.tables import plain_table
    from foxhunt_cli.diag.figures import number

    table = plain_table("", *(run.name for run in runs))
    for name, values in settings.items():
        table.add_row(name, *("unset" if value is None else str(value) for value in values))
    if settings:
        table.add_section()
        table.add_row("")
    for row in figures:
        table.add_row(row.label, *map(number, row.values))
    terminal.show(table)
