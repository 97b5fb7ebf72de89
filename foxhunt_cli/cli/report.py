"""The table a training run ends with."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from foxhunt_cli.cli.console import Terminal
    from foxhunt_cli.config.run import RunConfig
    from foxhunt_cli.market.evaluate import Evaluation
    from foxhunt_cli.train.loop import RunSummary

# Heading -> metrics of the evaluation; foxhunt eval shows them all.
_BRIEF = {
    "net USD / 1,000 steps": ("net USD / 1,000 steps",),
    "95 % interval": ("95 % interval, low", "95 % interval, high"),
    "trades": ("trades",),
    "won": ("win rate",),
    "capture": ("exit capture",),
    "of bound": ("share of the bound",),
}
_SHARES = ("won", "capture", "of bound")


def show_summary(summary: RunSummary, config: RunConfig, terminal: Terminal) -> None:
    """Training figures, then the held-out comparison, then where the run is and how to read it."""
    from rich.table import Table

    figures, run = summary.figures, shlex.quote(str(summary.run))
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_row("steps", f"{figures['steps']:,} of {figures['rows']} rows, T = {config.rollout}")
    table.add_row("speed", f"{figures['env_steps_per_s']:,.0f} env steps/s, {figures['seconds']:.1f} s of training")
    table.add_row(
        "training PnL", f"{figures['training_net_usd_per_1000_steps']:+,.2f} USD net per 1,000 steps of a row"
    )
    win = figures["training_win_rate"]
    trades = f"{figures['training_trades']:,.0f}" + ("" if win is None else f", {win:.1%} won")
    table.add_row("training trades", trades)
    if "best_step" in figures:
        earned = f"{figures['best_net_usd_per_1000_steps']:+,.2f} USD held out"
        table.add_row("best checkpoint", f"step {figures['best_step']:,}, {earned}: foxhunt eval {run} --best")
    terminal.show(table)
    if summary.evaluation is not None:
        terminal.show("\nheld-out data, greedy policy, beside simple rules")
        terminal.show(_brief(summary.evaluation))
        terminal.show(f"{summary.evaluation.notes[0]}; all figures and their conventions: foxhunt eval {run}")
    if summary.exit_status:
        terminal.show(
            f"\nstopped early at step {figures['steps']:,}; state saved in {summary.run / figures['checkpoint']}"
        )
        terminal.show(f"go on with: foxhunt train --resume {run}")
    terminal.show(f"\nrun: {summary.run}\nread it with: foxhunt diag summarize {run}")


def _brief(evaluation: Evaluation) -> Table:
    """One row a policy, the figures that matter first."""
    from foxhunt_cli.cli.tables import plain_table

    table = plain_table("", *_BRIEF)
    table.columns[1 + list(_BRIEF).index("95 % interval")].no_wrap = True
    for policy, figures in evaluation.policies.items():
        table.add_row(policy, *(_cell(heading, [figures[m] for m in metrics]) for heading, metrics in _BRIEF.items()))
    return table


def _cell(heading: str, values: list[float]) -> str:
    """Figures of one cell; what has no denominator is n/a."""
    if any(value != value for value in values):
        return "n/a"
    if heading in _SHARES:
        return f"{values[0]:.0%}"
    return " to ".join(f"{value:,.0f}" for value in values)
