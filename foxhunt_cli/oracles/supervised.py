"""Oracles of the fused supervised heads: against the heads' own steps, which have closed forms and differences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foxhunt_cli.nets import supervised
from foxhunt_cli.nets.target import BUFFERS as SHARED
from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.head_rig import HeadRig, isv_values
from foxhunt_cli.pipeline.stage import chosen

SNAPSHOTS = 400
SLOTS = ("LOSS_FRD", "LOSS_BCE", "LOSS_OUTCOME", "OUTCOME_ACC")
LABELS = ("frd_target", "direction_target", "outcome_target")
LAMBDAS = {"frd_lambda": 0.4, "loss_lambda_aux": 0.7, "loss_lambda_bce": 1.3, "outcome_lambda": 0.3}
# Relative L2 of a gradient. float32: sums of up to some thousand products in another order. TF32 keeps 10 bits of an
# operand, 5e-4 a product; small differences of probabilities and labels make it a few times that.
FLOAT32, TF32 = 2e-5, 4e-3
# T, B, classes: odd sizes, one row, one block for all classes, several tiles a block, large tiles.
SIZES = ((3, 4, 9), (1, 1, 9), (5, 27, 1), (2, 33, 17), (16, 200, 9), (16, 600, 9))


def _rig(trial: Trial, steps: int, rows: int, classes: int, *, labels: bool = True, **changed: float) -> HeadRig:
    rng = np.random.default_rng(steps * rows + classes)
    closed = (rng.random((steps, rows)) < 0.4) & labels
    frd, direction = rng.integers(-1, 21, (SNAPSHOTS, 3)), rng.integers(-1, 2, (SNAPSHOTS, 3))
    inputs = {
        "isv": isv_values(**{**LAMBDAS, "outcome_acc": 0.2, **{s.lower(): 5.0 for s in SLOTS[:3]}, **changed}),
        "ones": np.ones((steps + 1) * rows),
        "h": rng.standard_normal((steps + 1, rows, 128)),
        "grad_h": rng.standard_normal((steps + 1, rows, 128)),
        "frd_label": (frd if labels else np.full_like(frd, -1)).astype(np.int8),
        "direction_label": (direction if labels else np.full_like(direction, -1)).astype(np.int8),
        "cursor": rng.integers(0, SNAPSHOTS, rows).astype(np.int32),  # some rows run over the end of the data
        "position_class": rng.integers(0, max(classes, 2), (steps + 1, rows)).astype(np.int32),
        "closed": closed.astype(np.uint8),
        "closed_trade_pnl_usd": np.where(closed, 40.0 * rng.standard_normal((steps, rows)), 0.0),
        "closed_trade_lots": np.where(closed, rng.integers(1, 5, (steps, rows)), 0).astype(np.int32),
    }
    dims = {"T": steps, "B": rows, "P": classes, "N_SNAP": SNAPSHOTS, "N_TARGET_CHUNKS": 1, "tick_value_usd": 12.5}
    own = [row for head in supervised.HEADS for row in head.BUFFERS] + list(supervised.BUFFERS)
    extra = [(name, (steps, rows, 3)) for name in LABELS[:2]]
    rig = HeadRig(trial, supervised.PARAMETERS, (*own, *SHARED), dims, inputs)
    for name, shape in extra:
        rig.set(name, np.zeros(shape, np.int8))
    for tensor in supervised.PARAMETERS:
        rig.set(f"grad_{tensor.name}", np.full_like(rig.get(f"grad_{tensor.name}"), 9.0))
    return rig


def _compare(
    trial: Trial, case: str, plain: HeadRig, fused: HeadRig, fusion: str, bound: float, kernel_for: int | None = None
) -> None:
    """kernel_for: rows that the kernel is chosen for, by default those that there are."""
    before, rows = plain.get("grad_h"), kernel_for or plain.dims["T"] * plain.dims["B"]
    if bound == TF32:  # units are on or off by a margin: none changes sides by an operand's rounding
        for rig in (plain, fused):
            rig.set("b_frd1", np.where(np.arange(64) % 2, 6.0, -6.0))
    plain.run(chosen([supervised.update(rows)], "none"))
    fused.run(chosen([supervised.update(rows)], fusion))
    for name in (*LABELS, "nonfinite_parts"):
        trial.equal(f"{case}: {name}", plain.get(name), fused.get(name))
    for slot in SLOTS:
        want = plain.slot(slot)
        trial.close(f"{case}: {slot}", want, fused.slot(slot), bound * max(1.0, abs(want)))
    added, got = plain.get("grad_h") - before, fused.get("grad_h") - before
    # grad_h held numbers of size one: what was added is known to 1e-7 of that.
    scale = max(np.linalg.norm(added), 1e-7 * np.linalg.norm(before) / bound)
    trial.close(f"{case}: grad_h, relative L2", 0.0, np.linalg.norm(added - got) / scale, bound)
    for tensor in supervised.PARAMETERS:
        want, have = plain.get(f"grad_{tensor.name}"), fused.get(f"grad_{tensor.name}")
        distance = np.linalg.norm(want - have) / max(np.linalg.norm(want), 1e-30)
        trial.close(f"{case}: grad_{tensor.name}, relative L2", 0.0, distance, bound)


def compare_heads(
    trial: Trial,
    fusion: str,
    bound: float,
    sizes: Sequence[tuple[int, int, int]] = SIZES,
    kernel_for: int | None = None,
) -> None:
    """The fused kernels and the steps on the same T x B rows and classes, without labels, without weights."""
    for steps, rows, classes in sizes:
        case = f"{steps} x {rows} rows, {classes} classes"
        plain, fused = (_rig(trial, steps, rows, classes) for _ in range(2))
        _compare(trial, case, plain, fused, fusion, bound, kernel_for)
    plain, fused = (_rig(trial, 2, 9, 9, labels=False) for _ in range(2))
    _compare(trial, "no label", plain, fused, fusion, bound, kernel_for)
    plain, fused = (_rig(trial, 2, 9, 9, frd_lambda=0.0, outcome_lambda=0.0) for _ in range(2))
    _compare(trial, "nothing to the encoder but direction", plain, fused, fusion, bound, kernel_for)


@oracle("supervised")
def heads_that_come_first_overwrite(trial: Trial) -> None:
    """grad_h without what was there: the same as added to zero, by the kernels and by the steps."""
    for fusion in ("none", "float32"):
        first, added = (_rig(trial, 3, 7, 9) for _ in range(2))
        added.set("grad_h", np.zeros_like(added.get("grad_h")))
        first.run(chosen([supervised.update(21, first=True)], fusion))
        added.run(chosen([supervised.update(21)], fusion))
        trial.equal(f"{fusion}: grad_h", added.get("grad_h")[:3], first.get("grad_h")[:3])


@oracle("supervised")
def fused_heads_equal_their_steps(trial: Trial) -> None:
    """Labels, losses, gradients: one row, odd sizes, one block for all classes, several tiles a block, no label."""
    compare_heads(trial, "float32", trial.bound(FLOAT32, TF32))


@oracle("supervised")
def fused_heads_on_tensor_cores_equal_their_steps(trial: Trial) -> None:
    """The same with TF32 products."""
    trial.needs_tensor_cores()
    compare_heads(trial, "tf32", TF32)


@oracle("supervised")
def fused_heads_show_a_bad_row(trial: Trial) -> None:
    """One NaN in an encoding with labels: one row of each head that looks at it is counted, the losses show it."""
    rig = _rig(trial, 2, 8, 9)
    h = rig.get("h")
    h[0, 3, 5] = np.nan
    rig.set("h", h)
    for name in ("frd_label", "direction_label"):
        rig.set(name, np.ones((SNAPSHOTS, 3), np.int8))
    rig.set("cursor", np.zeros(8, np.int32))
    closed = np.ones((2, 8), np.uint8)
    rig.set("closed", closed)
    rig.run(chosen([supervised.update(16)], "float32"))
    trial.equal("rows counted: FRD, outcome, direction", [1, 1, 1], rig.get("nonfinite_parts")[:3])
    for slot in SLOTS[:3]:
        trial.true(f"{slot} shows it", np.isnan(rig.slot(slot)), rig.slot(slot))
