"""Fills: what every action does in every position, the walk of the book, latency, ends of episodes."""

from __future__ import annotations

import numpy as np

from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.env_rig import (
    FLAT_LONG,
    HOLD,
    LONG_LARGE,
    LONG_SMALL,
    PENDING,
    SHORT_LARGE,
    SHORT_SMALL,
    TRAIL_STOP,
    Market,
    Rig,
    ladder,
)

TICK, FEE = 12.5, 2.0

# Position after each action, sizes 1 and 2, limit 4: one row an action, one column a position of _POSITIONS.
_POSITIONS = (-4, -3, -1, 0, 1, 3, 4)
_TABLE = (
    (-4, -4, -3, -2, -2, -2, -2),  # ShortLarge
    (-4, -4, -2, -1, -1, -1, -1),  # ShortSmall
    (-4, -3, -1, 0, 1, 3, 4),  # Hold
    (-4, -3, -1, 0, 0, 0, 0),  # FlatFromLong
    (0, 0, 0, 0, 1, 3, 4),  # FlatFromShort
    (1, 1, 1, 1, 2, 4, 4),  # LongSmall
    (2, 2, 2, 2, 3, 4, 4),  # LongLarge
    (-4, -3, -1, 0, 1, 3, 4),  # TrailTighten
    (-4, -3, -1, 0, 1, 3, 4),  # TrailLoosen
    (-4, -3, -1, 0, 0, 1, 2),  # HalfFlatLong: closes 1, 2, 2
    (-2, -1, 0, 0, 1, 3, 4),  # HalfFlatShort
)


@oracle("fills")
def fills_every_action_in_every_position(trial: Trial) -> None:
    for column, lots in enumerate(_POSITIONS):
        rig = Rig(trial.device, ladder([100] * 3), [0] * 11, 1)
        rig.hold_position(lots, [(100.0, abs(lots))] if lots else [])
        got = rig.play(np.arange(11)[None, :])
        trial.equal(f"from {lots:+d}", [row[column] for row in _TABLE], got["position_after"][0])
        trial.equal(f"from {lots:+d}: target", got["position_after"], got["market_target"])
        trial.equal(f"from {lots:+d}: executed as drawn", np.arange(11), got["action"][0])
        trial.equal(f"from {lots:+d}: units", np.abs(got["position_lots"]), got["unit_lots"].sum(axis=1))


