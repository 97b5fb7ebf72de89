"""Rule-based baselines as a data column: the side each snapshot's rule wants (1 long, -1 short, 0 flat, 2 keep).

They trade through the same environment as the agent, up to the same lot limit. Every rule is causal: the side at a
snapshot uses that snapshot and earlier ones of its session only.
"""

from __future__ import annotations

import numpy as np

from foxhunt_cli.data.market_data import MarketData

LONG, SHORT, FLAT, KEEP = 1, -1, 0, 2
FAST_SNAPSHOTS, SLOW_SNAPSHOTS = 50, 200
FLOW_SNAPSHOTS = 50
FLOW_ENTER, FLOW_LEAVE = 0.15, 0.0


def hold(market: MarketData) -> np.ndarray:
    """Never trade."""
    return np.full(len(market.records), KEEP, np.int8)


def moving_average(market: MarketData) -> np.ndarray:
    """Long while the fast mean of the mid is above the slow one, short below it; flat until the slow one is full."""
    mid = mids(market)
    side = np.zeros(len(mid), np.int8)
    for start, stop in _sessions(market):
        fast, slow = (_trailing_mean(mid[start:stop], n) for n in (FAST_SNAPSHOTS, SLOW_SNAPSHOTS))
        side[start:stop] = np.sign(fast - slow)
        side[start : min(stop, start + SLOW_SNAPSHOTS)] = FLAT
    return side


def flow_follower(market: MarketData) -> np.ndarray:
    """Follow the mean depth-5 imbalance of the last snapshots: enter beyond FLOW_ENTER, leave across FLOW_LEAVE."""
    bid, ask = (market.records[name][:, :5].sum(axis=1, dtype=np.float64) for name in ("bid_sz", "ask_sz"))
    imbalance = (bid - ask) / np.maximum(bid + ask, 1e-9)
    side = np.full(len(imbalance), KEEP, np.int8)
    for start, stop in _sessions(market):
        mean = _trailing_mean(imbalance[start:stop], FLOW_SNAPSHOTS)
        side[start:stop] = _hysteresis(mean)
    return side


def drift_follower(drift: np.ndarray) -> np.ndarray:
    """Long while the generator's own drift [N] is up, short while it is down, flat without: a yardstick, not a rule.

    It knows what nobody can see, but not the future: it enters when a wave begins and leaves when it ends.
    """
    return np.sign(drift).astype(np.int8)


def random_side(market: MarketData, trades_per_step: float, seed: int) -> np.ndarray:
    """Random entries and exits that close about ``trades_per_step`` trades a step of a row."""
    rng = np.random.default_rng(seed)
    count = len(market.records)
    switch = rng.random(count) < min(1.0, 2.0 * trades_per_step)
    side = np.full(count, KEEP, np.int8)
    wanted = rng.choice(np.array([LONG, SHORT], np.int8), size=int(switch.sum()))
    wanted[1::2] = FLAT
    side[switch] = wanted
    return side


def mids(market: MarketData) -> np.ndarray:
    """Mid of each snapshot, ticks from the reference, float64."""
    records = market.records
    return 0.5 * (records["bid_px"][:, 0].astype(np.float64) + records["ask_px"][:, 0])


def _sessions(market: MarketData) -> list[tuple[int, int]]:
    edges = [*market.session_start.tolist(), len(market.records)]
    return list(zip(edges[:-1], edges[1:], strict=True))


def _trailing_mean(values: np.ndarray, width: int) -> np.ndarray:
    """Mean of the last ``width`` values, of fewer at the start."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    index = np.arange(1, len(values) + 1)
    first = np.maximum(index - width, 0)
    return (total[index] - total[first]) / (index - first)


def _hysteresis(mean: np.ndarray) -> np.ndarray:
    """Enter beyond FLOW_ENTER; give up where the mean crosses FLOW_LEAVE against the side; else keep."""
    side = np.full(len(mean), KEEP, np.int8)
    crossed = np.signbit(mean[1:] - FLOW_LEAVE) != np.signbit(mean[:-1] - FLOW_LEAVE)
    side[1:][crossed] = FLAT
    side[mean > FLOW_ENTER] = LONG
    side[mean < -FLOW_ENTER] = SHORT
    return side
