"""The blotter: every trade of a played range with times, prices, costs and its best moment. One row a trade."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foxhunt_cli.data.market_data import MarketData
from foxhunt_cli.market.fills import Fills, Trade, trades


@dataclass(frozen=True)
class Range:
    """Where fills happened: R segments of S steps of a data set, and the latency they were played with."""

    market: MarketData
    first: np.ndarray
    """[R] first snapshot of each segment."""
    steps: int
    latency: int

    def mids(self) -> np.ndarray:
        """[S + 1, R] mid at each decision and after the last step, ticks."""
        books = self.market.records[self.first[None, :] + np.arange(self.steps + 1)[:, None]]
        return 0.5 * (books["bid_px"][..., 0].astype(np.float64) + books["ask_px"][..., 0])

    def times(self) -> np.ndarray:
        """[S + 1, R] ns since 1970."""
        return self.market.records["ts_ns"][self.first[None, :] + np.arange(self.steps + 1)[:, None]].astype(np.int64)

    def book_of(self, step: int) -> int:
        """Offset in the segment of the snapshot that fills of ``step`` trade in."""
        return step if self.latency == 0 and step < self.steps - 1 else step + 1


def blotter(fills: Fills, played: Range) -> dict[str, np.ndarray]:
    """Columns by name, in order of row and close. Prices in the instrument's currency, times in UTC."""
    mid, time = played.mids(), played.times()
    instrument = played.market.instrument
    closed = list(trades(fills))

    def price(ticks: list[float]) -> np.ndarray:
        return (played.market.reference_ticks + np.array(ticks, np.float64)) * float(instrument.tick_size)

    def at(steps: list[int], table: np.ndarray) -> np.ndarray:
        return np.array([table[played.book_of(s), t.row] for s, t in zip(steps, closed, strict=True)], table.dtype)

    opened, left = [t.opened for t in closed], [t.closed for t in closed]
    gross = np.array([t.gross_ticks for t in closed], np.float64) * instrument.tick_value_usd
    fees = np.array([t.sides for t in closed], np.float64) * instrument.fee_usd
    return {
        "row": np.array([t.row for t in closed], np.int32),
        "side": np.array(["long" if t.side > 0 else "short" for t in closed], dtype="U5"),
        "lots": np.array([t.lots for t in closed], np.int32),
        "entry_time": at(opened, time).view("datetime64[ns]"),
        "exit_time": at(left, time).view("datetime64[ns]"),
        "entry_snapshot": np.array([played.first[t.row] + played.book_of(t.opened) for t in closed], np.int64),
        "exit_snapshot": np.array([played.first[t.row] + played.book_of(t.closed) for t in closed], np.int64),
        "entry_price": price([t.entry_ticks for t in closed]),
        "exit_price": price([t.exit_ticks for t in closed]),
        "gross_usd": gross,
        "fees_usd": fees,
        "net_usd": gross - fees,
        "steps": np.array([t.closed - t.opened for t in closed], np.int32),
        "best_excursion_usd": np.array([_excursion(t, mid, played) for t in closed], np.float64)
        * instrument.tick_value_usd,
    }


def _excursion(trade: Trade, mid: np.ndarray, played: Range) -> float:
    """Best mid in the trade's favour, from the mid of the opening's book, ticks x largest lots."""
    begin, end = played.book_of(trade.opened), played.book_of(trade.closed)
    path = mid[begin : end + 1, trade.row]
    best = path.max() if trade.side > 0 else path.min()
    return float(abs(best - path[0]) * trade.lots)
