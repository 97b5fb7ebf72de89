"""``foxhunt doctor``: what this machine has, and the fix for each thing that is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from foxhunt_cli.cli.console import Terminal
    from foxhunt_cli.cli.machine import Finding

MARK_STYLE = {"ok": "green", "missing": "bold red", "absent": "yellow", "info": "dim"}


def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of lines.")] = False,
) -> None:
    """Say what this machine can train with.

    Checks devices, driver, libraries, compiler, memory and cache, and names the fix for what is missing. Exit status 0
    when something here can train, 3 when nothing can.

    \b
    Example:
      foxhunt doctor
    """
    from foxhunt_cli.cli.console import Terminal
    from foxhunt_cli.cli.machine import examine, usable_devices

    terminal, findings = Terminal(), examine()
    devices = usable_devices(findings)
    if json:
        terminal.json({"devices": devices, "findings": [vars(finding) for finding in findings]})
    else:
        _show(findings, devices, terminal)
    if not devices:
        raise typer.Exit(3)


def _show(findings: list[Finding], devices: list[str], terminal: Terminal) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    for finding in findings:
        text = finding.text + (f"\nfix: {finding.fix}" if finding.fix else "")
        table.add_row(Text(finding.mark, style=MARK_STYLE[finding.mark]), finding.topic, text)
    terminal.show(table)
    ready = f"Ready to train on: {', '.join(devices)}" if devices else "Nothing here can train yet; see the fixes above"
    terminal.show(f"\n{ready}")
