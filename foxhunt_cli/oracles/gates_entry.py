"""The entry gates: confidence and forward return. Flat openings only; warm-up and bypass leave them open."""

from __future__ import annotations

import math

import numpy as np

from foxhunt_cli.device.rng import seed_states
from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.env_rig import (
    CONFIDENCE,
    FRD,
    HOLD,
    LONG_LARGE,
    LONG_SMALL,
    SHORT_LARGE,
    SHORT_SMALL,
    isv_vector,
)

_OPENINGS = (SHORT_LARGE, SHORT_SMALL, LONG_SMALL, LONG_LARGE)
_CENTRES = np.linspace(-3, 3, 21)


def _confidence(trial: Trial, actions: list[int], mean: float, sigma: float, lots: int = 0, **slots: float) -> dict:
    """One row an action at step 1 of 3; the drawn action alone has this distribution, the others are hopeless."""
    rows = len(actions)
    action = np.full((3, rows), LONG_LARGE, np.int8)
    action[1] = actions
    q_mean, q_sigma = np.full((rows, 11), -1e3, np.float32), np.full((rows, 11), 1e3, np.float32)
    q_mean[np.arange(rows), actions], q_sigma[np.arange(rows), actions] = mean, sigma
    arrays = {
        "q_mean": q_mean, "q_sigma": q_sigma, "position_lots": np.full(rows, lots, np.int32),
        "gate_open": np.zeros(rows, np.uint8), "isv": isv_vector(**slots), "action": action,
        "override_reason": np.zeros((3, rows), np.uint8),
    }  # fmt: skip
    return trial.run("rl_confidence_gate", arrays, t=1, B=rows)


@oracle("gates")
def confidence_gate_stops_doubtful_openings(trial: Trial) -> None:
    """Threshold 0.01, lambda 1: mean 0.5 is enough with sigma 0.4, not with 0.6."""
    low = _confidence(trial, list(range(11)), 0.5, 0.6)
    trial.equal("low", [HOLD if a in _OPENINGS else a for a in range(11)], low["action"][1])
    trial.equal("reason", [CONFIDENCE if a in _OPENINGS else 0 for a in range(11)], low["override_reason"][1])
    trial.equal("other steps untouched", LONG_LARGE, low["action"][[0, 2]])
    high = _confidence(trial, list(range(11)), 0.5, 0.4)
    trial.equal("high", np.arange(11), high["action"][1])
    trial.equal("high: no reason", 0, high["override_reason"])


@oracle("gates")
def confidence_gate_asks_only_flat_rows(trial: Trial) -> None:
    for lots in (-2, 1, 4):
        got = _confidence(trial, list(range(11)), -5.0, 0.6, lots)
        trial.equal(f"{lots:+d} lots", np.arange(11), got["action"][1])


@oracle("gates")
def confidence_gate_formula(trial: Trial) -> None:
    """(mu - lambda sigma) / norm against the threshold, at it and just below."""
    slots = {"CONF_GATE_LAMBDA": 0.5, "CONF_GATE_SIGMA_NORM": 4.0, "CONF_GATE_THRESHOLD": 0.125}
    for mean, executed in ((1.5, LONG_SMALL), (1.499, HOLD)):  # (1.5 - 0.5 x 2) / 4 = 0.125
        got = _confidence(trial, [LONG_SMALL], mean, 2.0, **slots)
        trial.equal(f"mean {mean}", executed, got["action"][1])
    trial.equal("lambda 0: sigma is ignored", LONG_SMALL,
                _confidence(trial, [LONG_SMALL], 0.02, 50.0, CONF_GATE_LAMBDA=0.0)["action"][1])  # fmt: skip
    trial.equal("a broken critic opens nothing", HOLD, _confidence(trial, [LONG_SMALL], math.nan, 0.1)["action"][1])


def _forecast(trial: Trial, action: int, prob: np.ndarray, lots: int = 0, gate_open: int = 0, **slots: float) -> dict:
    """Row 1 of 2 at step 1 of 2 with this medium forecast; all else leans the other way as hard as it can."""
    against = np.zeros(21)
    against[0 if action in (LONG_SMALL, LONG_LARGE) else 20] = 1.0
    frd_prob = np.tile(against, (2, 2, 3, 1)).astype(np.float32)
    frd_prob[1, 1, 1] = prob
    drawn = np.full((2, 2), HOLD, np.int8)
    drawn[1, 1] = action
    arrays = {
        "frd_prob": frd_prob, "position_lots": np.full(2, lots, np.int32),
        "gate_open": np.full(2, gate_open, np.uint8), "isv": isv_vector(**slots), "action": drawn,
        "override_reason": np.full((2, 2), 1, np.uint8),
    }  # fmt: skip
    return trial.run("rl_frd_gate", arrays, t=1, B=2)


def _peak(centre: float) -> np.ndarray:
    p = np.exp(-0.5 * ((_CENTRES - centre) / 0.4) ** 2)
    return p / p.sum()


