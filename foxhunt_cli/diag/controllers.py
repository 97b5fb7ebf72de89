"""Each controller of a run: moving, fixed, waiting for its input, at a bound with or without a reason, or dead.

Owns what every controller reads and which side of its target pushes it where. The rules themselves are the kernels of
``cuda_src/control``; here they only explain what a log shows.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from foxhunt_cli.diag.anomalies import ENTROPY_MAX
from foxhunt_cli.diag.summary import Summary
from foxhunt_cli.isv.table import Slot, by_name, slots

PEGGED = 0.9  # share of the second half of a run at a bound


@dataclass(frozen=True)
class Drive:
    """What moves a controller: below ``low`` its input pushes it ``below`` (-1 down, +1 up), above ``high`` back.

    low, high: numbers, or the slots that hold them, times ``factor``.
    """

    source: str
    low: float | str
    high: float | str
    below: int
    factor: float = 1.0


DRIVES: dict[str, Drive] = {
    "GAMMA": Drive("MEAN_TRADE_DURATION_EMA", 10.0, 1000.0, -1),
    "TARGET_TAU": Drive("Q_DIVERGENCE_EMA", "DIV_TARGET", "DIV_TARGET", -1),
    "PPO_CLIP_EPS": Drive("KL_PI_EMA", "KL_TARGET", "KL_TARGET", +1),
    "ENTROPY_COEF": Drive("ENTROPY_OBSERVED_EMA", "ENTROPY_TARGET_FRAC", "ENTROPY_TARGET_FRAC", +1, ENTROPY_MAX),
    "ROLLOUT_STEPS": Drive("ADVANTAGE_VAR_RATIO_EMA", 5.0, 20.0, -1),
    "PER_ALPHA": Drive("TD_KURTOSIS_EMA", 3.0, 10.0, -1),
    "REWARD_SCALE": Drive("MEAN_ABS_PNL_EMA", 1.0, 1.0, +1),
    "Q_DISTILL_LAMBDA": Drive("Q_DISTILL_KL_EMA", "Q_DISTILL_KL_TARGET", "Q_DISTILL_KL_TARGET", -1),
    "Q_DISTILL_TEMPERATURE": Drive("ACTION_ENTROPY_EMA", "ENTROPY_TARGET_FRAC", "ENTROPY_TARGET_FRAC", +1, ENTROPY_MAX),
    # Bounds 1 and 20 over the margin of 1.5.
    "REWARD_CLAMP_WIN": Drive("POS_SCALED_MAX_EMA", 1 / 1.5, 20 / 1.5, -1),
    # Gates relax below half the target share of closing rows and tighten above twice it; lambda relaxes last.
    **dict.fromkeys(
        ("CONF_GATE_THRESHOLD", "FRD_GATE_THR_LONG", "FRD_GATE_THR_SHORT"), Drive("DONES_EMA", 0.01, 0.04, -1)
    ),
    "CONF_GATE_LAMBDA": Drive("DONES_EMA", "GATE_TARGET_DONES", "GATE_TARGET_DONES", -1, 0.5),
}
# What holds a controller that only grows where it is: nothing has asked for more.
ONLY_GROWS = {
    "C51_V_MAX": "only grows, and no reward or target has left it",
    "C51_V_MIN": "only grows, and no reward or target has left it",
}
# What never moves while another slot holds a value: (slot, value, why).
STANDS = {"IQN_LR": ("LR_FINAL_SHARE", 1.0, "the decline over the run is all that changes it, and lr_final_share is 1")}
# A schedule that the log shows only behind its end, or that ends where it begins.
ENDED = {"N_STEP": "what it is annealed to; it had come there before the first line"}
BY_DESIGN = {"PER_BETA": "annealed to 1 by the end of the run", "N_STEP": "where it was annealed to"}


@dataclass(frozen=True)
class State:
    """One controller. status: moves, fixed, waiting, pegged (with a reason), stuck (pegged without one) or dead."""

    slot: Slot
    status: str
    text: str


def states(summary: Summary, kernels: Collection[str] | None = None) -> Iterator[State]:
    """Every controller the log has. kernels: those of the run, None where unknown; one without its kernel is fixed."""
    for slot in slots():
        if slot.kind == "control" and summary.get(slot.field) is not None:
            yield _state(slot, summary, kernels)


def _state(slot: Slot, summary: Summary, kernels: Collection[str] | None) -> State:
    series = summary.series[slot.field]
    off = not slot.owner or (kernels is not None and slot.owner not in kernels)
    if off or (kernels is None and series.constant):
        return State(slot, "fixed", f"{series.last:g}")
    bound, share = _at_bound(slot, summary)
    if share > PEGGED:
        return _pegged(slot, summary, bound, share)
    if not series.constant:
        return State(slot, "moves", f"{series.first:g} -> {series.last:g}")
    if _waits(slot, summary):
        return State(slot, "waiting", f"{series.last:g}: its input has seen nothing yet")
    if (still := _stands(slot, summary)) is not None:
        return State(slot, "fixed", f"{series.last:g}: {still}")
    if slot.name in ENDED:
        return State(slot, "fixed", f"{series.last:g}: {ENDED[slot.name]}")
    if slot.name in ONLY_GROWS:
        return State(slot, "waiting", f"{series.last:g}: {ONLY_GROWS[slot.name]}")
    return State(slot, "dead", f"{series.last:g} throughout, although its input is live and it is at no bound")


def _stands(slot: Slot, summary: Summary) -> str | None:
    """Why another slot's value keeps the controller where it is; None where it does not."""
    if slot.name not in STANDS:
        return None
    other, value, why = STANDS[slot.name]
    series = summary.get(by_name()[other].field)
    return why if series is not None and series.constant and series.last == value else None


