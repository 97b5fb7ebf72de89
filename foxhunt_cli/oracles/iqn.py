"""Oracles of the implicit quantile head and of the ensemble value."""

from __future__ import annotations

import numpy as np

from foxhunt_cli.device.rng import seed_states
from foxhunt_cli.nets import iqn
from foxhunt_cli.nets.c51 import BUFFERS as C51_BUFFERS
from foxhunt_cli.nets.target import BUFFERS as SHARED
from foxhunt_cli.nets.target import CriticBatch
from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.c51 import DIMS, A, P, R, batch_inputs
from foxhunt_cli.oracles.head_rig import HeadRig, check_gradient, isv_values

N = DIMS["N_TAU"]
LAMBDA = 0.8
ROUNDING = 2e-5  # sums of 128 products of size 1 in float32
TF32 = 2e-3  # the same with operands of 10 bits
_BATCH = CriticBatch()


def _rig(trial: Trial, classes: int = P, taus: int = N, **changed) -> HeadRig:
    inputs = {
        **batch_inputs(classes=classes),
        "isv": isv_values(loss_lambda_q=LAMBDA, **changed),
        "rng_tau": seed_states(1, "tau", taus),
        "rng_tau_next": seed_states(2, "tau", taus),
        "ones_replay": np.ones(R + taus),
    }
    shared = (*iqn.BUFFERS, *SHARED, *(row for row in C51_BUFFERS if row.name == "c51_q"))
    return HeadRig(trial, iqn.PARAMETERS, shared, {**DIMS, "P": classes, "N_TAU": taus}, inputs)


def _phi(rig: HeadRig, tau: np.ndarray, head: str = "") -> np.ndarray:
    cosines = np.cos(np.pi * np.arange(iqn.COSINES) * tau[:, None])
    return np.maximum(cosines @ rig.get(f"{head}w_iqn_phi") + rig.get(f"{head}b_iqn_phi"), 0.0)


def _quantiles(rig: HeadRig, features: str, tau: str, head: str, classes: int = P) -> np.ndarray:
    """Z [R, N, classes, A] in float64."""
    product = rig.get(features)[:, None, :] * _phi(rig, rig.get(tau), head)
    z = product @ rig.get(f"{head}w_iqn") + rig.get(f"{head}b_iqn")
    return z.reshape(R, -1, classes, A)


def _reference_loss(z: np.ndarray, target: np.ndarray, tau: np.ndarray) -> float:
    """sum_i mean_j |tau_i - 1(delta < 0)| Huber(delta), kappa = 1; z [N], target [M]."""
    delta = target[None, :] - z[:, None]
    huber = np.where(np.abs(delta) <= 1.0, 0.5 * delta**2, np.abs(delta) - 0.5)
    return float((np.abs(tau[:, None] - (delta < 0)) * huber).mean(1).sum())


def _update(path: bool) -> list:
    return [
        *iqn.draw_taus(),
        *iqn.embed_taus(),
        *iqn.forward(_BATCH, path=path),
        *iqn.loss_and_backward(_BATCH, path=path),
    ]


@oracle("iqn")
def iqn_taus_are_uniform(trial: Trial) -> None:
    """Sampled taus lie inside (0, 1) and are uniform; midpoints are (i + 1/2) / n."""
    n = 8192
    arrays = {"rng_tau": seed_states(9, "tau", n), "iqn_tau": np.zeros(n, np.float32)}
    tau = trial.run("rl_sample_tau", arrays, n=n)["iqn_tau"].astype(np.float64)
    trial.true("inside (0, 1)", ((tau > 0.0) & (tau < 1.0)).all())
    # Kolmogorov-Smirnov at 1e-4: 2.23 / sqrt(n).
    ranks = np.arange(1, n + 1) / n
    trial.close("distance to the uniform distribution", 0.0, np.abs(np.sort(tau) - ranks).max(), 2.23 / np.sqrt(n))
    middle = trial.run("rl_tau_midpoints", {"iqn_tau": np.zeros(4, np.float32)}, n=4)["iqn_tau"]
    trial.equal("midpoints", [0.125, 0.375, 0.625, 0.875], middle)