@oracle("gates")
def frd_gate_wants_the_forecast_on_the_side_of_the_entry(trial: Trial) -> None:
    longs, shorts = (LONG_SMALL, LONG_LARGE), (SHORT_SMALL, SHORT_LARGE)
    forecasts = {"uniform": (np.full(21, 1 / 21), True, True), "peaked negative": (_peak(-1.5), False, True),
                 "peaked positive": (_peak(1.5), True, False), "peaked at 0": (_peak(0.0), False, False)}  # fmt: skip
    for label, (prob, long_passes, short_passes) in forecasts.items():
        for actions, passes in ((longs, long_passes), (shorts, short_passes)):
            for action in actions:
                got = _forecast(trial, action, prob)
                trial.equal(f"{label}, action {action}", action if passes else HOLD, got["action"][1, 1])
                trial.equal(f"{label}, reason", 1 if passes else 1 | FRD, got["override_reason"][1, 1])
    for lots in (1, -3):
        trial.equal(f"{lots:+d} lots", LONG_LARGE, _forecast(trial, LONG_LARGE, _peak(-1.5), lots)["action"][1, 1])
    for action in (2, 3, 4, 7, 8, 9, 10):
        trial.equal(f"action {action}", action, _forecast(trial, action, _peak(0.0))["action"][1, 1])


@oracle("gates")
def frd_gate_mass_beyond_half_a_sigma(trial: Trial) -> None:
    """Span 3: the centres beyond 0.5 sigma are 0.6 to 3.0. Span 20: 2 to 20. The threshold itself passes."""
    for span, first in ((3.0, 12), (20.0, 11)):
        prob = np.zeros(21)
        prob[first], prob[10] = 0.25, 0.75
        for threshold, action in ((0.25, LONG_SMALL), (0.26, HOLD)):
            slots = {"FRD_SIGMA_SPAN": span, "FRD_GATE_THR_LONG": threshold}
            trial.equal(
                f"span {span:g}, long, {threshold}", action, _forecast(trial, LONG_SMALL, prob, **slots)["action"][1, 1]
            )
            slots = {"FRD_SIGMA_SPAN": span, "FRD_GATE_THR_SHORT": threshold}
            got = _forecast(trial, SHORT_SMALL, prob[::-1], **slots)["action"][1, 1]
            trial.equal(f"span {span:g}, short, {threshold}", HOLD if action == HOLD else SHORT_SMALL, got)
    prob = np.zeros(21)
    prob[11], prob[0] = 0.9, 0.1
    trial.equal("span 3: 0.3 sigma is not beyond", HOLD, _forecast(trial, LONG_SMALL, prob)["action"][1, 1])
    trial.equal("no number, no entry", HOLD, _forecast(trial, LONG_SMALL, np.full(21, math.nan))["action"][1, 1])
    trial.equal("an open row passes", LONG_SMALL, _forecast(trial, LONG_SMALL, prob, gate_open=1)["action"][1, 1])


def _open(trial: Trial, rows: int, t: int = 0, evaluation: int = 0, **slots: float) -> tuple[np.ndarray, np.ndarray]:
    isv = isv_vector(**{"TRAIN_STEP": 5000.0, **slots})
    arrays = {"isv": isv, "rng_gate": seed_states(1, "gate", rows), "gate_open": np.full(rows, 9, np.uint8)}
    got = trial.run("rl_gate_open", arrays, evaluation=evaluation, t=t, B=rows)
    return got["gate_open"], got["rng_gate"]


@oracle("gates")
def entry_gates_are_open_in_warm_up_and_by_draw(trial: Trial) -> None:
    trial.equal("after the warm-up: closed", 0, _open(trial, 100)[0])
    trial.equal("step 999: open", 1, _open(trial, 100, 3, TRAIN_STEP=996.0)[0])
    trial.equal("step 1000: closed", 0, _open(trial, 100, 4, TRAIN_STEP=996.0)[0])
    share = _open(trial, 4000, GATE_BYPASS=0.3)[0]
    trial.close("bypass 0.3", 0.3, share.mean(), 0.03)
    trial.equal("bypass 1: all open", 1, _open(trial, 100, GATE_BYPASS=1.0)[0])
    trial.equal(
        "one draw, whatever the slots", _open(trial, 100)[1], _open(trial, 100, GATE_BYPASS=0.5, TRAIN_STEP=0.0)[1]
    )
    opened, state = _open(trial, 100, evaluation=1, GATE_BYPASS=1.0, TRAIN_STEP=0.0)
    trial.equal("evaluation: neither", 0, opened)
    trial.equal("evaluation: no draw", seed_states(1, "gate", 100), state)


@oracle("gates")
def confidence_gate_passes_an_open_row(trial: Trial) -> None:
    arrays = {
        "q_mean": np.full((2, 11), -1.0, np.float32), "q_sigma": np.ones((2, 11), np.float32),
        "position_lots": np.zeros(2, np.int32), "gate_open": np.array([1, 0], np.uint8), "isv": isv_vector(),
        "action": np.full((1, 2), LONG_SMALL, np.int8), "override_reason": np.zeros((1, 2), np.uint8),
    }  # fmt: skip
    got = trial.run("rl_confidence_gate", arrays, t=0, B=2)
    trial.equal("open, closed", [LONG_SMALL, HOLD], got["action"][0])
