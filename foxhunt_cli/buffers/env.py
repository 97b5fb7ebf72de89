"""Buffers of the environment: one account a row. Arrays with a T axis hold one environment step a slice."""

from __future__ import annotations

from foxhunt_cli.buffers.row import Buffer


def _account(name: str, dtype: str, unit: str, meaning: str) -> Buffer:
    """One number a row, carried from step to step."""
    return Buffer(name, "B", dtype, "persistent", unit, meaning)


def _unit(name: str, dtype: str, unit: str, meaning: str) -> Buffer:
    """One number a pyramid unit."""
    return Buffer(name, "B, MAX_UNITS", dtype, "persistent", unit, meaning)


def _step(name: str, dtype: str, unit: str, meaning: str) -> Buffer:
    """What each step of an iteration leaves for those behind it."""
    return Buffer(name, "T, B", dtype, "iteration", unit, meaning)


ROWS = (
    _account("rng_action", "uint32", "state", "xorshift32 state of the action draw"),
    _account("position_lots", "int32", "lots", "signed position"),
    _account("entry_vwap", "float32", "ticks", "average entry price of the open position"),
    _account("entry_basis", "float64", "ticks x lots", "signed lots x average entry price"),
    _account("cash_ticks", "int64", "ticks x lots", "cash: minus the sum of price x signed lots filled"),
    _account("fee_sides", "int64", "lots", "lots filled, both sides: fees = fee x this"),
    _account("realised_usd", "float32", "USD", "realised PnL net of fees since the start"),
    _account("fees_usd", "float32", "USD", "fees since the start"),
    _account("equity_usd", "float32", "USD", "cash + position at the mid - fees"),
    _account("trade_pnl_usd", "float32", "USD", "net PnL of the open trade so far: partial closes and all fees"),
    _account("trade_open_step", "int32", "steps", "age of the open trade: 0 at the end of the step that opened it"),
    _account("trade_lots_max", "int32", "lots", "largest |position| of the open trade"),
    _account("trade_best_mid", "float32", "ticks", "best mid of the open trade: max of a long, min of a short"),
    _account("trade_entry_mid", "float32", "ticks", "mid of the book in which the open trade began"),
    _account("steps_since_close", "int32", "steps", "steps since the last close of this row"),
    _account("outcome_ema", "float32", "-1..1", "EMA of sign(trade PnL) over closed trades"),
    _account("pending_target", "int32", "lots", "target position of the order under way"),
    _account("pending_steps", "int32", "steps", "steps until the order reaches the book; 0 = none under way"),
    _unit("unit_entry", "float32", "ticks", "entry price of a unit"),
    _unit("unit_best_mid", "float32", "ticks", "best mid since the unit was opened"),
    _unit("unit_age", "int32", "steps", "steps since the unit was opened"),
    _unit("unit_lots", "int32", "lots", "lots, 0 = inactive; active units come first, oldest first"),
    _unit("unit_initial_r", "float32", "ticks", "initial risk of the unit"),
    _unit("unit_trail", "float32", "ticks", "trail distance of the unit"),
    _unit("unit_marked", "uint8", "0/1", "a trail stop marked the unit; until its order fills"),
    Buffer("context", "(T+1), B, HEAD_CONTEXT_DIM", "float32", "persistent", "mixed", "trade context before step t"),
    Buffer("position_class", "(T+1), B", "int32", "persistent", "class", "signed lots + lot limit before step t"),
    _step("action_drawn", "int8", "action", "action the policy drew"),
    _step("action", "int8", "action", "action executed after gates and stops"),
    _step("overridden", "uint8", "0/1", "the executed action differs from the drawn one"),
    _step("override_reason", "uint8", "bits", "which gate or stop changed the action"),
    _step("market_target", "int32", "lots", "target position of the order decided at step t"),
    _step("fill_lots", "int32", "lots", "signed lots filled during step t"),
    _step("fill_price_lots", "int64", "ticks x lots", "sum of price x lots of the fill, unsigned lots"),
    _step("fill_close_price_lots", "int64", "ticks x lots", "its part that reduced the position"),
    _step("fill_vwap", "float32", "ticks", "volume-weighted price of the fill"),
    _step("fill_cost_usd", "float32", "USD", "cost of the fill against the mid of its book, fees included"),
    _step("unfilled_lots", "int32", "lots", "lots that ten levels could not fill"),
    _step("unrealised_usd", "float32", "USD", "unrealised PnL of the units before the fill"),
    _step("held_steps", "int32", "steps", "age of the open trade before the fill, 0 = flat"),
    _step("position_before", "int32", "lots", "position during step t, before the fill"),
    _step("position_after", "int32", "lots", "position after the fill of step t"),
    _step("realised_delta_usd", "float32", "USD", "PnL realised by step t, net of fees"),
    _step("pnl_step_usd", "float32", "USD", "change of equity over step t"),
    _step("closed", "uint8", "0/1", "the position reached zero or changed sign"),
    _step("terminal", "uint8", "0/1", "no bootstrap through this step"),
    _step("truncated", "uint8", "0/1", "last step of an episode"),
    _step("closed_trade_pnl_usd", "float32", "USD", "net PnL of the trade that closed at step t, else 0"),
    _step("closed_trade_steps", "int32", "steps", "duration of the trade that closed at step t, else 0"),
    _step("closed_trade_lots", "int32", "lots", "largest |position| of the trade that closed, else 0"),
    _step("closed_excursion_usd", "float32", "USD", "best mid excursion of the trade that closed, else 0"),
    _step("reward", "float32", "scaled", "scaled, clamped reward the learner sees"),
    _step("reward_usd", "float32", "USD", "reward before scale and clamp"),
    Buffer("action_share_ema", "N_ACTIONS", "float32", "persistent", "1", "EMA of the shares of executed actions"),
    _step("reward_scaled", "float32", "scaled", "reward after scale, before the clamp"),
)
