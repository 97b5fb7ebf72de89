"""The minimum hold. Exits of the policy only; safety passes."""

from __future__ import annotations

from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.env_rig import (
    FLAT_LONG,
    FLAT_SHORT,
    HALF_LONG,
    HALF_SHORT,
    HOLD,
    LONG_SMALL,
    MIN_HOLD,
    SHORT_SMALL,
    TRAIL_STOP,
    Rig,
    ladder,
)


@oracle("gates")
def gates_minimum_hold_blocks_early_exits(trial: Trial) -> None:
    for lots, full, half, add, reverse in (
        (2, FLAT_LONG, HALF_LONG, LONG_SMALL, SHORT_SMALL),
        (-2, FLAT_SHORT, HALF_SHORT, SHORT_SMALL, LONG_SMALL),
    ):
        rig = Rig(trial.device, ladder([100] * 3), [0] * 6, 1, isv={"MIN_HOLD_STEPS": 20.0})
        rig.hold_position(lots, [(100.0, 2)], trade_open_step=[19, 19, 19, 19, 20, 20])
        got = rig.play([[full, half, add, reverse, full, half]])
        trial.equal(f"{lots:+d}: executed", [HOLD, HOLD, add, reverse, full, half], got["action"][0])
        trial.equal(f"{lots:+d}: reason", [MIN_HOLD, MIN_HOLD, 0, 0, 0, 0], got["override_reason"][0])


@oracle("gates")
def gates_minimum_hold_since_the_last_close(trial: Trial) -> None:
    """The rule of preset seed: the age is that of the last close, however old the trade."""
    rig = Rig(trial.device, ladder([100] * 3), [0] * 3, 1, isv={"MIN_HOLD_STEPS": 20.0}, scalars={"since_close": 1})
    rig.hold_position(2, [(100.0, 2)], trade_open_step=[500, 1, 1], steps_since_close=[19, 20, 1_000_000_000])
    got = rig.play([[FLAT_LONG] * 3])
    trial.equal("executed", [HOLD, FLAT_LONG, FLAT_LONG], got["action"][0])


@oracle("gates")
def gates_minimum_hold_counts_from_the_open(trial: Trial) -> None:
    """Opened in step 0 with MIN_HOLD_STEPS 2: steps 1 and 2 are 0 and 1 steps old, step 3 may leave."""
    rig = Rig(trial.device, ladder([100] * 6), [0], 4, isv={"MIN_HOLD_STEPS": 2.0})
    got = rig.play([LONG_SMALL, FLAT_LONG, FLAT_LONG, FLAT_LONG])
    trial.equal("executed", [LONG_SMALL, HOLD, HOLD, FLAT_LONG], got["action"][:, 0])
    trial.equal("trade steps", 3, got["closed_trade_steps"][3])


@oracle("gates")
def gates_safety_passes_the_minimum_hold(trial: Trial) -> None:
    rig = Rig(trial.device, ladder([90] * 3), [0], 1, isv={"MIN_HOLD_STEPS": 20.0})
    rig.hold_position(2, [(100.0, 2)], trail=5.0)
    got = rig.play([FLAT_LONG])
    trial.equal("executed", FLAT_LONG, got["action"][0])
    trial.equal("both reasons on record", MIN_HOLD | TRAIL_STOP, got["override_reason"][0])
    trial.equal("not overridden in the end", 0, got["overridden"][0])
    trial.equal("flat", 0, got["position_lots"])
