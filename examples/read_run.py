"""A run's log in Python: numpy columns, and pandas or polars frames where they are installed.

python examples/read_run.py runs/NAME
"""

import sys

import numpy as np

from foxhunt_cli import api


def main() -> None:
    run = api.load(sys.argv[1])
    log = run.columns(["market.", "signals.entropy_observed_ema", "loss.v"])
    pnl, trades = log["market.pnl_step_usd"], log["market.trades_closed"]
    per_row = run.config.batch * run.config.rollout / 1000.0  # thousands of environment steps a line
    for part in np.array_split(np.arange(len(pnl)), 4):
        rate = pnl[part].mean() / per_row
        print(
            f"to step {log['step'][part[-1]]:>9,}: {rate:+10.2f} USD per row per 1,000 steps, "
            f"{trades[part].sum():.0f} trades"
        )
    print(f"net {pnl.sum():+,.2f} USD, fees {log['market.fees_step_usd'].sum():,.2f} USD, {trades.sum():.0f} trades")


if __name__ == "__main__":
    main()
