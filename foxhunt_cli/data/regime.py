"""Derived fields of the record: the snapshot before, and the six regime values.

All of them are causal (a record depends on itself and the past alone) and restart at a session
break. The averages are decayed sums in continuous time, y(t) = sum of x_j exp(-(t - t_j) / tau), so
they need no sampling grid; a vectorised form of the recurrence computes them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np

from foxhunt_cli.config.instruments import Instrument
from foxhunt_cli.data.record import mid_ticks

FAST_SECONDS = 10.0
SLOW_SECONDS = 600.0
MIN_ELAPSED_SECONDS = 1.0
"""Averages over less than this much past are not scaled up further: one early tick is not a storm."""
VOLATILITY_FLOOR = 1e-3
"""Floor of both volatilities inside the log ratio, ticks/sqrt(s)."""
_EXPONENT_SPAN = 256.0
_HOUR_NS = 3_600_000_000_000


def decayed_sum(x: np.ndarray, t: np.ndarray, tau: float) -> np.ndarray:
    """y_i = x_i + exp(-(t_i - t_{i-1}) / tau) y_{i-1}, float64 [N]; t ascending, in tau's unit.

    Inside a block that spans at most 256 tau, y_i = exp(-s_i) * cumsum(x exp(s)) with s = (t - t_0) / tau,
    which stays below 1e112; blocks are chained by their last value.
    """
    y = np.empty(len(x), np.float64)
    carry, start = 0.0, 0
    while start < len(x):
        stop = int(np.searchsorted(t, t[start] + _EXPONENT_SPAN * tau, side="right"))
        growth = np.exp((t[start:stop] - t[start]) / tau)
        total = np.cumsum(x[start:stop] * growth)
        total += carry
        np.divide(total, growth, out=y[start:stop])
        if stop < len(x):
            carry = float(y[stop - 1]) * float(np.exp(-(t[stop] - t[stop - 1]) / tau))
        start = stop
    return y


def fill_previous(records: np.ndarray, session_start: np.ndarray) -> None:
    """Write prev_mid and prev_ts_ns in place; a session's first record is its own predecessor."""
    mid = mid_ticks(records)
    records["prev_mid"][1:] = mid[:-1]
    records["prev_ts_ns"][1:] = records["ts_ns"][:-1]
    records["prev_mid"][session_start] = mid[session_start]
    records["prev_ts_ns"][session_start] = records["ts_ns"][session_start]


def fill_regime(records: np.ndarray, session_start: np.ndarray, instrument: Instrument) -> None:
    """Write regime[6] in place, session by session. Needs prev_mid, the book, the trades and the times."""
    if not len(records):
        return
    mid = mid_ticks(records).astype(np.float64)
    move2 = np.square(mid - records["prev_mid"])
    trades = records["trade_count"].astype(np.float64)
    spread = (records["ask_px"][:, 0] - records["bid_px"][:, 0]).astype(np.float64)
    ts = np.ascontiguousarray(records["ts_ns"]).view(np.int64)
    regime = np.empty((len(records), 6), np.float32)
    regime[:, 5] = session_progress(ts, instrument)
    bounds = np.append(session_start, len(records))
    for a, b in zip(bounds[:-1], bounds[1:], strict=True):
        _session_regime(ts[a:b], move2[a:b], trades[a:b], spread[a:b], regime[a:b])
    records["regime"] = regime


def _session_regime(ts: np.ndarray, move2: np.ndarray, trades: np.ndarray, spread: np.ndarray, out: np.ndarray) -> None:
    seconds = (ts - ts[0]) * 1e-9
    elapsed = np.maximum(seconds, MIN_ELAPSED_SECONDS)
    # The integral of the kernel over the past that exists: it removes the bias towards zero at a session's start.
    fast_mass = FAST_SECONDS * -np.expm1(-elapsed / FAST_SECONDS)
    slow_mass = SLOW_SECONDS * -np.expm1(-elapsed / SLOW_SECONDS)
    fast = np.sqrt(decayed_sum(move2, seconds, FAST_SECONDS) / fast_mass)
    slow = np.sqrt(decayed_sum(move2, seconds, SLOW_SECONDS) / slow_mass)
    out[:, 0], out[:, 1] = fast, slow
    out[:, 2] = np.log(np.maximum(fast, VOLATILITY_FLOOR) / np.maximum(slow, VOLATILITY_FLOOR))
    out[:, 3] = decayed_sum(trades, seconds, FAST_SECONDS) / fast_mass
    # Time-weighted mean spread: each interval counts with the spread that stood during it.
    weight = np.zeros_like(seconds)
    weight[1:] = -np.expm1(-np.diff(seconds) / FAST_SECONDS)
    weight[0] = 1.0
    stood = np.concatenate([spread[:1], spread[:-1]])
    out[:, 4] = decayed_sum(weight * stood, seconds, FAST_SECONDS)


def session_progress(ts_ns: np.ndarray, instrument: Instrument) -> np.ndarray:
    """Share of the trading day that has passed, 0..1, float64 [N]; 1 between close and open. Clock alone, so causal."""
    hour = ts_ns // _HOUR_NS
    change = np.flatnonzero(np.diff(hour)) + 1
    first = np.concatenate([[0], change]).astype(np.int64)
    offsets = np.array([_utc_offset_ns(int(hour[i]) * _HOUR_NS, instrument.time_zone) for i in first], np.int64)
    local = ts_ns + np.repeat(offsets, np.diff(np.append(first, len(ts_ns))))
    opening = instrument.session_open
    open_ns = (opening.hour * 3600 + opening.minute * 60 + opening.second) * 1_000_000_000
    since_open = (local - open_ns) % 86_400_000_000_000
    return np.minimum(since_open / (instrument.session_seconds * 1e9), 1.0)


def _utc_offset_ns(ts_ns: int, time_zone: str) -> int:
    stamp = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=ts_ns // 1_000_000_000)
    return int(stamp.astimezone(ZoneInfo(time_zone)).utcoffset().total_seconds()) * 1_000_000_000
