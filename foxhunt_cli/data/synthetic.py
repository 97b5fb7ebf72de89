"""The synthetic market: a seeded, vectorised, ES-like order book with a stated edge.

An *efficient price* p, in ticks, wanders with bursts of activity and of volatility. The best bid is the
whole tick that follows p with hysteresis: it moves only when p is HYSTERESIS beyond its tick, so the mid
reverses somewhat more often than not and stays within a tick of p. The top of the book leans the way p
lies inside the tick, so imbalance foretells the next move of the mid and yet can never be worth a whole
tick: a taker who knows nothing else loses to costs.

On top, *waves* (preset `wavy`): p drifts in bursts of random sign, length and size, each ending in a
reversal. Every level of the book and the flow of trades lean towards the drift `WAVE_LEAD` snapshots
ahead of it. `noise` has none of this: its mid is a martingale, and its book and flow do not know it.

Only this module makes data out of nothing; `dirty.py` damages what it makes, for the readers' tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from foxhunt_cli.config.instruments import Instrument, presets
from foxhunt_cli.data.processes import change_points, clamp_scan, spells, stationary
from foxhunt_cli.data.record import LEVELS, SNAPSHOT
from foxhunt_cli.data.regime import fill_previous, fill_regime

HYSTERESIS = 0.33
"""Ticks beyond its own tick that p must go before the book follows; P(reversal) = 1 / (1 + 2 h) = 0.60."""
SIZE_MEAN = np.array([35, 52, 57, 58, 54, 52, 53, 52, 51, 50], np.float64)
"""Mean size by level, lots; measured on ES."""
SIZE_LOG_SIGMA = np.array([0.92, 0.65, 0.5, 0.45, 0.4, 0.35, 0.35, 0.3, 0.3, 0.3], np.float64)
"""Standard deviation of log size by level; measured on ES."""
TOP_LEAN = 1.9
"""Log size that a whole tick of p inside its tick shifts from one side of the top to the other."""
TOP_NOISE_SIGMA = 0.6
"""Standard deviation of the part of the top's log size that p does not explain."""
TOP_CHANGE = 0.36
"""Chance that a given side's top changes in a snapshot; measured on ES."""
BLOCK = 4096
WAVE_LEAD = 20
"""Snapshots by which book and flow run ahead of a wave's drift."""
WAVE_FULL_DRIFT = 0.06
"""Drift, ticks a snapshot, at which the lean is complete."""
WAVE_TOP_LEAN, WAVE_DEEP_LEAN, WAVE_TRADE_LEAN = 0.2, 0.07, 0.6
"""Log size by which a full lean shifts the top and a deeper level; share of trades that follow it."""
TRADE_SHARE = 0.075
TRADE_SIGN_PERSISTENCE = 0.5
START_NS = 1_704_150_000_000_000_000
"""2024-01-01T23:00:00Z, 17:00 in Chicago: a session's open."""
REFERENCE_TICKS = 19_200
"""4,800.00 in quarter points."""


class SyntheticOptions(BaseModel):
    """What market to make. The same options give the same bytes."""

    model_config = ConfigDict(extra="forbid")

    preset: Literal["wavy", "realistic", "noise", "dirty"] = Field(
        "wavy",
        description="wavy: learnable waves; realistic: none; noise: nothing predictable; dirty: realistic, damaged.",
    )
    snapshots: int = Field(400_000, ge=2, le=10**10, description="Snapshots to make, over all sessions.")
    seed: int = Field(0, ge=0, le=2**63 - 1, description="Seed of the generator.")
    edge: float = Field(
        1.0, ge=0, le=1_000, description="Size of the waves of `wavy` (1 = the default market, 0 = no waves)."
    )
    sessions: int = Field(
        1, ge=1, le=10_000, description="Sessions; between two of them the market is closed for an hour or more."
    )

    def describe(self) -> str:
        """One line for people, the edge stated."""
        what = {
            "wavy": f"an edge is built in: waves of size {self.edge:g} that book and trade flow foretell",
            "realistic": "ES-like, no waves: imbalance foretells the next tick but does not pay for a round trip",
            "noise": "nothing in it is predictable: profit on it is a bug",
            "dirty": "realistic, damaged on purpose: absent levels, crossed rows, halts, bad time stamps",
        }[self.preset]
        return f"synthetic market {self.preset}, {self.snapshots:,} snapshots, seed {self.seed} ({what})"


