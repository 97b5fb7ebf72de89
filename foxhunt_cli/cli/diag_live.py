"""``foxhunt diag tail``: a run while it is going on, a line at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

# Heading -> field of a record.
COLUMNS = {
    "step": "step",
    "net USD": "market.pnl_step_usd",
    "trades": "market.trades_closed",
    "wins": "market.wins",
    "Hold": "actions.share.2",  # its number in the share list
    "entropy": "signals.entropy_observed_ema",
    "loss": "loss.total",
    "steps/s": "perf.env_steps_per_s",
}
WIDTH = 8  # characters; eight columns fit a terminal of 80


def tail(
    source: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory or its run.jsonl.")],
    count: Annotated[int, typer.Option("-n", "--lines", help="Lines of the past to begin with.")] = 10,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Go on while the run is trained.")] = True,
    json: Annotated[bool, typer.Option("--json", help="Print the records themselves, one JSON object a line.")] = False,
) -> None:
    """Follow a run while it is trained.

    Prints its last lines, then a line each half second; Ctrl-C stops looking. net USD, trades and wins are of all
    rows since the line before. Ends by itself when the run does.

    \b
    Examples:
      foxhunt diag tail runs/demo
      foxhunt diag tail runs/demo -n 3 --no-follow --json
    """
    import orjson

    from foxhunt_cli.cli.console import Terminal
    from foxhunt_cli.diag.tail import last_records, merge, new_records

    if count < 0:
        raise typer.BadParameter(f"--lines: expected 0 or more, got {count}")
    terminal = Terminal()
    past = last_records(source, count)
    if not json:
        terminal.show("  ".join(f"{heading:>{WIDTH}}" for heading in COLUMNS))
    for record in past:
        terminal.show(orjson.dumps(record).decode() if json else _line(record))
    if not follow:
        return
    try:
        for fresh in new_records(source):
            for record in fresh if json else [merge(fresh)] if fresh else []:
                terminal.show(orjson.dumps(record).decode() if json else _line(record))
    except KeyboardInterrupt:  # the way to stop looking, so no error
        raise typer.Exit(130) from None


def _line(record: dict[str, Any]) -> str:
    from foxhunt_cli.diag.figures import number
    from foxhunt_cli.diag.reader import flatten

    values = dict(flatten(record))
    numbers = (values.get(field) for field in COLUMNS.values())
    return "  ".join(f"{'n/a' if value is None else number(float(value)):>{WIDTH}}" for value in numbers)
