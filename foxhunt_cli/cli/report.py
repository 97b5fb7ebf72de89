"""The table a training run ends with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foxhunt_cli.cli.eval import as_table

if TYPE_CHECKING:
    from foxhunt_cli.cli.console import Terminal
    from foxhunt_cli.config.run import RunConfig
    from foxhunt_cli.train.loop import RunSummary


def show_summary(summary: RunSummary, config: RunConfig, terminal: Terminal) -> None:
    """Training figures, then the held-out comparison, then where the run is and how to read it."""
    from rich.table import Table

    figures = summary.figures
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_row("steps", f"{figures['steps']:,} of {figures['rows']} rows, T = {config.rollout}")
    table.add_row("speed", f"{figures['env_steps_per_s']:,.0f} env steps/s, {figures['seconds']:.1f} s of training")
    table.add_row(
        "training PnL", f"{figures['training_net_usd_per_1000_steps']:+,.2f} USD net per 1,000 steps of a row"
    )
    win = figures["training_win_rate"]
    trades = f"{figures['training_trades']:,.0f}" + ("" if win is None else f", {win:.1%} won")
    table.add_row("training trades", trades)
    terminal.show(table)
    if summary.evaluation is not None:
        terminal.show("\nheld-out data, greedy policy, beside simple rules")
        terminal.show(as_table(summary.evaluation, terminal.out.width))
        for note in summary.evaluation.notes:
            terminal.show(note)
    if summary.exit_status:
        terminal.show(
            f"\nstopped early at step {figures['steps']:,}; state saved in {summary.run / figures['checkpoint']}"
        )
    terminal.show(f"\nrun: {summary.run}\nread it with: foxhunt diag summarize {summary.run / 'run.jsonl'}")