def _at_bound(slot: Slot, summary: Summary) -> tuple[int, float]:
    """(-1 or +1, share of the second half there) of the bound where the controller sat longest."""
    means = [mean for mean in summary.series[slot.field].stretches.means() if math.isfinite(mean)]
    half = means[len(means) // 2 :] or [math.nan]
    shares = {
        side: sum(math.isclose(mean, edge, rel_tol=1e-6) for mean in half) / len(half)
        for side, edge in ((-1, slot.lower), (+1, slot.upper))
    }
    side = max(shares, key=lambda key: shares[key])
    return side, shares[side]


def _pegged(slot: Slot, summary: Summary, bound: int, share: float) -> State:
    place = f"at its {'upper' if bound > 0 else 'lower'} bound {slot.upper if bound > 0 else slot.lower:g}"
    place += f" for {share:.0%} of the second half"
    reason = BY_DESIGN.get(slot.name) or _reason(slot, summary, bound)
    return (
        State(slot, "pegged", f"{place}: {reason}") if reason else State(slot, "stuck", f"{place}, for no known reason")
    )


def _reason(slot: Slot, summary: Summary, bound: int) -> str:
    """Why the input holds the controller at ``bound``; "" where it does not."""
    drive = DRIVES.get(slot.name)
    source = summary.get(by_name()[drive.source].field) if drive else None
    if drive is None or source is None:
        return ""
    value = source.stretches.last_quarter
    low, high = (_target(edge, drive, summary) for edge in (drive.low, drive.high))
    if bound == drive.below and value <= low:
        return f"{drive.source.lower()} {value:.3g} stays below {low:.3g}"
    if bound == -drive.below and value >= high:
        return f"{drive.source.lower()} {value:.3g} stays above {high:.3g}"
    return ""


def _target(edge: float | str, drive: Drive, summary: Summary) -> float:
    if not isinstance(edge, str):
        return edge * drive.factor
    slot = by_name()[edge]
    series = summary.get(slot.field)
    return (series.last if series else slot.seed) * drive.factor


def _waits(slot: Slot, summary: Summary) -> bool:
    drive = DRIVES.get(slot.name)
    if drive is None:
        return False
    source = summary.get(by_name()[drive.source].field)
    return source is None or source.high == source.low == 0.0
