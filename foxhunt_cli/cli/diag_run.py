"""``foxhunt diag summarize``, ``check`` and ``compare``: what the logs of runs say, for people and as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory or its run.jsonl.")]
JSON = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]


def summarize(source: Run, json: JSON = False) -> None:
    """Say what happened in a run: verdicts first, then PnL, losses, actions, controllers, anomalies.

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
