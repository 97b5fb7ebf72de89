"""Trails and stops: bounds, ratchet, breaches of several units, drawdown stop, heat cap, and who wins."""

from __future__ import annotations

import numpy as np

from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.env_rig import (
    DRAWDOWN_STOP,
    FLAT_LONG,
    FLAT_SHORT,
    HALF_LONG,
    HALF_SHORT,
    HEAT_CAP,
    HOLD,
    LONG_LARGE,
    LONG_SMALL,
    LOOSEN,
    SHORT_LARGE,
    SHORT_SMALL,
    TIGHTEN,
    TRAIL_STOP,
    Rig,
    ladder,
)

_BOUNDS = {"TRAIL_MIN": 2.0, "TRAIL_MAX": 20.0}


@oracle("trail")
def trail_tighten_and_loosen_within_bounds(trial: Trial) -> None:
    """x 0.9 not below 2, / 0.9 not above 20, active units only."""
    rig = Rig(trial.device, ladder([100] * 3), [0, 0, 0], 1, isv=_BOUNDS)
    rig.hold_position(3, [(100.0, 2), (100.0, 1)], trail=10.0, unit_trail=[10.0, 2.1, 0.0, 0.0])
    got = rig.play([[TIGHTEN, LOOSEN, HOLD]])
    trial.close("tighten", [9.0, 2.0, 0.0, 0.0], got["unit_trail"][0], 1e-6)
    trial.close("loosen", [10 / 0.9, 2.1 / 0.9, 0.0, 0.0], got["unit_trail"][1], 1e-5)
    trial.close("hold", [10.0, 2.1, 0.0, 0.0], got["unit_trail"][2], 1e-6)
    rig.hold_position(3, [(100.0, 2), (100.0, 1)], unit_trail=[19.0, 20.0, 0.0, 0.0])
    trial.close("loosen at MAX", [20.0, 20.0, 0, 0], rig.play([[LOOSEN] * 3])["unit_trail"][0], 0.0)
    trial.close("initial R does not move", 10.0, got["unit_initial_r"][:, :2], 0.0)


def _stop(trial: Trial, lots: int, mids_from: float, trail: list[float], draw: int = HOLD, **state: object) -> dict:
    """Position at entry 100, one lot a unit; book with mid ``mids_from``; one step."""
    rig = Rig(
        trial.device,
        ladder([mids_from - 0.5] * 3),
        [0],
        1,
        isv=_BOUNDS,
        scalars={"ratchet": int(state.pop("ratchet", 1))},
    )
    units = [(100.0, 1)] * abs(lots)
    padded = [*trail, *[0.0] * (4 - len(trail))]
    rig.hold_position(lots, units, unit_trail=padded, **state)
    return rig.play([draw])


@oracle("trail")
def trail_stop_on_and_beyond_the_stop(trial: Trial) -> None:
    for lots, at, beyond, flat in ((1, 95.0, 94.5, FLAT_LONG), (-1, 105.0, 105.5, FLAT_SHORT)):
        trial.equal(f"{lots:+d}: on the stop", HOLD, _stop(trial, lots, at, [5.0])["action"][0])
        got = _stop(trial, lots, beyond, [5.0])
        trial.equal(f"{lots:+d}: beyond", flat, got["action"][0])
        trial.equal(f"{lots:+d}: reason", TRAIL_STOP, got["override_reason"][0])
        trial.equal(f"{lots:+d}: flat", 0, got["position_lots"])


@oracle("trail")
def trail_stop_ratchet_follows_the_best_mid(trial: Trial) -> None:
    """Entry 100, best 110, trail 5: stop at 105 with the ratchet, else at 95; a best below entry is ignored."""
    trial.equal("ratchet", FLAT_LONG, _stop(trial, 1, 104.5, [5.0], unit_best_mid=110.0)["action"][0])
    trial.equal("no ratchet", HOLD, _stop(trial, 1, 104.5, [5.0], unit_best_mid=110.0, ratchet=0)["action"][0])
    trial.equal(
        "no ratchet, beyond", FLAT_LONG, _stop(trial, 1, 94.5, [5.0], unit_best_mid=110.0, ratchet=0)["action"][0]
    )
    trial.equal("short", FLAT_SHORT, _stop(trial, -1, 95.5, [5.0], unit_best_mid=90.0)["action"][0])
    trial.equal("best below entry", HOLD, _stop(trial, 1, 96.0, [5.0], unit_best_mid=99.0)["action"][0])


