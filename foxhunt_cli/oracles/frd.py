"""Oracles of the forward-return and direction heads: closed forms, masks and central differences."""

from __future__ import annotations

import numpy as np

from foxhunt_cli.nets import direction, frd
from foxhunt_cli.nets.target import BUFFERS as SHARED
from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.head_rig import HeadRig, check_gradient, isv_values

_T, _B, _HORIZONS, _BUCKETS, _WIDTH = 3, 4, 3, 21, 64
_ROWS = _T * _B
_DIMS = {"T": _T, "B": _B, "P": 9, "N_TARGET_CHUNKS": 1}
ROUNDING = 2e-6  # a sum of 21 exponentials in float32
_TF32 = 2e-3  # products of 128 terms whose operands keep 10 bits
LAMBDAS = {"frd_lambda": 0.4, "loss_lambda_aux": 0.7, "loss_lambda_bce": 1.3}


def _labels(low: int, high: int, seed: int = 3) -> np.ndarray:
    """Random labels; a fifth is missing, and one row has none at all."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(low, high, (_T, _B, _HORIZONS)).astype(np.int8)
    labels[rng.random(labels.shape) < 0.2] = -1
    labels[1, 2] = -1
    labels[0, 0] = high - 1
    return labels


def _rig(trial: Trial, head, label: str, labels: np.ndarray, **changed) -> HeadRig:
    h = np.random.default_rng(5).standard_normal((_T + 1, _B, 128))
    inputs = {
        "h": h,
        "isv": isv_values(**{**LAMBDAS, **changed}),
        "ones": np.ones((_T + 1) * _B),
        "grad_h": np.zeros((_T + 1, _B, 128)),
        label: labels,
    }
    return HeadRig(trial, head.PARAMETERS, (*head.BUFFERS, *SHARED), _DIMS, inputs)


def _frd(trial: Trial, labels: np.ndarray | None = None, **changed) -> HeadRig:
    return _rig(trial, frd, "frd_target", _labels(0, _BUCKETS) if labels is None else labels, **changed)


def _mean_loss(rig: HeadRig, head: str) -> float:
    loss, weight = rig.get(f"row_loss_{head}"), rig.get(f"row_weight_{head}")
    return float((loss * weight).sum() / weight.sum())


@oracle("frd")
def frd_forward_zero_input_emits_zero_logits(trial: Trial) -> None:
    """h = 0 and biases 0 give logits 0 and the uniform distribution."""
    rig = _frd(trial)
    rig.set("h", np.zeros((_T + 1, _B, 128)))
    for bias in ("b_frd1", "b_frd2"):
        rig.set(bias, np.zeros_like(rig.get(bias)))
    rig.run(frd.forward())
    trial.equal("logits", 0.0, rig.get("frd_logits"))
    trial.close("probabilities", 1.0 / _BUCKETS, rig.get("frd_prob"), 1e-7)


@oracle("frd")
def frd_softmax_sums_to_one(trial: Trial) -> None:
    """Each horizon is a distribution, also where logits are huge."""
    rig = _frd(trial)
    rig.set("h", rig.get("h") * 300.0)
    rig.run(frd.forward())
    prob = rig.get("frd_prob")
    trial.close("sum over buckets", 1.0, prob.sum(-1), ROUNDING)
    trial.true("no negative probability", (prob >= 0.0).all())
    trial.true("logits are large", np.abs(rig.get("frd_logits")).max() > 100.0, np.abs(rig.get("frd_logits")).max())


@oracle("frd")
def frd_forward_matches_numpy(trial: Trial) -> None:
    """Both layers against numpy in float64."""
    rig = _frd(trial)
    rig.run(frd.forward())
    h = rig.get("h")[:_T].reshape(_ROWS, 128)
    hidden = np.maximum(h @ rig.get("w_frd1") + rig.get("b_frd1"), 0.0)
    logits = hidden @ rig.get("w_frd2") + rig.get("b_frd2")
    trial.close("hidden", hidden, rig.get("frd_hidden").reshape(_ROWS, _WIDTH), trial.bound(1e-5, _TF32))
    trial.close("logits", logits.reshape(_T, _B, _HORIZONS, _BUCKETS), rig.get("frd_logits"), trial.bound(1e-5, _TF32))


@oracle("frd")
def frd_relu_mask_consistency(trial: Trial) -> None:
    """A hidden unit is zero exactly where its input is not positive, and there its gradient is zero."""
    rig = _frd(trial)
    rig.run([*frd.forward(), *frd.loss_and_backward()])
    h = rig.get("h")[:_T].reshape(_ROWS, 128)
    before = h @ rig.get("w_frd1") + rig.get("b_frd1")
    hidden = rig.get("frd_hidden").reshape(_ROWS, _WIDTH)
    trial.equal("zero where the input is not positive", before <= 0.0, hidden == 0.0)
    trial.true("some units are off and some on", 0 < (hidden == 0.0).sum() < hidden.size)
    trial.equal(
        "gradient behind a unit that is off", 0.0, rig.get("grad_frd_hidden").reshape(_ROWS, _WIDTH)[hidden == 0.0]
    )


@oracle("frd")
def frd_relu_mask_zeroes_gradient(trial: Trial) -> None:
    """With every unit off, the first layer and the encoder get no gradient; b2 still does."""
    rig = _frd(trial)
    rig.set("b_frd1", np.full(_WIDTH, -1e3))
    rig.run([*frd.forward(), *frd.loss_and_backward()])
    for name in ("grad_w_frd1", "grad_b_frd1", "grad_w_frd2", "grad_h"):
        trial.equal(name, 0.0, rig.get(name))
    trial.true("b2 learns", np.abs(rig.get("grad_b_frd2")).max() > 0.0)


@oracle("frd")
def frd_uniform_logits_cost_ln_21(trial: Trial) -> None:
    """Zero weights: loss ln 21 = 3.0445 whatever the labels, in the rows and in the slot."""
    rig = _frd(trial)
    for name in ("w_frd1", "b_frd1", "w_frd2", "b_frd2"):
        rig.set(name, np.zeros_like(rig.get(name)))
    rig.run([*frd.forward(), *frd.loss_and_backward()])
    labelled = rig.get("row_weight_frd") > 0
    trial.close("rows", 3.0445224, rig.get("row_loss_frd")[labelled], ROUNDING)
    trial.close("LOSS_FRD", 3.0445224, rig.slot("LOSS_FRD"), ROUNDING)


@oracle("frd")
def frd_sentinel_label_zeroes_the_row(trial: Trial) -> None:
    """A row without labels has weight, loss and gradient zero, and no part in the mean; no label at all, no signal."""
    rig = _frd(trial)
    rig.run([*frd.forward(), *frd.loss_and_backward()])
    trial.equal("gradient", 0.0, rig.get("grad_frd_logits")[1, 2])
    trial.equal("loss and weight", 0.0, [rig.get("row_loss_frd")[1, 2], rig.get("row_weight_frd")[1, 2]])
    trial.equal("grad_h", 0.0, rig.get("grad_h")[1, 2])
    labels = _labels(0, _BUCKETS)
    missing = labels < 0
    trial.equal("every missing horizon", 0.0, rig.get("grad_frd_logits")[missing])
    rig = _frd(trial, np.full((_T, _B, _HORIZONS), -1, np.int8))
    rig.set("isv", isv_values(loss_frd=7.0))
    rig.run([*frd.forward(), *frd.loss_and_backward()])
    trial.equal("slot left alone", 7.0, rig.slot("LOSS_FRD"))
    trial.equal("no gradient", 0.0, rig.get("grad_w_frd1"))


@oracle("frd")
def frd_gradients_match_central_differences(trial: Trial) -> None:
    """W2, W1, biases; the encoder's gradient carries FRD_LAMBDA. Half the units are on, half off, by a margin."""
    rig = _frd(trial)
    rig.set("b_frd1", np.where(np.arange(_WIDTH) % 2, 6.0, -6.0))
    aux, lam = LAMBDAS["loss_lambda_aux"], LAMBDAS["frd_lambda"]
    pairs = {"w_frd2": ("grad_w_frd2", aux), "b_frd2": ("grad_b_frd2", aux)}
    steps = [*frd.forward(), *frd.loss_and_backward()]
    check_gradient(trial, rig, steps, lambda: _mean_loss(rig, "frd"), pairs, float_tolerance=5e-3)
    pairs = {"w_frd1": ("grad_w_frd1", aux), "b_frd1": ("grad_b_frd1", aux), "h": ("grad_h", aux * lam)}
    check_gradient(trial, rig, steps, lambda: _mean_loss(rig, "frd"), pairs, float_tolerance=1e-2)