@oracle("iqn")
def iqn_forward_matches_numpy(trial: Trial) -> None:
    """Embedding, quantiles of the learned columns, expectation of all pairs, choice at h_n: against float64."""
    rig = _rig(trial)
    rig.run([*iqn.draw_taus(), *iqn.embed_taus(), *iqn.forward(_BATCH, path=True)])
    trial.close("phi", _phi(rig, rig.get("iqn_tau")), rig.get("iqn_phi"), trial.bound(1e-4, TF32))
    classes = rig.get("replay_lots").astype(int) + (P - 1) // 2
    z = _quantiles(rig, "replay_h", "iqn_tau", "")[np.arange(R), :, classes]
    got = rig.get("iqn_z").reshape(R, A, N) + rig.get("b_iqn").reshape(P, A)[classes][:, :, None]
    trial.close("quantiles at the row's class", z.transpose(0, 2, 1), got, trial.bound(ROUNDING * 10, TF32))
    middle = rig.get("replay_next_h")[:, None, :] * _phi(rig, (np.arange(N) + 0.5) / N)
    mean = (middle @ rig.get("w_iqn") + rig.get("b_iqn")).mean(1)
    trial.close("E[IQN] over midpoints", mean, rig.get("iqn_next_q") + rig.get("b_iqn"), trial.bound(ROUNDING, TF32))
    trial.equal("argmax", mean.reshape(R, P, A).argmax(-1), rig.get("iqn_best_action"))


def _compare_update(trial: Trial, path: bool) -> None:
    rig = _rig(trial)
    rig.run(_update(path))
    lots, best = rig.get("replay_lots").astype(int), rig.get("iqn_best_action").astype(int)
    classes, keep = lots + (P - 1) // 2, np.where(rig.get("replay_terminal") > 0, 0.0, rig.get("replay_discount"))
    z, next_z = _quantiles(rig, "replay_h", "iqn_tau", ""), _quantiles(rig, "replay_next_h", "iqn_tau_next", "target_")
    to, returns = rig.get("next_class").reshape(P, A), rig.get("path_return").reshape(R, P, A)
    next_classes = rig.get("replay_next_lots").astype(int) + (P - 1) // 2
    want = []
    for r in range(R):
        c = classes[r]
        losses = []
        for a in range(A) if path else [int(rig.get("replay_action")[r])]:
            after = to[c, a] if path else next_classes[r]
            gain = returns[r, c, a] if path else rig.get("replay_reward")[r]
            target = gain + keep[r] * next_z[r, :, after, best[r, after]]
            losses.append(_reference_loss(z[r, :, c, a], target, rig.get("iqn_tau")))
        want.append(np.mean(losses))
    trial.close("loss of a row", want, rig.get("row_loss_iqn"), 2e-4)
    trial.close("LOSS_IQN", np.mean(want), rig.slot("LOSS_IQN"), 2e-4)


@oracle("iqn")
def iqn_path_loss_matches_numpy(trial: Trial) -> None:
    """All actions at the row's class, targets from the target head at the online head's own choice."""
    _compare_update(trial, True)


@oracle("iqn")
def iqn_executed_loss_matches_numpy(trial: Trial) -> None:
    """The executed action alone."""
    _compare_update(trial, False)


def _loss_kernel(trial: Trial, z: np.ndarray, target: np.ndarray, tau: np.ndarray) -> dict[str, np.ndarray]:
    """rl_iqn_loss of one row and one slot, no bias, discount 1."""
    n, zero = len(z), np.zeros(1, np.int32)
    arrays = {
        "iqn_z": z, "iqn_next_z": target, "iqn_tau": tau, "b_iqn": np.zeros(1), "target_b_iqn": np.zeros(1),
        "iqn_column": zero, "iqn_next_column": zero, "iqn_reward": np.zeros(1), "replay_discount": np.ones(1),
        "replay_terminal": np.zeros(1, np.uint8), "is_weight": np.ones(1), "isv": isv_values(loss_lambda_q=1.0),
        "grad_iqn_z": np.zeros(n), "slot_loss": np.zeros(1), "grad_iqn_slot": np.zeros(1),
    }  # fmt: skip
    arrays = {k: v.astype(np.float32) if v.dtype == np.float64 else v for k, v in arrays.items()}
    return trial.run("rl_iqn_loss", arrays, rows=1, slots=1, N_TAU=n)


