"""Oracles of the fused update of the implicit quantile head: against its steps, and against float64 where they do not
reach."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foxhunt_cli.device.rng import seed_states
from foxhunt_cli.nets import iqn
from foxhunt_cli.nets.target import BUFFERS as SHARED
from foxhunt_cli.nets.target import CriticBatch
from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.head_rig import HeadRig, isv_values
from foxhunt_cli.pipeline.stage import chosen

A = 11
BATCH = CriticBatch()
GRADIENTS = ("grad_w_iqn", "grad_b_iqn", "grad_w_iqn_phi", "grad_b_iqn_phi")
# Relative L2 of a gradient. float32: sums of some thousand products in another order. TF32 keeps 10 bits of an operand:
# 5e-4 a product; a quantile that crosses a target by that much changes its share of the gradient, and a unit of the
# embedding that crosses zero its whole row.
FLOAT32, TF32 = 2e-5, 5e-2
# Odd sizes, one row, one block for all classes, several tiles a block, one class alone.
SIZES = ((7, 5, 32, None), (1, 9, 8, None), (40, 1, 32, None), (530, 9, 32, 3), (33, 9, 13, None))


def _rig(trial: Trial, rows: int, classes: int, taus: int, *, visited: int | None = None) -> HeadRig:
    """A batch of ``rows``; classes at random, or all ``visited``. Two rows are terminal."""
    rng = np.random.default_rng(rows + classes)
    limit = (classes - 1) // 2
    lots = np.full(rows, visited) if visited is not None else rng.integers(-limit, limit + 1, rows)
    terminal = np.zeros(rows, np.uint8)
    terminal[[0, rows - 1]] = 1
    inputs = {
        "replay_h": rng.standard_normal((rows, 128)),
        "replay_next_h": rng.standard_normal((rows, 128)),
        "replay_lots": lots.astype(np.int8),
        "replay_next_lots": rng.integers(-limit, limit + 1, rows).astype(np.int8),
        "replay_action": rng.integers(0, A, rows).astype(np.int8),
        "replay_reward": rng.standard_normal(rows),
        "replay_discount": rng.uniform(0.9, 1.0, rows),
        "replay_terminal": terminal,
        "is_weight": rng.uniform(0.2, 1.0, rows),
        "path_return": 1.5 * rng.standard_normal((rows, classes * A)),
        "next_class": rng.integers(0, classes, classes * A).astype(np.int8),
        "isv": isv_values(loss_lambda_q=0.8),
        "rng_tau": seed_states(1, "tau", taus),
        "rng_tau_next": seed_states(2, "tau", taus),
        "ones_replay": np.ones(rows + taus),
    }
    dims = {"R": rows, "P": classes, "T": 1, "B": 1, "N_TAU": taus, "N_TARGET_CHUNKS": 1}
    rig = HeadRig(trial, iqn.PARAMETERS, (*iqn.BUFFERS, *SHARED), dims, inputs)
    for name in GRADIENTS:
        rig.set(name, np.full_like(rig.get(name), 9.0))
    return rig


def _results(rig: HeadRig, path: bool, fusion: str) -> dict[str, np.ndarray]:
    rig.run(chosen([iqn.update(BATCH, path=path, rows=int(rig.dims["R"]))], fusion))
    names = (*GRADIENTS, "rng_tau", "rng_tau_next", "iqn_tau", "nonfinite_parts_critic")
    return {name: rig.get(name) for name in names} | {"loss": np.array(rig.slot("LOSS_IQN"))}


def _distance(want: np.ndarray, got: np.ndarray) -> float:
    """Relative L2."""
    return float(np.linalg.norm(want - got) / np.linalg.norm(want))


def compare_update(
    trial: Trial, fusion: str, path: bool, bound: float, sizes: Sequence[tuple[int, int, int, int | None]] = SIZES
) -> None:
    """The fused kernels and the steps on the same batches of rows, classes, taus, and the one class visited or None."""
    for rows, classes, taus, visited in sizes:
        case = f"{rows} rows, {classes} classes, {taus} taus"
        steps = _results(_rig(trial, rows, classes, taus, visited=visited), path, "none")
        fused = _results(_rig(trial, rows, classes, taus, visited=visited), path, fusion)
        for name in ("rng_tau", "rng_tau_next", "iqn_tau", "nonfinite_parts_critic"):
            trial.equal(f"{case}: {name}", steps[name], fused[name])
        trial.close(f"{case}: LOSS_IQN", 1.0, fused["loss"] / steps["loss"], bound)
        for name in GRADIENTS:
            trial.close(f"{case}: {name}, relative L2", 0.0, _distance(steps[name], fused[name]), bound)


@oracle("iqn")
def iqn_fused_path_update_equals_its_steps(trial: Trial) -> None:
    """Every action at the row's class against its path target, float32 throughout."""
    compare_update(trial, "float32", True, trial.bound(FLOAT32, TF32))


