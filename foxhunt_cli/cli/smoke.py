"""``foxhunt smoke``: both presets for a few steps, and a table of what must hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from foxhunt_cli.cli.console import Terminal
    from foxhunt_cli.train.smoke import Gate


def smoke(
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")] = False,
) -> None:
    """Train both presets a little and check that all is wired.

    200 steps of each preset, less than a minute on a CPU. Exit status 1 if any gate is not met.

    \b
    Example:
      foxhunt smoke --device cpu
    """
    import time

    from foxhunt_cli.cli.console import Terminal
    from foxhunt_cli.device.select import select
    from foxhunt_cli.train.compile_bar import compile_bar
    from foxhunt_cli.train.smoke import smoke as judge

    terminal, started = Terminal(), time.perf_counter()
    selection = select(device)
    terminal.note(selection.line)
    gates: list[Gate] = []
    with compile_bar(terminal) as progress:
        for gate in judge(selection.device, device, progress):
            gates.append(gate)
            if not gate.passed:
                terminal.note(f"not met: {gate.run}: {gate.name}: {gate.detail}")
    failed, seconds = sum(not gate.passed for gate in gates), time.perf_counter() - started
    if json:
        terminal.json({"failed": failed, "seconds": round(seconds, 1), "gates": [vars(gate) for gate in gates]})
    else:
        _show(gates, terminal)
        terminal.show(f"{len(gates) - failed} met, {failed} not met in {seconds:.1f} s")
    if failed:
        raise typer.Exit(1)


def _show(gates: list[Gate], terminal: Terminal) -> None:
    from rich.text import Text

    from foxhunt_cli.cli.tables import plain_table

    columns = ("", "run", "gate", "figures")
    table = plain_table(*columns, left=columns)
    for gate in gates:
        mark = Text("pass", style="green") if gate.passed else Text("FAIL", style="bold red")
        table.add_row(mark, gate.run, gate.name, gate.detail)
    terminal.show(table)
