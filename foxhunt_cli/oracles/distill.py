"""Oracles of distillation, the reference policy and agreement."""

from __future__ import annotations

import numpy as np

from foxhunt_cli.nets import distill
from foxhunt_cli.nets.target import BUFFERS as SHARED
from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.formulas import softmax
from foxhunt_cli.oracles.head_rig import HeadRig, check_gradient, isv_values

_T, _B, _P, _A = 3, 4, 5, 11
_ROWS, _WIDTH = _T * _B, _P * _A
_HOLD = 2
LAMBDA, TEMPERATURE, BETA = 0.7, 0.2, 0.3
_SLOTS = {"q_distill_lambda": LAMBDA, "q_distill_temperature": TEMPERATURE, "kl_ref_beta": BETA, "kl_ref_hold": 0.5}


def _rig(trial: Trial, classes: int = _P, **changed) -> HeadRig:
    rng = np.random.default_rng(8)
    width = classes * _A
    inputs = {
        "isv": isv_values(**{**_SLOTS, **changed}),
        "pi_all": rng.standard_normal((_T + 1, _B, width)),
        "b_pi": rng.standard_normal(width),
        "w_pi_ctx": rng.standard_normal((3, width)),
        "context": rng.standard_normal((_T + 1, _B, 3)),
        "position_class": rng.integers(0, _P, (_T + 1, _B)).astype(np.int32),
        "grad_pi_all": np.zeros((_T, _B, width)),
        "pi_soft": np.zeros((_T, _B, _A)),
        "next_class": _next_class(classes),
    }
    buffers = (*distill.BUFFERS, *SHARED)
    rig = HeadRig(trial, (), buffers, {"T": _T, "B": _B, "P": classes, "N_TARGET_CHUNKS": 1}, inputs)
    rig.set("ensemble_q", 0.3 * rng.standard_normal((_T, _B, width)))
    return rig


def _next_class(classes: int) -> np.ndarray:
    """Actions 2, 7 and 8 stay, as trails do; of the others some lead to the same position."""
    to = np.random.default_rng(3).integers(0, classes, (classes, _A)).astype(np.int8)
    to[:, [_HOLD, 7, 8]] = np.arange(classes, dtype=np.int8)[:, None]
    return to


def _policy(rig: HeadRig, classes: int = _P) -> np.ndarray:
    logits = rig.get("pi_all")[:_T] + rig.get("b_pi") + rig.get("context")[:_T] @ rig.get("w_pi_ctx")
    return softmax(logits.reshape(_T, _B, classes, _A))


def _target(rig: HeadRig, temperature: float, classes: int = _P) -> np.ndarray:
    return softmax(rig.get("ensemble_q").reshape(_T, _B, classes, _A) / temperature)


def _own(rig: HeadRig) -> tuple[np.ndarray, ...]:
    return (*np.indices((_T, _B)), rig.get("position_class")[:_T])


