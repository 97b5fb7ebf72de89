"""Pyramid units, trade context and sizes after fills."""

from __future__ import annotations

import numpy as np

from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.env_rig import (
    HALF_LONG,
    HALF_SHORT,
    HOLD,
    LONG_LARGE,
    LONG_SMALL,
    SHORT_LARGE,
    SHORT_SMALL,
    Rig,
    ladder,
)

_TRAILS = {"TRAIL_MIN": 0.5, "TRAIL_MAX": 40.0, "TRAIL_K_INIT": 2.0}


@oracle("units")
def units_open_add_half_reverse(trial: Trial) -> None:
    rig = Rig(trial.device, ladder([100, 100, 110, 120, 130, 130]), [0], 4)
    got = rig.play([LONG_LARGE, LONG_SMALL, HALF_LONG, SHORT_LARGE])
    trial.equal("positions", [2, 3, 1, -2], got["position_after"][:, 0])
    trial.equal("after the reversal one unit", [[2, 0, 0, 0]], got["unit_lots"])
    trial.close("entered at the bid", 130.0, got["unit_entry"][0, 0], 0.0)
    trial.equal("a new unit has age 0", 0, got["unit_age"])
    # Sold 2 of (2 at 101, 1 at 111) at 120, the last at 130; average entry 313/3.
    average = (2 * 101 + 111) / 3
    trial.close(
        "half realised at the average price", 2 * (120 - average) * 12.5 - 4.0, got["realised_delta_usd"][2], 1e-3
    )
    trial.close("trade PnL exact", (2 * 120 + 130 - 313) * 12.5 - 6 * 2.0, got["closed_trade_pnl_usd"][3], 1e-3)
    trial.equal("trade lots", 3, got["closed_trade_lots"][3])
    trial.equal("trade steps", 3, got["closed_trade_steps"][3])


@oracle("units")
def units_partial_close_takes_the_oldest(trial: Trial) -> None:
    """No mark: units of 1, 2, 1 lots; HalfFlat closes 2: all of the first, one of the second."""
    for lots, action in ((4, HALF_LONG), (-4, HALF_SHORT)):
        rig = Rig(trial.device, ladder([100] * 3), [0], 1)
        rig.hold_position(lots, [(98.0, 1), (99.0, 2), (100.0, 1)])
        got = rig.play([action])
        trial.equal(f"{lots:+d}: lots", [[1, 1, 0, 0]], got["unit_lots"])
        trial.close(f"{lots:+d}: entries", [[99.0, 100.0, 0.0, 0.0]], got["unit_entry"], 0.0)


@oracle("units")
def units_partial_close_of_a_single_unit(trial: Trial) -> None:
    rig = Rig(trial.device, ladder([100] * 3), [0], 1)
    rig.hold_position(3, [(98.0, 3)])
    got = rig.play([HALF_LONG])
    trial.equal("lots", [[1, 0, 0, 0]], got["unit_lots"])
    trial.equal("age goes on", 2, got["unit_age"][0, 0])


@oracle("units")
def units_initial_trail(trial: Trial) -> None:
    """Before the trade averages live: K x volatility x sqrt(10) of the fill's book; then K x mean |PnL| a lot."""
    market = ladder([100] * 4)
    market.regime[:, 0] = [9.0, 1.5, 0.0, 50.0]
    cases = ((0, {}, 2 * 1.5 * np.sqrt(10.0)), (1, {}, 0.5), (2, {}, 40.0),
             (0, {"MEAN_ABS_PNL_EMA": 200.0, "CLOSED_LOTS_EMA": 1.6}, 2 * 200 / (12.5 * 1.6)),
             (0, {"MEAN_ABS_PNL_EMA": 200.0}, 2 * 1.5 * np.sqrt(10.0)))  # fmt: skip
    for cursor, live, trail in cases:
        got = Rig(trial.device, market, [cursor], 1, isv={**_TRAILS, **live}).play([LONG_SMALL])
        trial.close(f"book {cursor + 1}, {live or 'not live'}", trail, got["unit_trail"][0, 0], 1e-5)
        trial.close("initial R", trail, got["unit_initial_r"][0, 0], 1e-5)


