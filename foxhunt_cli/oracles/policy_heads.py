"""Oracles of the policy and value heads' products on tensor cores: against NumPy in double precision."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foxhunt_cli.nets import policy
from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.head_rig import HeadRig
from foxhunt_cli.pipeline.stage import chosen

ACTIONS = 11
# Relative L2: TF32 keeps 10 bits of an operand, 5e-4 a product.
TF32 = 1e-3
# T, B, classes: one row, odd sizes, one block for all classes, the wide form, several tiles a block, large tiles.
SIZES = ((1, 1, 9), (3, 7, 9), (5, 27, 1), (2, 33, 17), (16, 200, 9), (16, 600, 9), (3, 1500, 13))


def _rig(trial: Trial, steps: int, rows: int, classes: int) -> HeadRig:
    rng = np.random.default_rng(steps * rows + classes)
    inputs = {
        "h": rng.standard_normal((steps + 1, rows, 128)),
        "grad_h": np.full((steps + 1, rows, 128), 7.0),
        "pi_all": np.full((steps + 1, rows, classes * ACTIONS), 7.0),
        "v_all": np.full((steps + 1, rows, classes), 7.0),
        "grad_pi_all": rng.standard_normal((steps, rows, classes * ACTIONS)) + 0.5,  # sums are not near zero
        "grad_v_all": rng.standard_normal((steps, rows, classes)) + 0.5,
        "context": rng.standard_normal((steps + 1, rows, 3)),
        "ones": np.ones((steps + 1) * rows),
    }
    dims = {"T": steps, "B": rows, "P": classes}
    rig = HeadRig(trial, policy.PARAMETERS, policy.BUFFERS, dims, inputs)
    for tensor in policy.PARAMETERS:
        rig.set(f"grad_{tensor.name}", np.full_like(rig.get(f"grad_{tensor.name}"), 7.0))
    return rig


def _wanted(rig: HeadRig) -> dict[str, np.ndarray]:
    """Outputs and gradients in double precision."""
    used = rig.dims["T"] * rig.dims["B"]
    h, held = rig.get("h").reshape(-1, 128), rig.get("context").reshape(-1, 3)[:used]
    wanted = {"grad_h": 0.0}
    for head in ("pi", "v"):
        w, grad = rig.get(f"w_{head}"), rig.get(f"grad_{head}_all").reshape(used, -1)
        wanted |= {
            f"{head}_all": h @ w,
            f"grad_w_{head}": h[:used].T @ grad,
            f"grad_b_{head}": grad.sum(0),
            f"grad_w_{head}_ctx": held.T @ grad,
            "grad_h": wanted["grad_h"] + 2.0 * grad @ w.T,  # once written, once added
        }
    return wanted


def compare_products(trial: Trial, sizes: Sequence[tuple[int, int, int]]) -> None:
    """The kernels' results for T x B rows and classes."""
    for steps, rows, classes in sizes:
        rig, case = _rig(trial, steps, rows, classes), f"{steps} x {rows} rows, {classes} classes"
        wanted, used = _wanted(rig), steps * rows
        _run(rig, context=True)
        for name, want in wanted.items():
            got = rig.get(name).reshape(-1, want.shape[-1])[: len(want) if want.ndim > 1 else None]
            distance = np.linalg.norm(got.reshape(want.shape) - want) / np.linalg.norm(want)
            trial.close(f"{case}: {name}, relative L2", 0.0, distance, TF32)
        beyond = rig.get("grad_h").reshape(-1, 128)[used:]
        trial.equal(f"{case}: encodings without a gradient", np.full_like(beyond, 7.0), beyond)
        for name in ("grad_w_pi_ctx", "grad_w_v_ctx"):
            rig.set(name, np.full_like(rig.get(name), 5.0))
        _run(rig, context=False)
        for name in ("grad_w_pi_ctx", "grad_w_v_ctx"):
            trial.equal(f"{case}: {name} left alone", np.full_like(rig.get(name), 5.0), rig.get(name))


def _run(rig: HeadRig, *, context: bool) -> None:
    steps, rows = rig.dims["T"], rig.dims["B"]
    first = policy.backward(steps * rows, first=True, context=context)
    again = policy.backward(steps * rows, first=False, context=context)
    rig.run(chosen([*policy.forward((steps + 1) * rows), first, again], "tf32"))


@oracle("policy heads")
def policy_products_on_tensor_cores_match_float64(trial: Trial) -> None:
    """Outputs of every class; gradients of weights, biases, context terms and encodings; what is left alone."""
    trial.needs_tensor_cores()
    compare_products(trial, SIZES)
