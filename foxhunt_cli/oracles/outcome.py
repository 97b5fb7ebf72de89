"""Oracles of the outcome head."""

from __future__ import annotations

import numpy as np

from foxhunt_cli.nets import outcome
from foxhunt_cli.nets.target import BUFFERS as SHARED
from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.head_rig import HeadRig, check_gradient, isv_values

_T, _B, _P, _TICK = 4, 5, 9, 12.5
AUX, LAMBDA = 0.6, 0.1
_TF32 = 2e-3  # products of 128 terms whose operands keep 10 bits
_STEPS = [*outcome.forward(), *outcome.loss_and_backward()]


def _rig(trial: Trial, closes: bool = True, classes: int = _P) -> HeadRig:
    rng = np.random.default_rng(12)
    closed = (rng.random((_T, _B)) < 0.5) & closes
    inputs = {
        "isv": isv_values(loss_lambda_aux=AUX, outcome_lambda=LAMBDA, loss_outcome=5.0),
        "h": rng.standard_normal((_T + 1, _B, 128)),
        "grad_h": np.zeros((_T + 1, _B, 128)),
        "ones": np.ones((_T + 1) * _B),
        "position_class": rng.integers(0, _P, (_T + 1, _B)).astype(np.int32),
        "closed": closed.astype(np.uint8),
        "closed_trade_pnl_usd": np.where(closed, 40.0 * rng.standard_normal((_T, _B)), 0.0),
        "closed_trade_lots": np.where(closed, rng.integers(1, 5, (_T, _B)), 0).astype(np.int32),
    }
    dims = {"T": _T, "B": _B, "P": classes, "N_TARGET_CHUNKS": 1, "tick_value_usd": _TICK}
    return HeadRig(trial, outcome.PARAMETERS, (*outcome.BUFFERS, *SHARED), dims, inputs)


@oracle("outcome")
def outcome_labels_split_at_one_tick(trial: Trial) -> None:
    """Scratch below one tick of the largest position, win and loss beyond; no close, no label; NaN, no label."""
    pnl = [12.4, 12.5, -12.4, -12.5, 24.9, 25.0, -60.0, 0.0, 100.0, np.nan]
    lots = [1, 1, 1, 1, 2, 2, 4, 1, 4, 1]
    closed = [1, 1, 1, 1, 1, 1, 1, 1, 0, 1]
    arrays = {
        "closed": np.array(closed, np.uint8),
        "closed_trade_pnl_usd": np.array(pnl, np.float32),
        "closed_trade_lots": np.array(lots, np.int32),
        "outcome_target": np.zeros(10, np.int8),
    }
    got = trial.run("rl_outcome_labels", arrays, rows=10, tick_value_usd=_TICK)["outcome_target"]
    trial.equal("labels", [1, 2, 1, 0, 1, 2, 0, 1, -1, -1], got)


@oracle("outcome")
def outcome_loss_matches_numpy(trial: Trial) -> None:
    """Cross-entropy at the class before the close, accuracy, mean over closes; other rows and classes get nothing."""
    for classes in (_P, 1):
        rig = _rig(trial, classes=classes)
        rig.run(_STEPS)
        logits = rig.get("h")[:_T] @ rig.get("w_outcome") + rig.get("b_outcome")
        index = rig.get("position_class")[:_T] if classes > 1 else np.zeros((_T, _B), int)
        own = (*np.indices((_T, _B)), index)
        logits = logits.reshape(_T, _B, classes, 3)[own]
        prob = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        label, closes = rig.get("outcome_target").astype(int), rig.get("closed") > 0
        chosen = np.take_along_axis(prob, np.maximum(label, 0)[..., None], -1)[..., 0]
        trial.close(
            "rows", np.where(closes, -np.log(chosen), 0.0), rig.get("row_loss_outcome"), trial.bound(1e-5, _TF32)
        )
        trial.close("LOSS_OUTCOME", -np.log(chosen)[closes].mean(), rig.slot("LOSS_OUTCOME"), trial.bound(1e-5, _TF32))
        trial.close("OUTCOME_ACC", (prob.argmax(-1) == label)[closes].mean(), rig.slot("OUTCOME_ACC"), 1e-6)
        grad = rig.get("grad_outcome_logits").reshape(_T, _B, classes, 3)
        onehot = np.eye(3)[np.maximum(label, 0)]
        want = np.where(closes[..., None], LAMBDA * AUX * (prob - onehot) / closes.sum(), 0.0)
        bound = trial.bound(1e-7, _TF32 * LAMBDA * AUX / closes.sum())
        trial.close("gradient at the class (x OUTCOME_LAMBDA by now)", want, grad[own], bound)
        grad[own] = 0.0
        trial.equal("gradient elsewhere", 0.0, grad)


@oracle("outcome")
def outcome_without_a_close_is_no_signal(trial: Trial) -> None:
    """No close: slots left alone, no gradient."""
    rig = _rig(trial, closes=False)
    rig.run(_STEPS)
    trial.equal("LOSS_OUTCOME", 5.0, rig.slot("LOSS_OUTCOME"))
    trial.equal("OUTCOME_ACC", 0.0, rig.slot("OUTCOME_ACC"))
    trial.equal("gradient", 0.0, rig.get("grad_w_outcome"))
    trial.equal("grad_h", 0.0, rig.get("grad_h"))


@oracle("outcome")
def outcome_gradients_match_central_differences(trial: Trial) -> None:
    """W, b, and the encoding's x OUTCOME_LAMBDA."""
    rig = _rig(trial)

    def loss() -> float:
        return float(rig.get("row_loss_outcome").sum() / rig.get("row_weight_outcome").sum())

    pairs = {"w_outcome": ("grad_w_outcome", AUX), "b_outcome": ("grad_b_outcome", AUX), "h": ("grad_h", AUX * LAMBDA)}
    check_gradient(trial, rig, _STEPS, loss, pairs, float_tolerance=5e-3)