@oracle("iqn")
def iqn_fused_executed_update_equals_its_steps(trial: Trial) -> None:
    """The executed action alone, float32 throughout."""
    compare_update(trial, "float32", False, trial.bound(FLOAT32, TF32))


@oracle("iqn")
def iqn_fused_updates_on_tensor_cores_equal_their_steps(trial: Trial) -> None:
    """Both forms with TF32 products."""
    trial.needs_tensor_cores()
    for path in (True, False):
        compare_update(trial, "tf32", path, TF32)


@oracle("iqn")
def iqn_updates_of_few_and_of_many_rows_leave_the_same_bits(trial: Trial) -> None:
    """The kernel whose blocks have one tile beside the one whose blocks add up tiles: same products, same order."""
    trial.needs_tensor_cores()
    for rows, classes, visited in ((256, 9, None), (31, 5, None), (1, 9, None), (8, 9, 3)):
        got = []
        for chosen_for in (iqn.FEW_ROWS, iqn.FEW_ROWS + 1):
            rig = _rig(trial, rows, classes, 32, visited=visited)
            rig.run(chosen([iqn.update(BATCH, path=True, rows=chosen_for)], "tf32"))
            got.append([rig.get(name) for name in GRADIENTS] + [np.array(rig.slot("LOSS_IQN"))])
        for name, few, many in zip((*GRADIENTS, "LOSS_IQN"), *got, strict=True):
            trial.equal(f"{rows} rows, {classes} classes: {name}", many, few)


@oracle("iqn")
def iqn_fused_update_shows_a_bad_row(trial: Trial) -> None:
    """A NaN in one encoding: one row counted, the loss shows it; columns of classes nobody is in stay exactly zero."""
    rig = _rig(trial, 9, 5, 32, visited=1)
    h = rig.get("replay_h")
    h[4, 7] = np.nan
    rig.set("replay_h", h)
    got = _results(rig, True, "float32")
    trial.equal("rows counted", 1, got["nonfinite_parts_critic"][4])
    trial.true("the loss shows it", np.isnan(got["loss"]))
    elsewhere = np.arange(5) != 3
    trial.equal("W of unvisited classes", 0.0, got["grad_w_iqn"].reshape(128, 5, A)[:, elsewhere])
    trial.equal("b of unvisited classes", 0.0, got["grad_b_iqn"].reshape(5, A)[elsewhere])


@oracle("iqn")
def iqn_embeddings_match_float64(trial: Trial) -> None:
    """The three embeddings and the transposed weights; cosines to 1e-5 (63 pi tau in float32 is known to 1e-5)."""
    rig = _rig(trial, 4, 5, 32)
    states = rig.get("rng_tau_next")
    rig.run(chosen([iqn.update(BATCH, path=True, rows=9)], "float32")[:1])
    arrays = {"rng_tau": states, "iqn_tau": np.zeros(32, np.float32)}
    drawn = trial.run("rl_sample_tau", arrays, n=32)["iqn_tau"].astype(np.float64)
    sets = (("", rig.get("iqn_tau")), ("target_", drawn), ("", (np.arange(32) + 0.5) / 32))
    for index, (head, tau) in enumerate(sets):
        cosines = np.cos(np.pi * np.arange(iqn.COSINES) * tau[:, None])
        phi = np.maximum(cosines @ rig.get(f"{head}w_iqn_phi") + rig.get(f"{head}b_iqn_phi"), 0.0)
        trial.close(f"phi of set {index}", phi, rig.get("iqn_phi_sets")[index], 1e-4)
        if index == 0:
            trial.close("cosines", cosines, rig.get("iqn_cos"), 1e-5)
    trial.equal("W, transposed", rig.get("w_iqn").T, rig.get("iqn_columns")[0])
    trial.equal("the target's W, transposed", rig.get("target_w_iqn").T, rig.get("iqn_columns")[1])
