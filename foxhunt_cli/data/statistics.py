"""The statistics by which a market is known, measured on any data set, beside their targets for ES.

`measure` works on real data as well, so the table compares like with like; `foxhunt data info --stats`
and the synthetic market's oracle print it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foxhunt_cli.data.errors import DataError
from foxhunt_cli.data.market_data import MarketData
from foxhunt_cli.data.record import mid_ticks
from foxhunt_cli.data.synthetic import SIZE_LOG_SIGMA, SIZE_MEAN


@dataclass(frozen=True)
class Statistic:
    """One measured figure and the interval in which a realistic market has it."""

    name: str
    value: float
    low: float
    high: float
    unit: str = ""

    @property
    def ok(self) -> bool:
        """Whether the figure lies in its interval."""
        return bool(self.low <= self.value <= self.high)


def measure(data: MarketData) -> list[Statistic]:
    """The table, for the longest session of `data`. Raises DataError where that is too short."""
    session = int(np.argmax(data.session_lengths))
    start = int(data.session_start[session])
    records = data.records[start : start + int(data.session_lengths[session])]
    if len(records) < 1000:
        raise DataError(
            f"{data.source}: statistics need a session of at least 1,000 snapshots, the longest has {len(records):,}; "
            "leave --stats out"
        )
    return [*_book(records), *_arrivals(records), *_moves(records), *_imbalance(records)]


def _book(records: np.ndarray) -> list[Statistic]:
    spread = records["ask_px"][:, 0] - records["bid_px"][:, 0]
    out = [Statistic("spread of one tick", float(np.mean(spread == 1)), 0.94, 0.99)]
    for level in (0, 1, 2, 5):
        size = records["bid_sz"][:, level]
        size = size[size > 0].astype(np.float64)
        mean = SIZE_MEAN[level]
        out.append(Statistic(f"mean size, level {level}", float(size.mean()), 0.8 * mean, 1.25 * mean, "lots"))
        sigma = SIZE_LOG_SIGMA[level]
        out.append(Statistic(f"sigma of log size, level {level}", float(np.log(size).std()), 0.8 * sigma, 1.25 * sigma))
    return out


def _arrivals(records: np.ndarray) -> list[Statistic]:
    seconds = (records["ts_ns"] - records["ts_ns"][0]).astype(np.float64) * 1e-9
    wait = np.diff(seconds)
    traded = records["trade_count"] > 0
    sign = np.sign(records["trade_signed_vol"][traded].astype(np.float64))
    return [
        Statistic("updates a second", len(wait) / max(seconds[-1], 1e-9), 11, 280, "1/s"),
        Statistic("coefficient of variation of waits", float(wait.std() / wait.mean()), 2.8, 4.8),
        Statistic("share of snapshots with a trade", float(traded.mean()), 0.065, 0.085),
        Statistic("autocorrelation of trade sign", _correlation(sign[:-1], sign[1:]), 0.3, 0.5),
    ]


def _moves(records: np.ndarray) -> list[Statistic]:
    mid = mid_ticks(records).astype(np.float64)
    change = np.diff(_sampled(records, mid, 10.0))
    jumps = np.diff(mid)
    jumps = np.sign(jumps[jumps != 0])
    volatility = float(np.sqrt(np.mean(change**2) / 10.0))
    kurtosis = float(np.mean(change**4) / max(np.mean(change**2), 1e-12) ** 2 - 3)
    return [
        Statistic("volatility", volatility, 0.3, 1.1, "ticks/sqrt(s)"),
        Statistic("excess kurtosis of 10 s moves", kurtosis, 5, 25),
        Statistic("reversal probability", float(np.mean(jumps[1:] != jumps[:-1])), 0.54, 0.64),
    ]


def _imbalance(records: np.ndarray) -> list[Statistic]:
    mid = mid_ticks(records).astype(np.float64)
    bid, ask = (records[f][:, 0].astype(np.float64) for f in ("bid_sz", "ask_sz"))
    imbalance = (bid - ask) / (bid + ask)
    one, ten = (_sampled(records, imbalance, s) for s in (1.0, 10.0))
    up, known = _next_move_up(mid)
    bins = np.digitize(imbalance, np.linspace(-0.8, 0.8, 9))
    chance = [float(up[known & (bins == k)].mean()) for k in range(10) if (known & (bins == k)).sum() > 50]
    later = _ahead(records, 10.0)
    inside = later < len(mid)
    return [
        Statistic("imbalance autocorrelation, 1 s", _correlation(one[:-1], one[1:]), 0.65, 0.87),
        Statistic("imbalance autocorrelation, 10 s", _correlation(ten[:-1], ten[1:]), 0.13, 0.43),
        Statistic("P(next move up), lowest bin", min(chance), 0.1, 0.35),
        Statistic("P(next move up), highest bin", max(chance), 0.65, 0.9),
        Statistic(
            "imbalance with the move over 10 snapshots", _correlation(imbalance[:-10], mid[10:] - mid[:-10]), 0.22, 0.45
        ),
        Statistic(
            "imbalance with the move over 10 s",
            _correlation(imbalance[inside], (mid[later[inside]] - mid[inside])),
            -0.1,
            0.2,
        ),
    ]


def _sampled(records: np.ndarray, column: np.ndarray, seconds: float) -> np.ndarray:
    """The column's standing value on a regular grid."""
    ts = records["ts_ns"].astype(np.int64)
    grid = np.arange(ts[0], ts[-1], int(seconds * 1e9))
    return column[np.searchsorted(ts, grid, side="right") - 1]


def _ahead(records: np.ndarray, seconds: float) -> np.ndarray:
    """For each record, the index of the first record at least `seconds` later (N where there is none)."""
    ts = records["ts_ns"].astype(np.int64)
    return np.searchsorted(ts, ts + int(seconds * 1e9))


def _next_move_up(mid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each record, whether the mid's next change is up, and whether there is one."""
    change = np.flatnonzero(np.diff(mid)) + 1
    following = np.searchsorted(change, np.arange(len(mid)), side="right")
    known = following < len(change)
    at = change[np.minimum(following, len(change) - 1)] if len(change) else np.zeros(len(mid), np.int64)
    return mid[at] > mid, known & (len(change) > 0)


def _correlation(x: np.ndarray, y: np.ndarray) -> float:
    x, y = x - x.mean(), y - y.mean()
    return float((x * y).mean() / max(float(x.std() * y.std()), 1e-12))