@dataclass(frozen=True)
class Style:
    """The numbers in which the presets differ."""

    rate: float
    """Snapshots a second."""
    burst: float
    """Standard deviation of the log rate: 1.4 gives waiting times a coefficient of variation of 3.8."""
    step_sigma: float
    """Standard deviation of p's move a snapshot, ticks."""
    volatility_sigma: float
    """Standard deviation of the log of step_sigma."""
    deep_change: float
    """Chance that a given deeper level changes in a snapshot."""
    top_length: float
    """Correlation length, in snapshots, of the top's unexplained size."""


_STYLES = {
    "wavy": Style(rate=11.0, burst=0.6, step_sigma=0.2, volatility_sigma=0.25, deep_change=0.08, top_length=25),
    "realistic": Style(rate=25.0, burst=1.4, step_sigma=0.075, volatility_sigma=0.5, deep_change=0.03, top_length=1000),
    "noise": Style(rate=11.0, burst=0.6, step_sigma=0.2, volatility_sigma=0.25, deep_change=0.08, top_length=25),
}
_STYLES["dirty"] = _STYLES["realistic"]


@dataclass(frozen=True)
class SyntheticMarket:
    """Records with their sessions, before they become a MarketData."""

    records: np.ndarray
    session_start: np.ndarray
    instrument: Instrument
    reference_ticks: int


def make_market(options: SyntheticOptions) -> SyntheticMarket:
    """The market that `options` names (for `dirty`: before the damage). Well above 1 M snapshots/s a core."""
    records = np.zeros(options.snapshots, SNAPSHOT)
    starts: list[int] = []
    price, now = 0, START_NS
    for a, b, rng in _sessions(options):
        starts.append(a)
        price, now = _make_session(records[a:b], options, rng, price, now)
        now = _next_open(now)
    instrument, session_start = presets()["ES"], np.array(starts, np.int64)
    fill_previous(records, session_start)
    fill_regime(records, session_start, instrument)
    return SyntheticMarket(records, session_start, instrument, REFERENCE_TICKS)


def known_drift(options: SyntheticOptions) -> np.ndarray:
    """The drift that the waves of ``make_market(options)`` have in each snapshot, ticks, float64 [snapshots].

    Nothing that trades may see it: it is what a policy would be given that knew the generator. Zeros without waves.
    """
    drift = np.zeros(options.snapshots)
    for a, b, rng in _sessions(options):
        _times(rng, b - a, _STYLES[options.preset])  # drawn before the waves
        waves = _waves(rng, b - a, options)
        if waves is not None:
            drift[a:b] = waves
    return drift