@oracle("iqn")
def iqn_learns_the_quantiles_of_a_skewed_distribution(trial: Trial) -> None:
    """Descent on fixed exponential targets ends at their quantiles; with the sign of tau - 1(delta < 0) flipped it
    would end at the quantiles of 1 - tau, far away on a skewed distribution."""
    n, scale = 20, 40.0
    tau = (np.arange(n) + 0.5) / n
    target = -scale * np.log1p(-tau)  # exponential: mean 40, median 28, long right tail
    z = np.full(n, scale)
    for _ in range(400):
        z = z - 6.0 * _loss_kernel(trial, z, target, tau)["grad_iqn_z"]
    # Between neighbouring targets the quantile is free, and Huber's kappa = 1 blurs by about one.
    width = np.diff(target, append=target[-1] + 1.0)
    trial.true("quantiles rise with tau", (np.diff(z) > 0.0).all())
    trial.true("each at its own quantile", (np.abs(z - target) <= width + 2.5).all(), np.round(z - target, 2))
    trial.true("the tail is to the right", z[-1] - z[n // 2] > 2.0 * (z[n // 2] - z[0]), z)


@oracle("iqn")
def iqn_loss_pulls_with_tau_from_below(trial: Trial) -> None:
    """One quantile, one target: below it the gradient is -tau, above it 1 - tau; inside kappa it is linear; n not a
    multiple of eight is whole."""
    for z, tau, want in ((0.0, 0.9, -0.9), (10.0, 0.9, 0.1), (4.5, 0.9, -0.45), (5.5, 0.2, 0.4)):
        got = _loss_kernel(trial, np.array([z]), np.array([5.0]), np.array([tau]))
        trial.close(f"gradient at z = {z}, tau = {tau}", want, got["grad_iqn_z"], 1e-6)
    rng = np.random.default_rng(3)
    z, target, tau = rng.standard_normal(13), 2.0 * rng.standard_normal(13), rng.random(13)
    got = _loss_kernel(trial, z, target, tau)
    trial.close("13 taus: loss", _reference_loss(z, target, tau), got["slot_loss"], 1e-5)
    trial.close("13 taus: sum of gradients", got["grad_iqn_z"].astype(np.float64).sum(), got["grad_iqn_slot"], 1e-6)


@oracle("iqn")
def iqn_gradients_match_central_differences(trial: Trial) -> None:
    """All four tensors and the encoding; both forms. Units of the embedding are on or off by a margin."""
    for path in (True, False):
        rig = _rig(trial)
        rig.set("b_iqn_phi", np.where(np.arange(128) % 2, 6.0, -6.0))
        rig.set("grad_h", np.zeros((R, 128)))
        rig.run(_update(path))
        steps = [*iqn.embed_taus(), *iqn.quantiles(_BATCH, path=path, target=False)]
        steps += iqn.loss_and_backward(_BATCH, path=path, grad_h="grad_h")
        pairs = {name: (f"grad_{name}", LAMBDA) for name in ("w_iqn", "b_iqn", "w_iqn_phi", "b_iqn_phi")}
        pairs["replay_h"] = ("grad_h", LAMBDA)

        def weighted(rig: HeadRig = rig) -> float:
            return float((rig.get("is_weight") * rig.get("row_loss_iqn")).mean())

        check_gradient(trial, rig, steps, weighted, pairs, float_tolerance=1e-2, largest=4)


@oracle("iqn")
def iqn_gradient_of_unvisited_columns_is_zero(trial: Trial) -> None:
    """Columns of classes no row is in get exactly zero, not what an earlier update left."""
    rig = _rig(trial)
    rig.set("replay_lots", np.full(R, 1, np.int8))
    for name in ("grad_w_iqn", "grad_b_iqn"):
        rig.set(name, np.full_like(rig.get(name), 9.0))
    rig.run(_update(True))
    visited = np.arange(P) == 1 + (P - 1) // 2
    trial.equal("unvisited W", 0.0, rig.get("grad_w_iqn").reshape(128, P, A)[:, ~visited])
    trial.equal("unvisited b", 0.0, rig.get("grad_b_iqn").reshape(P, A)[~visited])
    trial.true("visited W learns", (rig.get("grad_w_iqn").reshape(128, P, A)[:, visited] != 0.0).any())


@oracle("iqn")
def ensemble_value_mixes_by_alpha(trial: Trial) -> None:
    """alpha C51 + (1 - alpha) (IQN + its bias); the ends are the heads themselves."""
    rng = np.random.default_rng(1)
    c51_q, iqn_q = rng.standard_normal((2, 6, 2 * A)).astype(np.float32)
    bias = rng.standard_normal(2 * A).astype(np.float32)
    for alpha in (0.0, 0.3, 1.0):
        arrays = {
            "c51_q": c51_q,
            "iqn_q": iqn_q,
            "b_iqn": bias,
            "isv": isv_values(ensemble_alpha=alpha),
            "ensemble_q": np.zeros_like(c51_q),
        }
        got = trial.run("rl_ensemble_action_value", arrays, rows=6, P=2)["ensemble_q"]
        trial.close(f"alpha {alpha}", alpha * c51_q + (1.0 - alpha) * (iqn_q + bias), got, 1e-6)