@oracle("units")
def units_anti_martingale_up_and_down(trial: Trial) -> None:
    """rint(2 x (1 + 0.5 x outcome)), at least 1; rint goes to even on a tie."""
    outcome = np.array([0.0, 1.0, -1.0, 0.4, 0.6, -0.6], np.float32)
    rig = Rig(trial.device, ladder([100] * 3), [0] * 6, 1, isv={"ANTI_MARTINGALE_GAIN": 0.5})
    rig.set(outcome_ema=outcome)
    trial.equal("large", [2, 3, 1, 2, 3, 1], rig.play([[LONG_LARGE] * 6])["position_lots"])
    rig = Rig(trial.device, ladder([100] * 3), [0] * 6, 1, isv={"ANTI_MARTINGALE_GAIN": 1.0, "SIZE_SMALL": 1.0})
    rig.set(outcome_ema=outcome)
    trial.equal("small never vanishes", [1, 2, 1, 1, 2, 1], -rig.play([[SHORT_SMALL] * 6])["position_lots"])


@oracle("units")
def units_recent_outcome_moves_on_closes_only(trial: Trial) -> None:
    rig = Rig(trial.device, ladder([100, 100, 120, 120]), [0, 0], 2, isv={"OUTCOME_ALPHA": 0.25})
    rig.set(outcome_ema=[0.0, 0.5])
    got = rig.play([[LONG_SMALL, LONG_SMALL], [3, HOLD]])
    trial.close("first outcome as it is; no close, no change", [1.0, 0.5], got["outcome_ema"], 0.0)
    rig.hold_position(1, [(200.0, 1)], outcome_ema=[0.5, -1.0])
    got = rig.play([[3, 3], [HOLD, HOLD]])
    trial.close("then blended", [0.5 - 0.25 * 1.5, -1.0], got["outcome_ema"], 1e-6)


@oracle("units")
def units_trade_context(trial: Trial) -> None:
    """Long 2 from 101 at a best mid of 120.5 and a mid of 110.5 with R 20: [age / 256, 9.5 / 20, 10 / 20]."""
    slots = {"TRAIL_MIN": 20.0, "TRAIL_MAX": 20.0}
    got = Rig(trial.device, ladder([100, 100, 120, 110, 110]), [0, 0], 3, isv=slots).play(
        [[LONG_LARGE, HOLD], [HOLD, HOLD], [HOLD, HOLD]]
    )
    trial.close("before", [0.0, 0.0, 0.0], got["context"][0, 0], 0.0)
    trial.close("opened", [0.0, -0.5 / 20, 0.0], got["context"][1, 0], 1e-6)
    trial.close("at the peak", [1 / 256, 19.5 / 20, 0.0], got["context"][2, 0], 1e-6)
    trial.close("below it", [2 / 256, 9.5 / 20, 10 / 20], got["context"][3, 0], 1e-6)
    trial.close("a flat row", 0.0, got["context"][:, 1], 0.0)
    trial.equal("class", [4, 6, 6, 6], got["position_class"][:, 0])


@oracle("units")
def units_best_excursion_of_a_trade(trial: Trial) -> None:
    """Opened in the book of mid 100.5, best mid 130.5, closed at 120: excursion 30 ticks x 2 lots."""
    market = ladder([100, 100, 130, 120, 120])
    got = Rig(trial.device, market, [0], 3).play([LONG_LARGE, HOLD, 3])
    trial.close("long", 30 * 2 * 12.5, got["closed_excursion_usd"][2], 1e-3)
    got = Rig(trial.device, market, [0], 3).play([SHORT_LARGE, HOLD, 4])
    trial.close("a short that never gained", 0.0, got["closed_excursion_usd"][2], 0.0)
