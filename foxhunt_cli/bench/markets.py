"""Held-out markets of a bench: the end of a run's own data, and fresh markets of the same kind that no run trains on.

Owns their seeds and what they know of themselves: the drift of the generator, which makes a yardstick, never a feature.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from foxhunt_cli.bench.setup import open_market
from foxhunt_cli.config.run import RunConfig
from foxhunt_cli.data.market_data import MarketData
from foxhunt_cli.data.synthetic import SyntheticOptions, known_drift
from foxhunt_cli.market.baselines import drift_follower

FRESH_SEED = 1_000
"""Generator seed of the first fresh market; training markets have the seeds of the runs, 0, 1, ..."""
OWN = "own"
"""Name of a run's own held-out range."""
DRIFT = "drift"
"""The policy that is given the generator's own drift."""


@dataclass(frozen=True)
class Judged:
    """A range that trained agents are judged on. sides: further policies there, as in ``Evaluator.all_policies``."""

    name: str
    market: MarketData
    sides: dict[str, np.ndarray] = field(default_factory=dict)


def own_range(config: RunConfig, market: MarketData, held_out: MarketData) -> Judged:
    """``held_out``, the end of ``market``. The drift is known where the data are as they were generated."""
    if config.paths is not None or len(market) != config.synthetic.snapshots:
        return Judged(OWN, held_out)
    return Judged(OWN, held_out, _drift(config.synthetic, len(held_out)))


def fresh_markets(config: RunConfig, count: int) -> dict[str, Judged]:
    """``count`` synthetic markets like the training one, each as long as what a run holds out of it, by name."""
    length = max(2, int(config.synthetic.snapshots * config.holdout))
    markets = {}
    for index in range(count):
        options = config.synthetic.model_copy(update={"seed": FRESH_SEED + index, "snapshots": length})
        market = open_market(config.model_copy(update={"synthetic": options}))
        sides = _drift(options, len(market)) if len(market) == length else {}
        markets[f"market {options.seed}"] = Judged(f"market {options.seed}", market, sides)
    return markets


def _drift(options: SyntheticOptions, last: int) -> dict[str, np.ndarray]:
    """The drift follower over the last snapshots of a market that has waves."""
    drift = known_drift(options)[-last:]
    return {DRIFT: drift_follower(drift)} if drift.any() else {}