def _kl(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    return (p * (np.log(p) - np.log(q))).sum(-1)


@oracle("distill")
def distill_all_classes_matches_closed_form(trial: Trial) -> None:
    """Every class: lambda (pi - target) / (rows classes), temperature scaled by the mean action gap; KL published."""
    rig = _rig(trial, kl_ref_beta=0.0)
    before = np.random.default_rng(1).standard_normal((_T, _B, _WIDTH))
    rig.set("grad_pi_all", before)
    rig.run(distill.gradients(all_classes=True))
    q = rig.get("ensemble_q").reshape(_T, _B, _P, _A)
    gap = (q.max(-1) - q.mean(-1)).mean()
    trial.close("action gap", gap, rig.get("action_gap"), 1e-6)
    pi, target = _policy(rig), _target(rig, TEMPERATURE * gap)
    want = before + (LAMBDA * (pi - target) / (_ROWS * _P)).reshape(before.shape)
    trial.close("gradient, added to what was there", want, rig.get("grad_pi_all"), 1e-6)
    kl = _kl(np.maximum(target, 1e-300), pi)
    trial.close("KL of a row", kl.mean(-1), rig.get("row_distill"), 1e-5)
    trial.close("LOSS_DISTILL", kl.mean(), rig.slot("LOSS_DISTILL"), 1e-5)
    trial.close("Q_DISTILL_KL_EMA, first observation", kl.mean(), rig.slot("Q_DISTILL_KL_EMA"), 1e-5)


@oracle("distill")
def distill_by_position_leaves_odds_alone(trial: Trial) -> None:
    """Actions that lead to the same position get what the critic wants of them together, split as the policy has it."""
    rig = _rig(trial, kl_ref_beta=0.0)
    rig.run(distill.gradients(all_classes=True, by_position=True))
    gap = float(rig.get("action_gap")[0])
    pi, wanted = _policy(rig), _target(rig, TEMPERATURE * gap)
    same = rig.get("next_class")[:, :, None] == rig.get("next_class")[:, None, :]
    mass, held = (np.einsum("tbpa,pai->tbpi", p, same.astype(float)) for p in (wanted, pi))
    target = mass * pi / held
    grad = rig.get("grad_pi_all").reshape(_T, _B, _P, _A)
    trial.close("gradient", LAMBDA * (pi - target) / (_ROWS * _P), grad, 1e-6)
    trial.close("KL of a row", _kl(target, pi).mean(-1), rig.get("row_distill"), 1e-5)
    pull = grad / pi  # of a logit, in units of its probability: equal within a position, so odds stay
    trial.close("tighten and hold", pull[..., _HOLD], pull[..., 7], 1e-6)
    trial.close("loosen and hold", pull[..., _HOLD], pull[..., 8], 1e-6)
    trial.true("another position is pulled", np.abs(pull - pull[..., [_HOLD]]).max() > 1e-3)


@oracle("distill")
def distill_own_class_matches_closed_form(trial: Trial) -> None:
    """The row's own class with the slot's temperature; other classes untouched; one block serves every position."""
    for classes in (_P, 1):
        rig = _rig(trial, classes, kl_ref_beta=0.0)
        rig.run(distill.gradients(all_classes=False))
        own = _own(rig) if classes > 1 else (*np.indices((_T, _B)), 0)
        pi, target = _policy(rig, classes)[own], _target(rig, TEMPERATURE, classes)[own]
        grad = rig.get("grad_pi_all").reshape(_T, _B, classes, _A)
        trial.close(f"gradient, {classes} blocks", LAMBDA * (pi - target) / _ROWS, grad[own], 1e-6)
        trial.close("KL", _kl(target, pi), rig.get("row_distill"), 1e-5)
        grad[own] = 0.0
        trial.equal("other classes", 0.0, grad)


@oracle("distill")
def distill_gradients_match_central_differences(trial: Trial) -> None:
    """Both forms, and the reference policy, as derivatives of their KL with respect to the logits."""
    for all_classes in (True, False):
        rig = _rig(trial, kl_ref_beta=0.0, q_distill_temperature=1.0)
        steps = distill.gradients(all_classes=all_classes)
        pairs = {"pi_all": ("grad_pi_all", LAMBDA)}
        check_gradient(
            trial, rig, steps, lambda rig=rig: float(rig.get("row_distill").mean()), pairs, float_tolerance=5e-3
        )
    rig = _rig(trial, q_distill_lambda=0.0)
    pairs = {"pi_all": ("grad_pi_all", BETA)}
    steps = distill.gradients(all_classes=True)
    check_gradient(trial, rig, steps, lambda: float(rig.get("row_kl_reference").mean()), pairs, float_tolerance=5e-3)


@oracle("distill")
def kl_reference_matches_closed_form(trial: Trial) -> None:
    """beta (pi - reference) / rows at the row's class: Hold 0.5, the other ten 0.05; zero at the reference itself."""
    rig = _rig(trial, q_distill_lambda=0.0)
    rig.run(distill.gradients(all_classes=True))
    own, reference = _own(rig), np.full(_A, 0.05)
    reference[_HOLD] = 0.5
    pi = _policy(rig)[own]
    grad = rig.get("grad_pi_all").reshape(_T, _B, _P, _A)
    trial.close("gradient", BETA * (pi - reference) / _ROWS, grad[own], 1e-7)
    trial.close("KL", _kl(reference, pi), rig.get("row_kl_reference"), 1e-5)
    grad[own] = 0.0
    trial.close("other classes", 0.0, grad, 1e-12)
    for name in ("b_pi", "w_pi_ctx", "grad_pi_all"):
        rig.set(name, np.zeros_like(rig.get(name)))
    rig.set("pi_all", np.broadcast_to(np.tile(np.log(reference), _P), (_T + 1, _B, _WIDTH)))
    rig.run(distill.gradients(all_classes=True))
    trial.close("at the reference", 0.0, rig.get("grad_pi_all"), 1e-8)
    trial.close("KL there", 0.0, rig.get("row_kl_reference"), 1e-6)


@oracle("distill")
def distill_survives_flat_and_extreme_values(trial: Trial) -> None:
    """Equal values: uniform target, no division by a zero gap. Far apart: one-hot target, finite KL. NaN is counted."""
    rig = _rig(trial, kl_ref_beta=0.0)
    rig.set("ensemble_q", np.full((_T, _B, _WIDTH), 0.4))
    rig.run(distill.gradients(all_classes=True))
    want = LAMBDA * (_policy(rig) - 1.0 / _A) / (_ROWS * _P)
    trial.close("flat values: uniform target", want.reshape(_T, _B, _WIDTH), rig.get("grad_pi_all"), 1e-6)
    rig = _rig(trial, kl_ref_beta=0.0)
    rig.set("ensemble_q", 1e4 * rig.get("ensemble_q"))
    rig.run(distill.gradients(all_classes=False))
    trial.true("finite gradient", np.isfinite(rig.get("grad_pi_all")).all())
    trial.true("finite KL", np.isfinite(rig.get("row_distill")).all())
    q = rig.get("ensemble_q")
    q[0, 1, :] = np.nan
    rig.set("ensemble_q", q)
    rig.run(distill.gradients(all_classes=False))
    trial.equal("one row counted", 1, rig.get("nonfinite_parts")[5])
    trial.true("loss shows it", np.isnan(rig.slot("LOSS_DISTILL")))


@oracle("distill")
def critic_chooses_a_position_not_an_action(trial: Trial) -> None:
    """By position: greatest mean value of the actions that lead there, Hold for all that stay; else the greatest."""
    q, to = np.zeros((1, 3, 2, _A), np.float32), np.tile(np.arange(_A, dtype=np.int8), (2, 1))
    to[1, [_HOLD, 3, 7, 8]] = 9  # class 1: these stay where they are
    q[0, :, 1, 8] = 1.0  # noise on TrailLoosen: mean of the four 0.25
    q[0, :, 1, 6] = (0.2, 0.3, 2.0)
    arrays = {
        "ensemble_q": q,
        "position_class": np.ones((2, 3), np.int32),
        "next_class": to,
        "action_drawn": np.zeros((1, 3), np.int8),
    }
    for by_position, want in ((1, [_HOLD, 6, 6]), (0, [8, 8, 6])):
        got = trial.run("rl_q_action_kernel", arrays, B=3, P=2, t=0, by_position=by_position)["action_drawn"]
        trial.equal(f"by position {by_position}", [want], got)
    q[0, :, 1, 6] = np.nan
    got = trial.run("rl_q_action_kernel", {**arrays, "ensemble_q": q}, B=3, P=2, t=0, by_position=1)["action_drawn"]
    trial.equal("NaN never wins", [[_HOLD] * 3], got)


@oracle("distill")
def q_pi_agreement_counts_rows(trial: Trial) -> None:
    """Share of rows with the same best action, then its EMA."""
    rig = _rig(trial)
    q = rig.get("ensemble_q").reshape(_T, _B, _P, _A)
    best = q[_own(rig)].argmax(-1)
    soft = np.full((_T, _B, _A), 0.05)
    chosen = np.where(np.arange(_ROWS).reshape(_T, _B) < 9, best, (best + 1) % _A)
    np.put_along_axis(soft, chosen[..., None], 0.5, -1)
    rig.set("pi_soft", soft)
    rig.run(distill.agreement())
    trial.close("9 of 12", 0.75, rig.slot("Q_PI_AGREE_EMA"), 1e-7)
    np.put_along_axis(soft, best[..., None], 0.9, -1)
    rig.set("pi_soft", soft)
    rig.run(distill.agreement())
    trial.close("EMA", 0.75 + 0.05 * 0.25, rig.slot("Q_PI_AGREE_EMA"), 1e-6)
