"""The hindsight bound: the most that anyone could have earned on a range, knowing all of it beforehand.

A dynamic programme over (position, steps until the next fill may come), backwards in time, for all rows at once. It
pays what the book asks, level by level, and fees; fills arrive no earlier and no closer together than the latency
allows; the position stays within the lot limit and is closed at the end of each segment, as every row's is. It may go
to any position at once, which an agent with a table of actions may not: no policy can beat it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foxhunt_cli.market.fills import Fills, forced_prices, walk_prices

ROWS_AT_ONCE = 64  # bounds the memory of the price tables


@dataclass(frozen=True)
class Costs:
    """What trading costs: the instrument's figures and the run's."""

    lot_limit: int
    latency: int
    tick_value_usd: float
    fee_usd: float


def hindsight_fills(records: np.ndarray, first: np.ndarray, steps: int, costs: Costs) -> Fills:
    """The best fills of segments of ``steps`` steps. records: SNAPSHOT; first: [R] first snapshot of each segment."""
    parts = [
        _segments(records, first[at : at + ROWS_AT_ONCE].astype(np.int64), steps, costs)
        for at in range(0, len(first), ROWS_AT_ONCE)
    ]
    names = ("lots", "price_lots", "close_price_lots")
    return Fills(*(np.concatenate([getattr(part, name) for part in parts], axis=1) for name in names))


@dataclass(frozen=True)
class _Prices:
    """Sum of price x lots for 0..2L lots by step: [S, R, 2L + 1]. The last step's are those of a forced close."""

    buy: np.ndarray
    sell: np.ndarray

    def cash(self, step: int, lots: np.ndarray) -> np.ndarray:
        """[R, len(lots)] cash of fills of these signed lots, ticks; -inf where the book does not hold them."""
        bought, sold = self.buy[step][:, np.maximum(lots, 0)], self.sell[step][:, np.maximum(-lots, 0)]
        return np.where(lots > 0, -bought, np.where(np.isinf(sold), -np.inf, sold))


def _segments(records: np.ndarray, first: np.ndarray, steps: int, costs: Costs) -> Fills:
    prices = _prices(records, first, steps, costs)
    choice = _choices(prices, steps, costs)
    return _play(prices, choice, costs)


def _prices(records: np.ndarray, first: np.ndarray, steps: int, costs: Costs) -> _Prices:
    most = 2 * costs.lot_limit
    offsets = np.arange(steps) + (costs.latency > 0)
    offsets[-1] = steps  # the forced close trades in the last book, whatever the latency
    books = records[first[None, :] + offsets[:, None]]

    def table(side: str) -> np.ndarray:
        px, sz = (books[f"{side}_{what}"].reshape(-1, books[f"{side}_{what}"].shape[-1]) for what in ("px", "sz"))
        price = walk_prices(px, sz, most).reshape(steps, len(first), most + 1)
        price[-1] = forced_prices(px[-len(first) :], sz[-len(first) :], most)
        return price

    return _Prices(table("ask"), table("bid"))


def _choices(prices: _Prices, steps: int, costs: Costs) -> np.ndarray:
    """[S - 1, R, P] position class to be in after the step, from each class, where a fill may come now."""
    limit, wait = costs.lot_limit, max(costs.latency - 1, 0)
    classes = np.arange(2 * limit + 1)
    orders = np.arange(-2 * limit, 2 * limit + 1)
    order_of = classes[None, :] - classes[:, None] + 2 * limit
    fee_ticks = np.abs(orders) * costs.fee_usd / costs.tick_value_usd
    rows = prices.buy.shape[1]
    closing = limit - classes
    last = prices.cash(steps - 1, closing) - fee_ticks[closing + 2 * limit]
    value = np.repeat(last[:, None, :], wait + 1, axis=1)  # [R, steps until a fill may come, P]
    choice = np.empty((steps - 1, rows, len(classes)), np.int8)
    for step in range(steps - 2, -1, -1):
        cash = prices.cash(step, orders) - fee_ticks
        reached = cash[:, order_of] + value[:, wait, None, :]  # [R, from, to]
        reached[:, classes, classes] = value[:, 0, :]  # standing still costs nothing and starts no wait
        choice[step] = reached.argmax(axis=2)
        stand = value[:, 0, :] >= reached.max(axis=2)
        choice[step] = np.where(stand, classes, choice[step])
        value = np.concatenate([reached.max(axis=2)[:, None, :], value[:, :wait, :]], axis=1)
    return choice


def _play(prices: _Prices, choice: np.ndarray, costs: Costs) -> Fills:
    """The fills of the best path from flat."""
    steps, rows, _ = prices.buy.shape
    lots = np.zeros((steps, rows), np.int64)
    position = np.zeros(rows, np.int64)
    waiting = np.full(rows, max(costs.latency - 1, 0))
    every = np.arange(rows)
    for step in range(steps - 1):
        wanted = choice[step, every, position + costs.lot_limit].astype(np.int64) - costs.lot_limit
        lots[step] = np.where(waiting == 0, wanted - position, 0)
        waiting = np.where(lots[step] != 0, max(costs.latency - 1, 0), np.maximum(waiting - 1, 0))
        position += lots[step]
    lots[-1] = -position
    amount = np.abs(lots)
    before = np.cumsum(lots, axis=0) - lots
    closing = np.where(before * lots < 0, np.minimum(amount, np.abs(before)), 0)
    at = np.arange(steps)[:, None], every[None, :]
    paid, of_close = (
        np.where(lots > 0, prices.buy[(*at, count)], prices.sell[(*at, count)]) for count in (amount, closing)
    )
    return Fills(lots, paid, of_close)
