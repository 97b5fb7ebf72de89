"""Oracles of the fused kernels that teach the policy: against their steps, and against float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foxhunt_cli.nets import c51, distill, iqn
from foxhunt_cli.nets.target import BUFFERS as SHARED
from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.head_rig import HeadRig, isv_values
from foxhunt_cli.pipeline.stage import chosen

A, Z = 11, c51.ATOMS
SLOTS = {"q_distill_lambda": 0.7, "q_distill_temperature": 0.2, "kl_ref_beta": 0.3, "kl_ref_hold": 0.5}
SPAN = {"c51_v_max": 4.0, "c51_v_min": -3.0, "ensemble_alpha": 0.6}
MEAN = 2e-6  # a mean over rows in another order, relative
# TF32 keeps 10 bits of an operand: a logit, a sum of 128 products, is off by 5e-4 of its size; E[Q] follows it.
TF32_VALUE = 2e-3


def _lesson_rig(trial: Trial, steps: int, rows: int, classes: int, bad: bool = False) -> HeadRig:
    rng = np.random.default_rng(rows)
    width = classes * A
    position = rng.integers(0, max(classes, 2), (steps + 1, rows)).astype(np.int32)
    inputs = {
        "isv": isv_values(**SLOTS),
        "pi_all": rng.standard_normal((steps + 1, rows, width)),
        "b_pi": rng.standard_normal(width),
        "w_pi_ctx": rng.standard_normal((3, width)),
        "context": rng.standard_normal((steps + 1, rows, 3)),
        "position_class": position,
        "grad_pi_all": rng.standard_normal((steps, rows, width)),
        "pi_soft": rng.random((steps, rows, A)),
        "next_class": rng.integers(0, classes, (classes, A)).astype(np.int8),
    }
    dims = {"T": steps, "B": rows, "P": classes, "N_TARGET_CHUNKS": 1}
    rig = HeadRig(trial, (), (*distill.BUFFERS, *SHARED), dims, inputs)
    values = 0.3 * rng.standard_normal((steps, rows, width))
    if bad:
        values[0, 1, 0] = np.nan
    rig.set("ensemble_q", values)
    return rig


@oracle("distill")
def fused_lesson_equals_its_steps(trial: Trial) -> None:
    """Gradients bit for bit but for the mean gap; losses, signals, counters within a sum's order; odd sizes, NaN."""
    cases = [(1, 3, 9, False), (3, 50, 9, False), (2, 70, 1, False), (2, 41, 5, True), (1, 9, 17, False)]
    for steps, rows, classes, bad in cases:
        for all_classes, by_position in ((True, False), (False, False), (True, True)):
            size = f"{steps} x {rows} rows, {classes} classes, {'all' if all_classes else 'own'}"
            case = f"{size}{', by position' if by_position else ''}{', NaN' if bad else ''}"
            plain, fused = (_lesson_rig(trial, steps, rows, classes, bad) for _ in range(2))
            lesson = distill.lesson(all_classes=all_classes, by_position=by_position)
            for rig, fusion in ((plain, "none"), (fused, "float32")):
                for _ in range(2):  # the second time the signals are averages
                    rig.run(chosen([lesson], fusion))
            _compare_lessons(trial, case, plain, fused, exact=not all_classes)


def _compare_lessons(trial: Trial, case: str, plain: HeadRig, fused: HeadRig, exact: bool) -> None:
    """exact: no mean over rows enters the gradient."""
    want, got = plain.get("grad_pi_all"), fused.get("grad_pi_all")
    finite = np.isfinite(want)
    trial.equal(f"{case}: where gradients are numbers", finite, np.isfinite(got))
    if finite.any():  # a NaN among the values reaches every class by the temperature
        trial.close(f"{case}: gradients", want[finite], got[finite], 0.0 if exact else 1e-6)
    trial.equal(f"{case}: bad rows", plain.get("nonfinite_parts"), fused.get("nonfinite_parts"))
    for slot in ("LOSS_DISTILL", "Q_DISTILL_KL_EMA", "Q_PI_AGREE_EMA"):
        expected, value = plain.slot(slot), fused.slot(slot)
        if np.isnan(expected):
            trial.true(f"{case}: {slot} shows the NaN", np.isnan(value), value)
        else:
            trial.close(f"{case}: {slot}", expected, value, MEAN * max(1.0, abs(expected)))