@oracle("frd")
def frd_logit_gradient_matches_central_differences(trial: Trial) -> None:
    """Softmax and cross-entropy alone, at every logit of a labelled row."""
    rig = _frd(trial)
    kernels = ("rl_frd_softmax", "rl_label_count", "rl_frd_softmax_ce_grad")
    steps = [step for step in (*frd.forward(), *frd.loss_and_backward()) if getattr(step, "kernel", "") in kernels]
    rig.run([*frd.forward(), *frd.loss_and_backward()])
    analytic, logits = rig.get("grad_frd_logits")[0, 0], rig.get("frd_logits")
    rig.set("b_frd2", np.zeros(_HORIZONS * _BUCKETS))  # the softmax adds it to the logits
    step = 1e-5 if rig.double else 1e-2
    numeric = np.zeros_like(analytic)
    for index in np.ndindex(*analytic.shape):
        side = []
        for sign in (1.0, -1.0):
            moved = logits.copy()
            moved[(0, 0, *index)] += sign * step
            rig.set("frd_logits", moved)
            rig.run(steps)
            side.append(_mean_loss(rig, "frd"))
        numeric[index] = LAMBDAS["loss_lambda_aux"] * (side[0] - side[1]) / (2.0 * step)
    scale = np.abs(analytic).max()
    trial.close("relative", numeric / scale, analytic / scale, 1e-5 if rig.double else 5e-3)