@oracle("trail")
def trail_breach_of_some_units_is_a_half_flat_of_their_lots(trial: Trial) -> None:
    for lots, mid, half in ((3, 97.0, HALF_LONG), (-3, 103.0, HALF_SHORT)):
        side = 1 if lots > 0 else -1
        got = _stop(trial, lots, mid, [5.0, 2.0, 5.0])
        trial.equal(f"{lots:+d}: executed", half, got["action"][0])
        trial.equal(f"{lots:+d}: closes the marked lot", lots - side, got["position_lots"])
        trial.close(f"{lots:+d}: the marked unit is gone", [5.0, 5.0, 0.0, 0.0], got["unit_trail"][0], 0.0)
        two = _stop(trial, lots, mid, [2.0, 5.0, 2.0])
        trial.equal(f"{lots:+d}: both marked units close", lots - 2 * side, two["position_lots"])
        trial.close(f"{lots:+d}: the unmarked stays", [5.0, 0.0, 0.0, 0.0], two["unit_trail"][0], 0.0)
        trial.equal(f"{lots:+d}: marks end with the fill", 0, two["unit_marked"])
        every = _stop(trial, lots, mid, [2.0, 2.0, 2.0])
        trial.equal(f"{lots:+d}: all marked is the full flat", 0, every["position_lots"])


@oracle("trail")
def trail_stop_wins_but_never_weakens_an_exit(trial: Trial) -> None:
    """One of three units is breached; what was drawn decides what remains."""
    cases = ((LONG_LARGE, HALF_LONG, 2), (TIGHTEN, HALF_LONG, 2), (FLAT_SHORT, HALF_LONG, 2), (FLAT_LONG, FLAT_LONG, 0),
             (HALF_LONG, HALF_LONG, 1), (SHORT_SMALL, SHORT_SMALL, -1))  # fmt: skip
    for drawn, executed, left in cases:
        got = _stop(trial, 3, 97.0, [2.0, 5.0, 5.0], drawn)
        trial.equal(f"drawn {drawn}: executed", executed, got["action"][0])
        trial.equal(f"drawn {drawn}: left", left, got["position_lots"])
    got = _stop(trial, 3, 90.0, [2.0, 5.0, 5.0], SHORT_LARGE)
    trial.equal("all breached, a reversal drawn: flat", 0, got["position_lots"])


@oracle("trail")
def trail_half_flat_of_the_policy_closes_at_least_the_marked_lots(trial: Trial) -> None:
    """Long 4 as units of 1 and 3 lots; half is 2. The unit of 3 is breached: 3 close; the other: it and one more."""
    for trails, lots in (([9.0, 2.0, 0.0, 0.0], [1, 0, 0, 0]), ([2.0, 9.0, 0.0, 0.0], [2, 0, 0, 0])):
        rig = Rig(trial.device, ladder([96.5] * 3), [0], 1, isv=_BOUNDS)
        rig.hold_position(4, [(100.0, 1), (100.0, 3)], unit_trail=trails)
        got = rig.play([HALF_LONG])
        trial.equal("lots left", [lots], got["unit_lots"])
        trial.equal("the stop changed nothing", 0, got["override_reason"])


@oracle("trail")
def trail_marks_wait_for_a_delayed_order(trial: Trial) -> None:
    rig = Rig(trial.device, ladder([97, 97, 120, 120, 120]), [0], 3, scalars={"latency": 3})
    rig.hold_position(3, [(100.0, 1)] * 3, unit_trail=[5.0, 2.0, 5.0, 0.0])
    got = rig.play([HOLD, HOLD, HOLD])
    trial.equal("fills", [0, 0, -1], got["fill_lots"][:, 0])
    trial.close("the marked unit went", [5.0, 5.0, 0.0, 0.0], got["unit_trail"][0], 0.0)


