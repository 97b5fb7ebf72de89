"""Fills and what follows from them on the host: per-step PnL, trades, prices paid in the book.

Owns the host's copy of two device rules: how an order walks the book (``cuda_src/env/book.cuh``) and how fills make
trades (``account.cuh``: a flip is a close, then an open). Tests hold both against the device. Prices are whole ticks in
float64, so every sum is exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

LOTS_MAX = 1e9  # a larger displayed size counts as this


@dataclass(frozen=True)
class Fills:
    """What a policy had filled over S steps of R rows."""

    lots: np.ndarray
    """[S, R] int, signed."""
    price_lots: np.ndarray
    """[S, R] sum of price x lots of the fill, ticks, lots unsigned."""
    close_price_lots: np.ndarray
    """[S, R] its part that reduced the position: the first lots of the walk."""


@dataclass(frozen=True)
class Trade:
    """One round trip of a row: from flat (or a flip) to flat (or a flip)."""

    row: int
    side: int
    lots: int  # largest absolute position
    opened: int  # step of the first fill
    closed: int  # step of the last fill
    entry_ticks: float  # average price of the lots opened
    exit_ticks: float  # average price of the lots closed
    lots_opened: int
    gross_ticks: float  # ticks x lots, before fees
    sides: int  # lots filled, both ways: fees = fee x this


def walk_prices(px: np.ndarray, sz: np.ndarray, lots: int) -> np.ndarray:
    """Cost of taking 0..lots lots from one side of books: [n, lots + 1] sum of price x lots, inf beyond what is shown.

    px, sz: [n, levels], best first.
    """
    shown = np.floor(np.where(sz >= 1.0, np.minimum(sz, LOTS_MAX), 0.0)).astype(np.float64)
    through = np.cumsum(shown, axis=1)
    before = through - shown
    wanted = np.arange(lots + 1.0)
    price = np.zeros((len(px), lots + 1))
    for level in range(px.shape[1]):
        taken = np.clip(wanted, before[:, level, None], through[:, level, None]) - before[:, level, None]
        price += px[:, level, None].astype(np.float64) * taken
    return np.where(wanted <= through[:, -1:], price, np.inf)


def forced_prices(px: np.ndarray, sz: np.ndarray, lots: int) -> np.ndarray:
    """As ``walk_prices`` for a forced close: lots beyond the book trade at the worst price shown."""
    price = walk_prices(px, sz, lots)
    present = sz >= 1.0
    last = np.where(present.any(axis=1), px.shape[1] - 1 - np.argmax(present[:, ::-1], axis=1), 0)
    worst = px[np.arange(len(px)), last].astype(np.float64)
    for wanted in range(1, lots + 1):
        price[:, wanted] = np.where(np.isinf(price[:, wanted]), price[:, wanted - 1] + worst, price[:, wanted])
    return price


def step_pnl(fills: Fills, mid: np.ndarray, tick_value_usd: float, fee_usd: float) -> np.ndarray:
    """[S, R] change of equity by step, net of fees. mid: [S + 1, R] ticks, at each decision and after the last step."""
    after = np.cumsum(fills.lots, axis=0)
    before = after - fills.lots
    cash = -np.sign(fills.lots) * fills.price_lots
    return (cash + after * mid[1:] - before * mid[:-1]) * tick_value_usd - np.abs(fills.lots) * fee_usd


def trades(fills: Fills) -> Iterator[Trade]:
    """Closed trades, row by row, in order of their close. A trade that is open at the end is left out."""
    for row in range(fills.lots.shape[1]):
        open_trade: _Open | None = None
        position = 0
        for step in np.flatnonzero(fills.lots[:, row]):
            lots = int(fills.lots[step, row])
            side, amount = (1 if lots > 0 else -1), abs(lots)
            closing = min(amount, abs(position)) if position * side < 0 else 0
            closed_value = float(fills.close_price_lots[step, row])
            if closing and open_trade is not None:
                open_trade.close(closing, closed_value)
                if closing == abs(position):
                    yield open_trade.finish(row, int(step))
                    open_trade = None
            if amount > closing:
                open_trade = open_trade or _Open(side, int(step))
                open_trade.add(amount - closing, float(fills.price_lots[step, row]) - closed_value)
            position += lots


@dataclass
class _Open:
    """A trade under way. Values are lots times price, in ticks."""

    side: int
    opened: int
    held: int = 0
    most: int = 0
    lots_in: int = 0
    value_in: float = 0.0
    lots_out: int = 0
    value_out: float = 0.0

    def add(self, lots: int, value: float) -> None:
        """Lots that open or add."""
        self.held += lots
        self.most = max(self.most, self.held)
        self.lots_in += lots
        self.value_in += value

    def close(self, lots: int, value: float) -> None:
        """Lots that leave."""
        self.held -= lots
        self.lots_out += lots
        self.value_out += value

    def finish(self, row: int, step: int) -> Trade:
        """The whole trade, closed at ``step``."""
        gross = self.side * (self.value_out - self.value_in)
        entry, left = self.value_in / self.lots_in, self.value_out / self.lots_out
        sides = self.lots_in + self.lots_out
        return Trade(row, self.side, self.most, self.opened, step, entry, left, self.lots_in, gross, sides)
