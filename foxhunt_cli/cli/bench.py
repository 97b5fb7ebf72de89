"""``foxhunt bench``: measured speed on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

bench_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@bench_app.callback()
def bench() -> None:
    """Measure speed on this machine.

    \b
    Example:
      foxhunt bench throughput --seconds 5
    """


@bench_app.command()
def throughput(
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")] = "auto",
    batch: Annotated[int | None, typer.Option("-b", "--batch", help="Rows.")] = None,
    rollout: Annotated[int | None, typer.Option("--rollout", help="Environment steps an iteration.")] = None,
    encoder: Annotated[str | None, typer.Option("--encoder", help="full or mlp.")] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set any configuration key. Repeatable.")
    ] = None,
    no_graph: Annotated[bool, typer.Option("--no-graph", help="Run kernel by kernel, without a graph.")] = False,
    seconds: Annotated[float, typer.Option("--seconds", help="How long to measure.")] = 10.0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")] = False,
) -> None:
    """Environment steps a second of whole training iterations, with the hardware and what a step is.

    \b
    Example:
      foxhunt bench throughput --device cpu -b 16 --seconds 5
    """
    from foxhunt_cli.bench.throughput import run
    from foxhunt_cli.cli.console import Terminal
    from foxhunt_cli.config.load import Setting, load_config

    if not seconds >= 0.1:
        raise typer.BadParameter(f"--seconds: expected 0.1 or more, got {seconds:g}")
    options = [Setting("device", device, "--device"), Setting("batch", batch, "--batch")]
    options += [Setting("encoder", encoder, "--encoder")]
    options += [Setting("rollout", rollout, "--rollout"), Setting("graph", not no_graph, "--no-graph")]
    terminal = Terminal()
    figures = run(load_config(sets=sets or (), options=options), seconds=seconds, console=terminal)
    if json:
        terminal.json(figures)
        return
    width = max(map(len, figures))
    for label, value in figures.items():
        terminal.show(
            f"{label:<{width}}  {value:,}" if isinstance(value, int | float) else f"{label:<{width}}  {value}"
        )