@oracle("trail")
def drawdown_stop_below_minus_hard_stop_r(trial: Trial) -> None:
    """Two units (1 lot R 5, 3 lots R 10): risk 35; unrealised -52 is R -1.486, -72 is -2.057."""
    for mid, executed in ((86.0, HOLD), (81.0, FLAT_LONG)):
        rig = Rig(trial.device, ladder([mid - 0.5] * 3), [0], 1, isv={"HARD_STOP_R": 2.0})
        rig.hold_position(4, [(96.0, 1), (100.0, 3)], unit_initial_r=[5.0, 10.0, 0.0, 0.0])
        got = rig.play([HOLD])
        trial.equal(f"mid {mid}: executed", executed, got["action"][0])
        reason = DRAWDOWN_STOP if executed == FLAT_LONG else 0
        trial.equal(f"mid {mid}: reason", reason, got["override_reason"][0])
        unrealised = (mid - 96.0) + 3 * (mid - 100.0)
        trial.close(f"mid {mid}: recorded for the reward", unrealised * 12.5, got["unrealised_usd"][0], 1e-3)
        trial.equal(f"mid {mid}: steps held", 1, got["held_steps"][0])


def _heat(trial: Trial, lots: int, trail: float, draw: int, cap: float = 2000.0, **state: object) -> dict:
    slots = {"HEAT_CAP_USD": cap, "TRAIL_MIN": 1.0, "TRAIL_MAX": 1000.0, "TRAIL_K_INIT": 2.0}
    rig = Rig(trial.device, ladder([99.5] * 3, volatility=np.sqrt(10.0)), [0], 1, isv=slots)
    rig.hold_position(lots, [(100.0, abs(lots))] if lots else [], trail, **state)
    return rig.play([draw])


@oracle("trail")
def heat_cap_flattens_and_refuses(trial: Trial) -> None:
    """Cap 2000 USD = 160 ticks x lots. A new unit's trail here is 2 x sqrt(10) x sqrt(10) = 20 ticks."""
    trial.equal("80 x 2 = 160 is allowed", HOLD, _heat(trial, 2, 80.0, HOLD)["action"][0])
    got = _heat(trial, 2, 81.0, HOLD)
    trial.equal("above: flat", FLAT_LONG, got["action"][0])
    trial.equal("above: reason", HEAT_CAP, got["override_reason"][0])
    trial.equal("short above", FLAT_SHORT, _heat(trial, -2, 81.0, LONG_SMALL)["action"][0])
    trial.equal("an add to 140 + 20 is allowed", LONG_SMALL, _heat(trial, 2, 70.0, LONG_SMALL)["action"][0])
    got = _heat(trial, 2, 70.0, LONG_LARGE)
    trial.equal("an add to 140 + 40 is a hold", HOLD, got["action"][0])
    trial.equal("position stays", 2, got["position_lots"])
    trial.equal("a reversal counts the new unit only", SHORT_LARGE, _heat(trial, 2, 70.0, SHORT_LARGE)["action"][0])
    trial.equal("open 2 x 20 at cap 500", LONG_LARGE, _heat(trial, 0, 0.0, LONG_LARGE, 500.0)["action"][0])
    trial.equal("open 2 x 20 at cap 499", HOLD, _heat(trial, 0, 0.0, LONG_LARGE, 499.0)["action"][0])
    trial.equal("flat row holds", HOLD, _heat(trial, 0, 0.0, HOLD, 1.0)["action"][0])


@oracle("trail")
def heat_cap_wins_over_a_trail_stop(trial: Trial) -> None:
    """One of two units is breached (HalfFlat), but the heat is above the cap: full flat, both reasons on record."""
    rig = Rig(trial.device, ladder([94.5] * 3), [0], 1, isv={"HEAT_CAP_USD": 2000.0})
    rig.hold_position(4, [(100.0, 2), (100.0, 2)], unit_trail=[4.0, 90.0, 0.0, 0.0])
    got = rig.play([HOLD])
    trial.equal("executed", FLAT_LONG, got["action"][0])
    trial.equal("reasons", TRAIL_STOP | HEAT_CAP, got["override_reason"][0])
    trial.equal("flat", 0, got["position_lots"])