def _sessions(options: SyntheticOptions) -> Iterator[tuple[int, int, np.random.Generator]]:
    """First record, end and random stream of each session."""
    sessions = min(options.sessions, options.snapshots // 2)
    bounds = np.linspace(0, options.snapshots, sessions + 1).astype(np.int64).tolist()
    seeds = np.random.SeedSequence([options.seed, 0x5EED]).spawn(sessions)
    for a, b, seed in zip(bounds[:-1], bounds[1:], seeds, strict=True):
        yield a, b, np.random.Generator(np.random.PCG64(seed))


def _next_open(now: int) -> int:
    """The first 23:00 UTC that is at least one hour later."""
    day = 86_400_000_000_000
    return START_NS + -(-(now + 3_600_000_000_000 - START_NS) // day) * day


def _make_session(
    out: np.ndarray, options: SyntheticOptions, rng: np.random.Generator, price: int, now: int
) -> tuple[int, int]:
    """Fill one session's records (all but the derived fields); returns the last bid and the last time."""
    n, style = len(out), _STYLES[options.preset]
    out["ts_ns"] = now + _times(rng, n, style)
    drift = _waves(rng, n, options)
    lean = _wave_lean(drift) if drift is not None else None
    if options.preset == "noise":
        bid, inside = _martingale_bid(rng, n, style), stationary(rng, n, 40.0, 0.4)
    else:
        bid, inside = _efficient_bid(rng, n, style, drift)
    bid += price
    best_bid, best_ask = _touch(rng, bid, symmetric=options.preset == "noise")
    _store_book(out, best_bid, best_ask, _sizes(rng, n, style, inside, lean))
    _write_trades(out, rng, inside, lean, informed=options.preset != "noise")
    return int(bid[-1]), int(out["ts_ns"][-1])


def _times(rng: np.random.Generator, n: int, style: Style) -> np.ndarray:
    """Nanoseconds since the session's open, int64 [n]: exponential waits at a rate that comes in bursts."""
    log_rate = stationary(rng, n, 150.0, style.burst).astype(np.float32)
    wait = rng.standard_exponential(n, np.float32) * np.exp(-log_rate - np.float32(style.burst**2 / 2))
    return np.cumsum((wait * np.float32(1e9 / style.rate)).astype(np.int64) + 1)


def _waves(rng: np.random.Generator, n: int, options: SyntheticOptions) -> np.ndarray | None:
    """The session's drift, None where the market has no waves."""
    return _wave_drift(rng, n, options.edge) if options.preset == "wavy" and options.edge > 0 else None


def _wave_drift(rng: np.random.Generator, n: int, edge: float) -> np.ndarray:
    """Drift of p, ticks a snapshot, float64 [n]: quiet, burst, reversal, quiet, ..."""
    waves = n // 300 + 2
    length = rng.integers(100, 601, waves)
    back = np.maximum(10, (length * rng.uniform(0.15, 0.35, waves)).astype(np.int64))
    quiet = rng.integers(100, 501, waves)
    size = edge * rng.uniform(8, 28, waves) * rng.choice([-1.0, 1.0], waves)
    value = np.stack([np.zeros(waves), size / length, -size * rng.uniform(0.3, 0.7, waves) / back], 1)
    return np.repeat(value.ravel(), np.stack([quiet, length, back], 1).ravel())[:n]


def _wave_lean(drift: np.ndarray) -> np.ndarray:
    """The lean of book and flow, -1..1, float32 [n]: the drift of WAVE_LEAD snapshots later."""
    lean = np.zeros(len(drift), np.float32)
    lean[:-WAVE_LEAD] = np.clip(drift[WAVE_LEAD:] / WAVE_FULL_DRIFT, -1, 1)
    return lean


def _efficient_bid(
    rng: np.random.Generator, n: int, style: Style, drift: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Best bid, int64 [n], and where p lies about the mid, ticks in about -0.85..0.85, float32 [n]."""
    scale = np.exp(stationary(rng, n, 2000.0, style.volatility_sigma).astype(np.float32))
    step = (rng.standard_normal(n, np.float32) * (scale * np.float32(style.step_sigma))).astype(np.float64)
    if drift is not None:
        step += drift
    step[0] = 0.5
    p = np.cumsum(step)
    # The book may stand at any whole tick m with |p - (m + 1/2)| <= 1/2 + h, and stays where it is if it may.
    low = np.ceil(p - (1 + HYSTERESIS)).astype(np.int64)
    high = np.floor(p + HYSTERESIS).astype(np.int64)
    bid = clamp_scan(low, high, 0)
    return bid, (p - bid - 0.5).astype(np.float32)


def _martingale_bid(rng: np.random.Generator, n: int, style: Style) -> np.ndarray:
    """Best bid that jumps by a tick either way, sign independent of everything, int64 [n]."""
    # A unit jump with this chance has the variance a snapshot that the efficient price has.
    jump = (rng.random(n, np.float32) < style.step_sigma**2).astype(np.int8)
    jump[rng.random(n, np.float32) < 0.5] *= -1
    jump[0] = 0
    return np.cumsum(jump, dtype=np.int64)


def _touch(rng: np.random.Generator, bid: np.ndarray, symmetric: bool) -> tuple[np.ndarray, np.ndarray]:
    """Best bid and ask, float32 [n]: one tick apart but for short spells of two (three if both sides step back)."""
    wide = spells(rng, len(bid), 0.001, 50)
    wide[0] = 0
    spell = np.cumsum(np.diff(wide, prepend=0) > 0)
    side = 1 if symmetric else rng.integers(0, 2, spell[-1] + 1)[spell]  # one side steps back, for the whole spell
    bid_step, ask_step = (wide, wide) if symmetric else (wide * side, wide * (1 - side))
    return (bid - bid_step).astype(np.float32), (bid + 1 + ask_step).astype(np.float32)


def _store_book(out: np.ndarray, best_bid: np.ndarray, best_ask: np.ndarray, sizes: np.ndarray) -> None:
    """Columns into records, levels one tick apart, a block at a time so that a block's records stay in the cache."""
    depth = np.arange(LEVELS, dtype=np.float32)
    for a in range(0, len(out), BLOCK):
        block = out[a : a + BLOCK]
        b = a + len(block)
        np.subtract(best_bid[a:b, None], depth, out=block["bid_px"])
        np.add(best_ask[a:b, None], depth, out=block["ask_px"])
        block["bid_sz"] = sizes[0, :, a:b].T
        block["ask_sz"] = sizes[1, :, a:b].T


def _sizes(rng: np.random.Generator, n: int, style: Style, inside: np.ndarray, lean: np.ndarray | None) -> np.ndarray:
    """Sizes, float32 [2, LEVELS, n] (bids, asks). A size stands until its level changes, and takes on the lean then."""
    sizes = np.empty((2, LEVELS, n), np.float32)
    for side, sign in enumerate((np.float32(1), np.float32(-1))):
        for level in range(LEVELS):
            sigma = np.float32(SIZE_LOG_SIGMA[level])
            changes = change_points(rng, n, TOP_CHANGE if level == 0 else style.deep_change)
            if level == 0:
                noise = stationary(rng, len(changes), style.top_length * TOP_CHANGE, TOP_NOISE_SIGMA).astype(np.float32)
                log_size = noise + sign * np.float32(TOP_LEAN) * inside[changes]
            else:
                log_size = rng.standard_normal(len(changes), np.float32) * sigma
            if lean is not None:
                log_size += sign * np.float32(WAVE_TOP_LEAN if level == 0 else WAVE_DEEP_LEAN) * lean[changes]
            log_size += np.float32(np.log(SIZE_MEAN[level])) - sigma**2 / 2
            size = np.maximum(np.float32(1), np.rint(np.exp(log_size)))
            sizes[side, level] = np.repeat(size, np.diff(changes, append=n))
    return sizes


def _write_trades(
    out: np.ndarray, rng: np.random.Generator, inside: np.ndarray, lean: np.ndarray | None, informed: bool
) -> None:
    """Trades since the snapshot before: a persistent sign, drawn towards p and towards the wave."""
    at = np.flatnonzero(rng.random(len(out), np.float32) < TRADE_SHARE)
    flips = rng.random(len(at)) < (1 - TRADE_SIGN_PERSISTENCE) / 2
    sign = np.where((np.cumsum(flips) + rng.integers(0, 2)) % 2 == 0, 1.0, -1.0)
    if informed:
        pull = 0.6 * inside[at] + (WAVE_TRADE_LEAN * lean[at] if lean is not None else 0.0)
        follow = rng.random(len(at)) < np.abs(pull)
        sign = np.where(follow, np.sign(pull), sign)
    count = rng.geometric(0.6, len(at))
    volume = count * np.maximum(1, np.rint(np.exp(0.6 + 0.8 * rng.standard_normal(len(at)))))
    out["trade_count"][at] = count
    out["trade_signed_vol"][at] = sign * volume