@oracle("fills")
def fills_pyramid_limit_makes_an_add_a_hold(trial: Trial) -> None:
    for lots, add, reverse in ((2, LONG_SMALL, SHORT_SMALL), (-2, SHORT_SMALL, LONG_SMALL)):
        rig = Rig(trial.device, ladder([100] * 3), [0, 0], 1, isv={"PYRAMID_MAX_UNITS": 2.0})
        rig.hold_position(lots, [(100.0, 1), (100.0, 1)])
        got = rig.play([[add, reverse]])
        trial.equal("an add with all units in use; a reversal", [lots, -lots // 2], got["position_after"][0])


def _thin(bids: list[float]) -> Market:
    """Ask side 1 lot at +1, absent, 2 lots at +3, then nothing; bid side mirrored."""
    market = ladder(bids)
    for px, sz, away in ((market.ask_px, market.ask_sz, 1.0), (market.bid_px, market.bid_sz, -1.0)):
        best = px[:, :1].copy()
        sz[:] = 0.0
        sz[:, 0], sz[:, 2] = 1.0, 2.0
        px[:] = best + away * 2.0  # absent levels repeat the worst present price
        px[:, :1] = best
    return market


@oracle("fills")
def fills_partial_level_walk(trial: Trial) -> None:
    """Buy 2 of [1 at 101, absent, 2 at 103]: 204 ticks; cost against the mid 100.5 is 3 ticks and two fees."""
    rig = Rig(trial.device, _thin([100] * 3), [0, 0], 1)
    got = rig.play([[LONG_LARGE, SHORT_LARGE]])
    trial.equal("filled", [2, -2], got["fill_lots"][0])
    trial.equal("price x lots", [204, 198], got["fill_price_lots"][0])
    trial.close("vwap", [102.0, 99.0], got["fill_vwap"][0], 0.0)
    trial.close("cost", [3 * TICK + 2 * FEE] * 2, got["fill_cost_usd"][0], 1e-5)
    trial.equal("unfilled", 0, got["unfilled_lots"])
    trial.equal("cash", [-204, 198], got["cash_ticks"])
    trial.close("unit entry", [102.0, 99.0], got["unit_entry"][:, 0], 0.0)


@oracle("fills")
def fills_insufficient_depth_is_counted(trial: Trial) -> None:
    """Asks for 4 where 3 are displayed: 3 fill, 1 is counted and not kept as an order."""
    rig = Rig(trial.device, _thin([100] * 4), [0, 0], 2, isv={"SIZE_LARGE": 4.0})
    got = rig.play([[LONG_LARGE, SHORT_LARGE], [HOLD, HOLD]])
    trial.equal("filled", [[3, -3], [0, 0]], got["fill_lots"])
    trial.equal("unfilled", [[1, 1], [0, 0]], got["unfilled_lots"])
    trial.equal("price x lots", [307, 296], got["fill_price_lots"][0])
    trial.equal("position", [3, -3], got["position_lots"])
    trial.equal("nothing under way", 0, got["pending_steps"])


@oracle("fills")
def fills_one_lot_costs_half_a_spread_and_a_fee(trial: Trial) -> None:
    rig = Rig(trial.device, ladder([100, 100, 100], spread=3), [0, 0], 1)
    got = rig.play([[LONG_SMALL, SHORT_SMALL]])
    trial.close("cost", 1.5 * TICK + FEE, got["fill_cost_usd"][0], 1e-5)
    trial.close("PnL of the step is minus the cost", -(1.5 * TICK + FEE), got["pnl_step_usd"][0], 1e-5)
    trial.equal("a fraction of a lot is no lot", 0, _fraction(trial))


def _fraction(trial: Trial) -> np.ndarray:
    got = Rig(trial.device, ladder([100] * 3, size=0.5), [0], 1).play([LONG_SMALL])
    return got["fill_lots"]


@oracle("fills")
def fills_latency_decides_the_book(trial: Trial) -> None:
    """Books at 100, 110, 120, ...: an order of step 0 fills in book l, during step max(l - 1, 0)."""
    for latency, step in ((0, 0), (1, 0), (2, 1), (3, 2)):
        rig = Rig(trial.device, ladder(np.arange(8) * 10 + 100), [0], 5, scalars={"latency": latency})
        got = rig.play([LONG_SMALL] + [HOLD] * 4)
        fills = np.zeros(5, np.int64)
        fills[step] = 1
        trial.equal(f"latency {latency}: step", fills, got["fill_lots"][:, 0])
        trial.close(f"latency {latency}: price", 101.0 + 10 * latency, got["fill_vwap"][step, 0], 0.0)
        paid = (5 - latency) * 10 * TICK - 0.5 * TICK - FEE
        trial.close(f"latency {latency}: PnL", paid, got["pnl_step_usd"].sum(), 1e-3)


@oracle("fills")
def fills_a_row_with_an_order_under_way_holds(trial: Trial) -> None:
    rig = Rig(trial.device, ladder([100] * 12), [0], 6, scalars={"latency": 3})
    got = rig.play([LONG_SMALL, SHORT_LARGE, LONG_LARGE, LONG_SMALL, HOLD, HOLD])
    trial.equal("executed", [LONG_SMALL, HOLD, HOLD, LONG_SMALL, HOLD, HOLD], got["action"][:, 0])
    trial.equal("overridden", [0, 1, 1, 0, 0, 0], got["overridden"][:, 0])
    trial.equal("reason", [0, PENDING, PENDING, 0, 0, 0], got["override_reason"][:, 0])
    trial.equal("fills", [0, 0, 1, 0, 0, 1], got["fill_lots"][:, 0])


@oracle("fills")
def fills_an_order_crosses_iterations(trial: Trial) -> None:
    rig = Rig(trial.device, ladder(np.arange(12) * 10 + 100), [0], 2, scalars={"latency": 3})
    first = rig.play([LONG_SMALL, HOLD])
    trial.equal("under way", 1, first["pending_steps"])
    rig.advance()
    got = rig.play([SHORT_LARGE, HOLD])
    trial.equal("fills in the next iteration", [1, 0], got["fill_lots"][:, 0])
    trial.close("in the book of step 3", 131.0, got["fill_vwap"][0], 0.0)


@oracle("fills")
def fills_episode_end_closes_at_the_last_book(trial: Trial) -> None:
    """Two steps; the second is the last: the position closes in the last book, whatever is drawn."""
    for latency in (0, 1, 3):
        rig = Rig(trial.device, ladder([100, 105, 120]), [0], 2, 2, scalars={"latency": latency})
        rig.hold_position(2, [(100.0, 2)])
        got = rig.play([HOLD, LONG_LARGE])
        trial.equal(f"latency {latency}: position", [2, 0], got["position_after"][:, 0])
        trial.equal(f"latency {latency}: sold in the last book", 240, got["fill_price_lots"][1])
        trial.equal(f"latency {latency}: truncated", [0, 1], got["truncated"][:, 0])
        trial.equal(f"latency {latency}: closed", [0, 1], got["closed"][:, 0])
        trial.equal(f"latency {latency}: not terminal", 0, got["terminal"])
        trial.close(f"latency {latency}: trade", 40 * TICK - 2 * FEE, got["closed_trade_pnl_usd"][1], 1e-4)
        trial.equal(f"latency {latency}: class is flat", 4, got["position_class"][2])


@oracle("fills")
def fills_orders_die_with_the_episode(trial: Trial) -> None:
    rig = Rig(trial.device, ladder([100] * 8), [0, 0], 2, 2, scalars={"latency": 4})
    got = rig.play([[LONG_LARGE, HOLD], [HOLD, SHORT_SMALL]])
    trial.equal("nothing filled", 0, got["fill_lots"])
    trial.equal("nothing under way", 0, got["pending_steps"])
    rig = Rig(trial.device, ladder([100] * 8), [0], 2, 2, scalars={"latency": 0})
    got = rig.play([HOLD, LONG_LARGE])
    trial.equal("latency 0: the last step opens nothing", 0, got["fill_lots"])


@oracle("fills")
def fills_forced_close_beyond_the_depth(trial: Trial) -> None:
    """4 lots into 3 displayed: the rest at the worst displayed price, counted, and the row is flat."""
    rig = Rig(trial.device, _thin([100] * 3), [0, 0], 1, 1)
    rig.hold_position(4, [(100.0, 4)])
    got = rig.play([HOLD])
    trial.equal("flat", 0, got["position_lots"])
    trial.equal("1 at 100, 2 at 98, 1 more at 98", 394, got["fill_price_lots"])
    trial.equal("counted", 1, got["unfilled_lots"])
    trial.equal("all lots pay fees", 4, got["fee_sides"])
    trial.equal("no unit left", 0, got["unit_lots"])


@oracle("fills")
def fills_absent_levels_never_trade(trial: Trial) -> None:
    """Whatever price stands in an absent level, neither a walk nor a forced close sees it."""
    market = _thin([100] * 3)
    for px, sz in ((market.ask_px, market.ask_sz), (market.bid_px, market.bid_sz)):
        px[sz == 0.0] = 7.0
        sz[:, 4] = np.nan
    got = Rig(trial.device, market, [0, 0], 1, isv={"SIZE_LARGE": 4.0}).play([[LONG_LARGE, SHORT_LARGE]])
    trial.equal("orders", [307, 296], got["fill_price_lots"][0])
    rig = Rig(trial.device, market, [0], 1, 1)
    rig.hold_position(4, [(100.0, 4)])
    trial.equal("forced close", 394, rig.play([HOLD])["fill_price_lots"][0])


@oracle("fills")
def fills_a_stop_fills_at_the_book_not_at_its_trigger(trial: Trial) -> None:
    """Long from 101, trail 5 (stop at 96). The market gaps to 60, then to 50: the fill is at 50."""
    rig = Rig(trial.device, ladder([100, 60, 50, 50]), [0], 2)
    rig.hold_position(1, [(101.0, 1)], trail=5.0)
    got = rig.play([HOLD, HOLD])
    trial.equal("executed", [HOLD, FLAT_LONG], got["action"][:, 0])
    trial.equal("reason", [0, TRAIL_STOP], got["override_reason"][:, 0])
    trial.close("price", 50.0, got["fill_vwap"][1], 0.0)
    trial.close("trade", -51 * TICK - FEE, got["closed_trade_pnl_usd"][1], 1e-4)


@oracle("fills")
def fills_new_episode_clears_the_row(trial: Trial) -> None:
    """Trade, units, order and context start afresh; account totals and the outcome stay."""
    rig = Rig(trial.device, ladder([100] * 5), [0], 1)
    rig.set(
        trade_pnl_usd=3.0, trade_open_step=9, unit_trail=2.0, unit_entry=7.0, unit_marked=1, pending_steps=2,
        context=5.0,
        steps_since_close=4, cash_ticks=77, fee_sides=6, outcome_ema=0.5, new_episode=1,
    )  # fmt: skip
    got = rig.play([HOLD])
    for name in (
        "trade_pnl_usd",
        "trade_open_step",
        "unit_trail",
        "unit_entry",
        "unit_marked",
        "pending_steps",
        "context",
    ):
        trial.equal(name, 0, got[name])
    trial.true("no close is recent", got["steps_since_close"][0] >= 1_000_000_000)
    trial.equal("cash stays", 77, got["cash_ticks"])
    trial.close("equity = 77 x 12.5 - 6 x 2", 950.5, got["equity_usd"], 0.0)
    trial.close("outcome stays", 0.5, got["outcome_ema"], 0.0)
