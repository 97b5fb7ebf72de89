"""A small market and a row of accounts for the oracles of the environment. Owns no checks and no cases.

``Market`` holds books as numpy columns; ``Rig`` plays given actions through the pipeline's own list of environment
kernels, on any device, and returns every buffer of the environment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from foxhunt_cli.buffers import env
from foxhunt_cli.buffers.table import shape
from foxhunt_cli.device.base import Device
from foxhunt_cli.isv.table import ISV_SIZE, number, slots
from foxhunt_cli.kernels.registry import kernel
from foxhunt_cli.pipeline import rollout
from foxhunt_cli.pipeline.build import build, kernels_of

LEVELS = 10
(
    SHORT_LARGE, SHORT_SMALL, HOLD, FLAT_LONG, FLAT_SHORT, LONG_SMALL, LONG_LARGE, TIGHTEN, LOOSEN,
    HALF_LONG, HALF_SHORT,
) = range(11)  # fmt: skip
PENDING, CONFIDENCE, FRD, MIN_HOLD, TRAIL_STOP, DRAWDOWN_STOP, HEAT_CAP = (1 << i for i in range(7))

# Slots that keep everything but fills quiet: no stop, no minimum hold, no cap, no shaping, fixed sizes.
QUIET = {
    "MIN_HOLD_STEPS": 0.0, "TRAIL_MIN": 1e5, "TRAIL_MAX": 1e5, "HARD_STOP_R": 1e6, "HEAT_CAP_USD": 1e9,
    "ANTI_MARTINGALE_GAIN": 0.0, "ENTRY_COST_USD": 0.0, "SHORT_HOLD_PENALTY": 1.0, "HOLD_BONUS_USD": 0.0,
    "DRAWDOWN_RATE": 0.0, "SIZE_SMALL": 1.0, "SIZE_LARGE": 2.0,
}  # fmt: skip


def isv_vector(**values: float) -> np.ndarray:
    """The state vector at its table seeds, with some slots (upper-case names) set."""
    vector = np.zeros(ISV_SIZE, np.float32)
    for slot in slots():
        vector[slot.number] = slot.seed
    for name, value in values.items():
        vector[number(name)] = value
    return vector


@dataclass
class Market:
    """Books of N snapshots: prices [N, 10] in ticks, sizes in lots, regime [N, 6]."""

    bid_px: np.ndarray
    bid_sz: np.ndarray
    ask_px: np.ndarray
    ask_sz: np.ndarray
    regime: np.ndarray

    def mid(self, snapshot: int) -> float:
        """Mid of a snapshot, ticks; half-ticks are exact."""
        return 0.5 * (float(self.bid_px[snapshot, 0]) + float(self.ask_px[snapshot, 0]))

    def columns(self) -> dict[str, np.ndarray]:
        """The data columns by buffer name."""
        return {name: getattr(self, name) for name in ("bid_px", "bid_sz", "ask_px", "ask_sz", "regime")}


def ladder(bids: Any, spread: int = 1, size: float = 50.0, volatility: float = 1.0) -> Market:
    """Full books one tick apart: best bid as given, best ask ``spread`` above, ``size`` lots a level."""
    best = np.asarray(bids, np.float32)[:, None]
    step = np.arange(LEVELS, dtype=np.float32)[None, :]
    sizes = np.full((len(best), LEVELS), size, np.float32)
    regime = np.zeros((len(best), 6), np.float32)
    regime[:, 0] = volatility
    return Market(best - step, sizes.copy(), best + spread + step, sizes.copy(), regime)


def random_market(rng: np.random.Generator, n: int, gaps: bool = True) -> Market:
    """Rough books: random walk with jumps, spreads of 1 to 3, thin levels, absent levels, varying volatility."""
    walk = np.cumsum(rng.integers(-2, 3, n) + (rng.random(n) < 0.02) * rng.integers(-25, 26, n))
    market = ladder(walk + 1000, volatility=1.0)
    market.ask_px += rng.integers(0, 3, n).astype(np.float32)[:, None]
    market.regime[:, 0] = rng.choice([0.0, 0.4, 1.3, 3.1], n).astype(np.float32)
    for px, sz in ((market.bid_px, market.bid_sz), (market.ask_px, market.ask_sz)):
        sz[:] = rng.integers(1, 3, sz.shape)
        if gaps:
            absent = rng.random(sz.shape) < 0.6
            absent[:, 0] = False
            deep = rng.integers(1, LEVELS + 1, n)
            absent |= np.arange(LEVELS)[None, :] >= deep[:, None]
            sz[absent] = 0.0
            for row in range(n):  # an absent level repeats the worst present price
                px[row, absent[row]] = px[row, np.flatnonzero(~absent[row])[-1]]
    return market


@dataclass
class Rig:
    """B accounts on a market, T steps an iteration, on a device."""

    device: Device
    market: Market
    cursor: np.ndarray
    rollout: int
    episode_end: np.ndarray | int = 1 << 30
    isv: dict[str, float] = field(default_factory=dict)
    scalars: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cursor = np.atleast_1d(np.asarray(self.cursor, np.int32))
        rows = len(self.cursor)
        self.dims: dict[str, Any] = {
            "B": rows, "T": self.rollout, "lot_limit": 4, "latency": 1, "tick_value_usd": 12.5, "fee_usd": 2.0,
            "realised_reward": 0, "ratchet": 1, "since_close": 0, **self.scalars,
        }  # fmt: skip
        host = {row.name: np.zeros(shape(row, self.dims), row.dtype) for row in env.ROWS}
        host.update(self.market.columns())
        host["isv"] = isv_vector(**{**QUIET, **self.isv})
        host["cursor"] = self.cursor
        host["episode_end"] = np.broadcast_to(np.asarray(self.episode_end, np.int32), rows).copy()
        host["new_episode"] = np.ones(rows, np.uint8)
        self.arrays = {name: self.device.upload(np.ascontiguousarray(a)) for name, a in host.items()}
        steps = rollout.iteration_begin()
        for t in range(self.rollout):
            steps += rollout.environment_step(t)
        steps += rollout.after_rollout()
        self.device.compile([kernel(name) for name in kernels_of(steps)])
        self.plan = self.device.plan(build(steps, self.arrays, self.dims, self.device), use_graph=False)

    def set(self, **values: Any) -> None:
        """Overwrite buffers; a value is broadcast to the buffer's shape."""
        for name, value in values.items():
            held = self.arrays[name]
            kind = np.asarray(self.device.download(held)).dtype
            self.device.write(held, np.ascontiguousarray(np.broadcast_to(np.asarray(value, kind), held.shape)))

    def hold_position(self, lots: int, units: list[tuple[float, int]], trail: float = 1e5, **values: Any) -> None:
        """Every row starts with this position: units of (entry, lots), an age of 1, no new episode.

        Cash and basis are as if the units had been filled at their entries without fees.
        """
        rows, side = len(self.cursor), 1 if lots > 0 else -1
        entry, unit_lots = np.zeros((rows, 4), np.float32), np.zeros((rows, 4), np.int32)
        for u, (price, count) in enumerate(units):
            entry[:, u], unit_lots[:, u] = price, count
        cost = side * sum(price * count for price, count in units)
        active = (unit_lots > 0).astype(np.float32)
        first = units[0][0] if units else 0.0
        state = {
            "new_episode": 0, "position_lots": lots, "entry_basis": cost, "cash_ticks": -round(cost),
            "trade_open_step": 1,
            "trade_lots_max": abs(lots), "trade_best_mid": first, "trade_entry_mid": first, "unit_entry": entry,
            "unit_best_mid": entry, "unit_lots": unit_lots, "unit_trail": active * trail,
            "unit_initial_r": active * trail,
            "unit_age": active * 1, "steps_since_close": 1_000_000_000,
        }  # fmt: skip
        self.set(**{**state, **values})

    def play(self, actions: Any) -> dict[str, np.ndarray]:
        """One iteration with the drawn actions [T, B] (or [T], the same for every row); all buffers after it."""
        drawn = np.asarray(actions, np.int8)
        if drawn.ndim == 1:
            drawn = np.repeat(drawn[:, None], len(self.cursor), axis=1)
        self.set(action_drawn=drawn)
        self.plan.run_eager()
        self.device.synchronize()
        return {name: np.array(self.device.download(array)) for name, array in self.arrays.items()}

    def advance(self) -> None:
        """Move every cursor to the next iteration of the same episode."""
        self.cursor = self.cursor + self.rollout
        self.set(cursor=self.cursor, new_episode=0)