def _value_rig(trial: Trial, rows: int, classes: int) -> HeadRig:
    rng = np.random.default_rng(rows + classes)
    inputs = {
        "isv": isv_values(**SPAN),
        "target_h": rng.standard_normal((rows + 3, 128)),
        "rng_tau": np.ones(32, np.uint32),
        "rng_tau_next": np.ones(32, np.uint32),
    }
    dims = {"T": 1, "B": rows, "R": rows, "P": classes, "N_TAU": 32, "N_TARGET_CHUNKS": 1}
    buffers = (*c51.BUFFERS, *iqn.BUFFERS, *distill.BUFFERS, *SHARED)
    rig = HeadRig(trial, (*c51.PARAMETERS, *iqn.PARAMETERS), buffers, dims, inputs)
    rig.set("b_c51", 2.0 * rng.standard_normal(classes * A * Z))
    return rig


def _expected_values(rig: HeadRig, rows: int, classes: int) -> np.ndarray:
    """ensemble_q in float64."""
    h = rig.get("target_h")[:rows]
    logits = (h @ rig.get("w_c51") + rig.get("b_c51")).reshape(rows, classes * A, Z)
    prob = np.exp(logits - logits.max(-1, keepdims=True))
    value = (prob / prob.sum(-1, keepdims=True)) @ np.linspace(SPAN["c51_v_min"], SPAN["c51_v_max"], Z)
    cosines = np.cos(np.pi * np.arange(iqn.COSINES) * ((np.arange(32) + 0.5) / 32)[:, None])
    phi = np.maximum(cosines @ rig.get("w_iqn_phi") + rig.get("b_iqn_phi"), 0.0).mean(0)
    quantile = (h * phi) @ rig.get("w_iqn") + rig.get("b_iqn")
    return SPAN["ensemble_alpha"] * value + (1.0 - SPAN["ensemble_alpha"]) * quantile


@oracle("distill")
def mean_embedding_in_one_kernel_equals_its_steps(trial: Trial) -> None:
    """Midpoints, cosines, embedding, mean: against float64."""
    rig = _value_rig(trial, 4, 9)
    rig.run(list(distill.action_values(4, 4)[0].launches[:1]))
    cosines = np.cos(np.pi * np.arange(iqn.COSINES) * ((np.arange(32) + 0.5) / 32)[:, None])
    mean = np.maximum(cosines @ rig.get("w_iqn_phi") + rig.get("b_iqn_phi"), 0.0).mean(0)
    trial.close("W x mean of phi", mean[:, None] * rig.get("w_iqn"), rig.get("iqn_mean_w"), 1e-5)


@oracle("distill")
def fused_action_values_match_float64(trial: Trial) -> None:
    """Product, softmax and expectation of both critics in one kernel on tensor cores: one row, few, many tiles."""
    trial.needs_tensor_cores()
    compare_values(trial, ((1, 9), (300, 9), (5000, 9), (33, 1), (700, 17)))


def compare_values(trial: Trial, sizes: Sequence[tuple[int, int]]) -> None:
    """The fused action values of so many rows and classes, with TF32 products."""
    for rows, classes in sizes:
        rig = _value_rig(trial, rows, classes)
        rig.run(chosen(distill.action_values(rows, rows), "tf32"))
        want, got = _expected_values(rig, rows, classes), rig.get("ensemble_q").reshape(rows, -1)
        distance = np.linalg.norm(want - got) / np.linalg.norm(want)
        trial.close(f"{rows} rows, {classes} classes: relative L2", 0.0, distance, TF32_VALUE)
        trial.close(f"{rows} rows, {classes} classes: largest error", 0.0, np.abs(want - got).max(), 5.0 * TF32_VALUE)
