"""The hindsight bound against every possible sequence of decisions on tiny markets, and the host's fills by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from foxhunt_cli.data.record import LEVELS, SNAPSHOT
from foxhunt_cli.market.bound import Costs, hindsight_fills
from foxhunt_cli.market.fills import Fills, forced_prices, step_pnl, trades, walk_prices


def books(count: int, seed: int, deepest: int = 3) -> np.ndarray:
    """Snapshots whose mid wanders a lot and whose books are thin: levels of 0 to ``deepest`` lots."""
    rng = np.random.default_rng(seed)
    records = np.zeros(count, SNAPSHOT)
    mid = np.cumsum(rng.integers(-4, 5, count))
    for side, sign in (("bid", -1), ("ask", 1)):
        gap = np.cumsum(rng.integers(1, 3, (count, LEVELS)), axis=1)
        records[f"{side}_px"] = mid[:, None] + sign * gap
        sizes = rng.integers(0, deepest + 1, (count, LEVELS)).astype(np.float32)
        sizes[:, 0] = np.maximum(sizes[:, 0], 1)
        sizes[:, 4:] = 0
        records[f"{side}_sz"] = sizes
    return records


def take(record: np.void, lots: int, force: bool = False) -> tuple[int, float]:
    """(signed lots filled, signed cash in ticks) of an order into one book, level by level, in plain Python."""
    side = "ask" if lots > 0 else "bid"
    left, cash, worst = abs(lots), 0.0, float(record[f"{side}_px"][0])
    for price, size in zip(record[f"{side}_px"].tolist(), record[f"{side}_sz"].tolist(), strict=True):
        if size >= 1:
            worst, got = price, min(left, int(size))
            cash, left = cash + price * got, left - got
    if force:
        cash, left = cash + worst * left, 0
    sign = 1 if lots > 0 else -1
    return sign * (abs(lots) - left), -sign * cash


def play(records: np.ndarray, targets: tuple[int, ...], costs: Costs) -> float:
    """Net USD of one sequence of decisions, one a step, by the rules of the environment."""
    position, pending, cash, sides = 0, None, 0.0, 0
    for step, target in enumerate(targets):
        book = records[step + (costs.latency > 0)]
        if step == len(targets) - 1:
            order, book = -position, records[step + 1]
        else:
            if pending is None and target != position:
                pending = [target, costs.latency]
            if pending is not None:
                pending[1] -= 1
            due = pending is not None and pending[1] <= 0
            order = pending[0] - position if due else 0
            pending = None if due else pending
        if order:
            filled, paid = take(book, order, force=step == len(targets) - 1)
            position, cash, sides = position + filled, cash + paid, sides + abs(filled)
    assert position == 0
    return cash * costs.tick_value_usd - sides * costs.fee_usd


@pytest.mark.parametrize("latency", [0, 1, 2, 3])
@pytest.mark.parametrize("limit", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_the_bound_is_the_best_of_all_sequences(latency, limit, seed):
    steps = 6 if limit == 1 else 5
    costs = Costs(limit, latency, 12.5, 2.05)
    records = books(steps + 1, seed)
    targets = itertools.product(range(-limit, limit + 1), repeat=steps - 1)
    best = max(play(records, (*path, 0), costs) for path in targets)
    fills = hindsight_fills(records, np.array([0]), steps, costs)
    mid = 0.5 * (records["bid_px"][:, :1].astype(float) + records["ask_px"][:, :1])
    assert step_pnl(fills, mid, 12.5, 2.05).sum() == pytest.approx(best, abs=1e-9)
    assert np.abs(np.cumsum(fills.lots)).max() <= limit and fills.lots.sum() == 0


def test_segments_are_independent_and_chunks_do_not_matter(monkeypatch):
    costs = Costs(2, 1, 12.5, 2.05)
    records = books(400, 9)
    first = np.arange(0, 390, 13)
    together = hindsight_fills(records, first, 12, costs)
    monkeypatch.setattr("foxhunt_cli.market.bound.ROWS_AT_ONCE", 4)
    for name in ("lots", "price_lots", "close_price_lots"):
        np.testing.assert_array_equal(
            getattr(together, name), getattr(hindsight_fills(records, first, 12, costs), name)
        )
    alone = hindsight_fills(records, first[5:6], 12, costs)
    np.testing.assert_array_equal(together.lots[:, 5:6], alone.lots)


def test_nothing_to_earn_means_no_trade():
    records = np.repeat(books(1, 3, deepest=9), 50)
    fills = hindsight_fills(records, np.array([0]), 40, Costs(4, 1, 12.5, 2.05))
    assert not fills.lots.any()


def test_prices_of_a_walk_by_hand():
    px, sz = np.array([[10.0, 11.0, 12.0]]), np.array([[2.0, 0.0, 1.0]])
    assert walk_prices(px, sz, 4).tolist() == [[0.0, 10.0, 20.0, 32.0, np.inf]]
    assert forced_prices(px, sz, 4).tolist() == [[0.0, 10.0, 20.0, 32.0, 44.0]]


def test_trades_by_hand():
    """Buy 2 at 10, add 1 at 12, sell 1 at 14, flip to -1 at 13 (sell 3), buy 1 back at 9; an open one is left out."""
    lots = np.array([[2], [1], [-1], [-3], [1], [1]])
    price = np.array([[20.0], [12.0], [14.0], [39.0], [9.0], [9.0]])
    closing = np.array([[0.0], [0.0], [14.0], [26.0], [9.0], [0.0]])
    long, short = trades(Fills(lots, price, closing))
    assert (long.side, long.lots, long.opened, long.closed, long.sides) == (1, 3, 0, 3, 6)
    assert (long.entry_ticks, long.exit_ticks, long.gross_ticks) == (32 / 3, 40 / 3, 8.0)
    assert (short.side, short.lots, short.opened, short.closed, short.gross_ticks) == (-1, 1, 3, 4, 4.0)
