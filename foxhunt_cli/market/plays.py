"""From what was played to a ``Play``: on the device, step by step, or by the hindsight bound on the host."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from foxhunt_cli.market.blotter import Range, blotter
from foxhunt_cli.market.bound import Costs, hindsight_fills
from foxhunt_cli.market.fills import Fills, step_pnl
from foxhunt_cli.market.metrics import Play

PER_STEP = (
    "pnl_step_usd",
    "position_after",
    "fill_lots",
    "fill_price_lots",
    "fill_close_price_lots",
    "closed",
    "closed_trade_pnl_usd",
    "closed_trade_steps",
    "closed_excursion_usd",
)
"""Device buffers [T, R] that make a play."""
TRADING_DAYS = 252
_MINUTE_NS = 60_000_000_000


def device_play(steps: Mapping[str, np.ndarray], played: Range) -> Play:
    """steps: PER_STEP buffers over the whole range, [S, R]."""
    closed = steps["closed"].astype(bool)
    lots = steps["fill_lots"]
    return Play(
        pnl=steps["pnl_step_usd"].astype(np.float64),
        fees=np.abs(lots) * played.market.instrument.fee_usd,
        position=steps["position_after"],
        trade_pnl=steps["closed_trade_pnl_usd"][closed].astype(np.float64),
        trade_steps=steps["closed_trade_steps"][closed],
        trade_excursion=steps["closed_excursion_usd"][closed].astype(np.float64),
        lots_traded=float(np.abs(lots).sum()),
        fills=Fills(lots, steps["fill_price_lots"], steps["fill_close_price_lots"]),
        **_clock(played),
    )


def bound_play(played: Range, lot_limit: int) -> Play:
    """The play of perfect foresight: same range, same costs, same latency, same lot limit."""
    instrument = played.market.instrument
    costs = Costs(lot_limit, played.latency, instrument.tick_value_usd, instrument.fee_usd)
    fills = hindsight_fills(played.market.records, played.first, played.steps, costs)
    made = blotter(fills, played)
    return Play(
        pnl=step_pnl(fills, played.mids(), instrument.tick_value_usd, instrument.fee_usd),
        fees=np.abs(fills.lots) * instrument.fee_usd,
        position=np.cumsum(fills.lots, axis=0),
        trade_pnl=made["net_usd"],
        trade_steps=made["steps"],
        trade_excursion=made["best_excursion_usd"],
        lots_traded=float(np.abs(fills.lots).sum()),
        fills=fills,
        **_clock(played),
    )


def _clock(played: Range) -> dict:
    return {
        "minute": played.times()[1:] // _MINUTE_NS,
        "minutes_a_year": float(TRADING_DAYS * played.market.instrument.session_minutes),
    }