@oracle("frd")
def frd_grad_b2_is_sum_of_grad_logits(trial: Trial) -> None:
    """db2 = the sum of the logits' gradients; with one labelled row, exactly that row's gradient."""
    labels = np.full((_T, _B, _HORIZONS), -1, np.int8)
    labels[2, 1] = (0, 10, 20)
    rig = _frd(trial, labels)
    rig.run([*frd.forward(), *frd.loss_and_backward()])
    want = rig.get("grad_frd_logits")[2, 1].reshape(-1)
    trial.close("db2", want, rig.get("grad_b_frd2").reshape(-1), trial.bound(0.0, 2.0**-11 * np.abs(want).max()))


@oracle("frd")
def frd_bad_number_is_counted(trial: Trial) -> None:
    """A NaN encoding reaches the loss and the counter, and is not hidden."""
    rig = _frd(trial)
    h = rig.get("h")
    h[0, 0, 0] = np.nan
    rig.set("h", h)
    rig.run([*frd.forward(), *frd.loss_and_backward()])
    trial.equal("rows that are not finite", 1, rig.get("nonfinite_parts")[0])
    trial.true("the slot shows it", np.isnan(rig.slot("LOSS_FRD")))


@oracle("frd")
def direction_loss_matches_closed_form(trial: Trial) -> None:
    """Zero weights cost ln 2; random ones match numpy; a missing label has no gradient."""
    labels = _labels(0, 2)
    rig = _rig(trial, direction, "direction_target", labels)
    rig.set("w_direction", np.zeros((128, _HORIZONS)))
    rig.set("b_direction", np.zeros(_HORIZONS))
    steps = [*direction.forward(), *direction.loss_and_backward()]
    rig.run(steps)
    trial.close("uninformed: ln 2", np.log(2.0), rig.slot("LOSS_BCE"), 1e-6)
    trial.equal("missing label", 0.0, rig.get("grad_direction_logits")[labels < 0])
    trial.close(
        "gradient (1/2 - y) / labels x lambda",
        np.where(labels < 0, 0.0, 0.5 - labels) * LAMBDAS["loss_lambda_bce"] / (labels >= 0).sum(),
        rig.get("grad_direction_logits"),
        1e-7,
    )


@oracle("frd")
def direction_gradients_match_central_differences(trial: Trial) -> None:
    """W, b and the encoding."""
    rig = _rig(trial, direction, "direction_target", _labels(0, 2))
    factor = LAMBDAS["loss_lambda_bce"]
    pairs = {
        "w_direction": ("grad_w_direction", factor),
        "b_direction": ("grad_b_direction", factor),
        "h": ("grad_h", factor),
    }
    steps = [*direction.forward(), *direction.loss_and_backward()]
    check_gradient(trial, rig, steps, lambda: _mean_loss(rig, "direction"), pairs, float_tolerance=5e-3)
