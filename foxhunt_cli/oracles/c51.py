"""Oracles of the C51 head: expectations, double DQN, both losses and their gradients, noise, target copies."""

from __future__ import annotations

import numpy as np

from foxhunt_cli.device.rng import seed_states
from foxhunt_cli.isv.table import number
from foxhunt_cli.nets import c51
from foxhunt_cli.nets.params import lay_out
from foxhunt_cli.nets.policy import PARAMETERS as POLICY
from foxhunt_cli.nets.target import BUFFERS as SHARED
from foxhunt_cli.nets.target import CriticBatch, gradient_norm, target_chunks, target_layout
from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.c51_projection import reference_projection
from foxhunt_cli.oracles.formulas import softmax
from foxhunt_cli.oracles.head_rig import HeadRig, check_gradient, isv_values

R, P, A, Z = 6, 5, 11, c51.ATOMS
DIMS = {"R": R, "P": P, "T": 2, "B": 3, "N_TAU": 8, "N_TARGET_CHUNKS": 1}
# Two float32 sums of 21 terms of size up to the span.
EXPECTATION = 2e-5
TF32 = 1e-3  # logits are products of 128 terms whose operands keep 10 bits
SPAN = {"c51_v_max": 2.5, "c51_v_min": -2.0, "loss_lambda_q": 0.8}


def batch_inputs(seed: int = 11, classes: int = P) -> dict[str, np.ndarray]:
    """A critic batch of R rows: every class and a terminal row occur, returns within and beyond the span."""
    rng = np.random.default_rng(seed)
    limit = (classes - 1) // 2
    lots = np.resize(np.arange(-limit, limit + 1), R).astype(np.int8)
    terminal = np.zeros(R, np.uint8)
    terminal[2] = 1
    return {
        "replay_h": rng.standard_normal((R, 128)),
        "replay_next_h": rng.standard_normal((R, 128)),
        "replay_lots": lots,
        "replay_next_lots": lots[::-1].copy(),
        "replay_action": rng.integers(0, A, R).astype(np.int8),
        "replay_reward": rng.standard_normal(R),
        "replay_discount": rng.uniform(0.9, 1.0, R),
        "replay_terminal": terminal,
        "is_weight": rng.uniform(0.2, 1.0, R),
        "path_return": 1.5 * rng.standard_normal((R, classes * A)),
        "next_class": rng.integers(0, classes, classes * A).astype(np.int8),
        "ones_replay": np.ones(R + DIMS["N_TAU"]),
    }


def rig_of(trial: Trial, classes: int = P, **changed) -> HeadRig:
    """Head, buffers, batch; random noise states."""
    dims = {**DIMS, "P": classes}
    size = 128 + classes * A * Z
    inputs = {
        **batch_inputs(classes=classes),
        "isv": isv_values(**{**SPAN, **changed}),
        "rng_c51_noise": seed_states(1, "noise", size),
        "rng_c51_target_noise": seed_states(2, "noise", size),
    }
    return HeadRig(trial, c51.PARAMETERS, (*c51.BUFFERS, *SHARED), dims, inputs)


def _logits(rig: HeadRig, features: str, head: str, classes: int) -> np.ndarray:
    flat = rig.get(features) @ rig.get(f"noisy_{head}w_c51") + rig.get(f"noisy_{head}b_c51")
    return flat.reshape(R, classes, A, Z)


@oracle("c51")
def c51_expectations_match_numpy(trial: Trial) -> None:
    """E[Q] of all pairs in two chunks, and mean and sigma at the rows' own classes, against float64."""
    rig = rig_of(trial)
    h = rig.get("replay_h")
    position = np.resize([0, 4, 2, 1, 3], (2, 3)).astype(np.int32)
    rig.set("target_h", h.reshape(2, 3, 128))
    rig.set("position_class", position)
    rig.dims["t"] = 1
    rig.run([*c51.expected_q(6, 4), c51.row_q()])
    prob = softmax((h @ rig.get("w_c51") + rig.get("b_c51")).reshape(R, P, A, Z))
    atoms = np.linspace(SPAN["c51_v_min"], SPAN["c51_v_max"], Z)
    mean = prob @ atoms
    sigma = np.sqrt((prob * (atoms - mean[..., None]) ** 2).sum(-1))
    own = (np.arange(3, 6), position[1])
    trial.close("E[Q], all pairs", mean.reshape(2, 3, P * A), rig.get("c51_q"), trial.bound(EXPECTATION, TF32))
    trial.close("mean at the row's class", mean[own], rig.get("q_mean"), trial.bound(EXPECTATION, TF32))
    trial.close("sigma at the row's class", sigma[own], rig.get("q_sigma"), trial.bound(EXPECTATION, TF32))


@oracle("c51")
def c51_double_dqn_chooses_online_and_values_by_target(trial: Trial) -> None:
    """argmax by the online head at h_n, distribution of the target head at that action, every class; both forms."""
    for everywhere in (True, False):
        rig = rig_of(trial)
        rig.run([*c51.draw_noise(), *c51.compose_noise(), *c51.forward(CriticBatch(), everywhere=everywhere)])
        atoms = np.linspace(SPAN["c51_v_min"], SPAN["c51_v_max"], Z)
        best = (softmax(_logits(rig, "replay_next_h", "", P)) @ atoms).argmax(-1)
        trial.equal("online argmax", best, rig.get("c51_best_action"))
        target = softmax(_logits(rig, "replay_next_h", "target_", P))
        want = np.take_along_axis(target, best[..., None, None], 2)[:, :, 0]
        trial.close("target distribution", want, rig.get("c51_next_prob"), trial.bound(1e-5, TF32))
        by_target = (target @ atoms).argmax(-1)
        trial.true("the target head would choose otherwise somewhere", (by_target != best).any())


def _path_reference(rig: HeadRig) -> tuple[np.ndarray, np.ndarray]:
    """Cross-entropy [R, P, A] and target mass [R, P, A, Z] of path targets, float64."""
    prob, low, high = rig.get("c51_next_prob"), SPAN["c51_v_min"], SPAN["c51_v_max"]
    returns, to = rig.get("path_return").reshape(R, P, A), rig.get("next_class").reshape(P, A)
    keep = np.where(rig.get("replay_terminal") > 0, 0.0, rig.get("replay_discount"))
    mass = np.zeros((R, P, A, Z))
    for r, p, a in np.ndindex(R, P, A):
        mass[r, p, a] = reference_projection(prob[r, to[p, a]], returns[r, p, a], keep[r], low, high)
    log_prob = np.log(softmax(_logits(rig, "replay_h", "", P)))
    return -(mass * log_prob).sum(-1), mass


@oracle("c51")
def c51_path_loss_matches_numpy(trial: Trial) -> None:
    """Projection, cross-entropy, TD errors, target statistics and bias of all pairs against a plain reference."""
    rig = rig_of(trial)
    steps = [*c51.draw_noise(), *c51.compose_noise(), *c51.forward(CriticBatch())]
    rig.run([*steps, *c51.loss_and_backward(CriticBatch(), 0, path=True)])
    loss, mass = _path_reference(rig)
    trial.close("cross-entropy of a class", loss.mean(2), rig.get("c51_class_loss"), trial.bound(5e-5, TF32))
    trial.close("TD error of a row", loss.mean((1, 2)), rig.get("c51_td"), trial.bound(5e-5, TF32))
    trial.close("LOSS_Q", loss.mean(), rig.slot("LOSS_Q"), trial.bound(5e-5, TF32))
    prob = softmax(_logits(rig, "replay_h", "", P))
    weight = rig.get("is_weight")[:, None, None, None] * SPAN["loss_lambda_q"] / (R * P * A)
    got = rig.get("grad_c51_logits").reshape(prob.shape)
    trial.close("gradient of the logits", weight * (prob - mass), got, trial.bound(1e-7, TF32 * weight.max()))
    atoms = np.linspace(SPAN["c51_v_min"], SPAN["c51_v_max"], Z)
    keep = np.where(rig.get("replay_terminal") > 0, 0.0, rig.get("replay_discount"))
    to = rig.get("next_class").reshape(P, A)
    mean = rig.get("path_return").reshape(R, P, A) + keep[:, None, None] * (rig.get("c51_next_prob") @ atoms)[:, to]
    trial.close("largest target", mean.max(), rig.slot("Q_TARGET_MAX"), 1e-5)
    trial.close("smallest target", mean.min(), rig.slot("Q_TARGET_MIN"), 1e-5)
    own = (np.arange(R), rig.get("replay_lots").astype(int) + (P - 1) // 2, rig.get("replay_action").astype(int))
    trial.close("Q bias", (prob @ atoms - mean)[own].mean(), rig.slot("Q_BIAS_EMA"), trial.bound(1e-5, TF32))
    share = rig.slot("Q_TARGET_CLIP_RATE")
    trial.true("some mass is clipped, not all", 0.0 < share < 1.0, share)


@oracle("c51")
def c51_executed_loss_touches_one_pair(trial: Trial) -> None:
    """The executed action's loss: gradient at that pair alone, also with one block for all classes."""
    for classes in (P, 1):
        rig = rig_of(trial, classes)
        if classes == 1:
            rig.set("replay_lots", np.array([-2, -1, 0, 1, 2, 1], np.int8))  # the one block serves every position
            rig.set("replay_next_lots", np.array([2, 1, 0, -1, -2, 0], np.int8))
        steps = [*c51.draw_noise(), *c51.compose_noise(), *c51.forward(CriticBatch())]
        rig.run([*steps, *c51.loss_and_backward(CriticBatch(), 0, path=False)])
        lots = rig.get("replay_lots").astype(int)
        own = (np.arange(R), lots + (P - 1) // 2 if classes > 1 else 0 * lots, rig.get("replay_action").astype(int))
        log_prob = np.log(softmax(_logits(rig, "replay_h", "", classes)))[own]
        loss = -(rig.get("c51_target") * log_prob).sum(-1)
        trial.close("cross-entropy", loss, rig.get("c51_td"), trial.bound(5e-5, TF32))
        grad = rig.get("grad_c51_logits").reshape(R, classes, A, Z)
        weight = rig.get("is_weight")[:, None] * SPAN["loss_lambda_q"] / R
        want, bound = weight * (np.exp(log_prob) - rig.get("c51_target")), trial.bound(1e-6, TF32 * weight.max())
        trial.close("gradient at the pair", want, grad[own], bound)
        grad[own] = 0.0
        trial.equal("gradient elsewhere", 0.0, grad)


def _weighted(rig: HeadRig) -> float:
    return float((rig.get("is_weight") * rig.get("c51_td")).mean())


@oracle("c51")
def c51_gradients_match_central_differences(trial: Trial) -> None:
    """Weights, biases and both sigmas through the noise, and the encoding under critic-grad; both losses."""
    batch = CriticBatch()
    for path in (True, False):
        rig = rig_of(trial)
        rig.set("grad_h", np.zeros((R, 128)))
        rig.run([*c51.draw_noise(), *c51.compose_noise(), *c51.forward(batch)])
        steps = [
            *c51.compose_noise(),
            c51.online_logits(batch),
            *c51.loss_and_backward(batch, 0, path=path, grad_h="grad_h"),
        ]
        pairs = {name: (f"grad_{name}", SPAN["loss_lambda_q"]) for name in ("w_c51", "b_c51", "sw_c51", "sb_c51")}
        pairs["replay_h"] = ("grad_h", SPAN["loss_lambda_q"])
        check_gradient(trial, rig, steps, lambda rig=rig: _weighted(rig), pairs, float_tolerance=1e-2, largest=4)


@oracle("c51")
def noise_is_signed_root_of_a_normal(trial: Trial) -> None:
    """f(x) = sign(x) sqrt(|x|): f |f| is standard normal; mean 0, E f^2 = sqrt(2 / pi)."""
    n = 20_000
    arrays = {"rng_noise": seed_states(3, "noise", n), "noise": np.zeros(n, np.float32)}
    got = trial.run("rl_sample_noise", arrays, n=n)
    noise = got["noise"].astype(np.float64)
    normal = noise * np.abs(noise)
    error = 4.0 / np.sqrt(n)  # four standard errors
    trial.close("mean", 0.0, noise.mean(), error)
    trial.close("E f^2", np.sqrt(2.0 / np.pi), (noise**2).mean(), error)
    trial.close("variance of f |f|", 1.0, normal.var(), 2.0 * error)
    trial.close("fourth moment of f |f|", 3.0, (normal**4).mean(), 12.0 * error)
    trial.true("states move", (got["rng_noise"] != arrays["rng_noise"]).all())


@oracle("c51")
def noisy_weights_are_factorised(trial: Trial) -> None:
    """W = w + sw (f_in x f_out), b + sb f_out; sigma 0 gives the mean weights exactly."""
    rig = rig_of(trial)
    rig.run([*c51.draw_noise(), *c51.compose_noise()])
    noise = rig.get("c51_noise")
    want = rig.get("w_c51") + rig.get("sw_c51") * np.outer(noise[:128], noise[128:])
    trial.close("weights", want, rig.get("noisy_w_c51"), 1e-6)
    trial.close("bias", rig.get("b_c51") + rig.get("sb_c51") * noise[128:], rig.get("noisy_b_c51"), 1e-6)
    trial.true("the target head has noise of its own", (rig.get("c51_target_noise") != noise).any())
    for name in ("sw_c51", "sb_c51"):
        rig.set(name, np.zeros_like(rig.get(name)))
    rig.run(c51.compose_noise())
    trial.equal("no sigma", rig.get("w_c51"), rig.get("noisy_w_c51"))


@oracle("c51")
def polyak_moves_every_target_by_tau(trial: Trial) -> None:
    """Flat vectors with tensors that have no target between: each moves towards its own online tensor, at tau."""
    tensors = (POLICY[0], *c51.PARAMETERS[:2], POLICY[1], *c51.PARAMETERS[2:])
    layout = lay_out(tensors, {"P": 1})
    target = target_layout(layout, {"P": 1})
    rng = np.random.default_rng(0)
    online, start = (rng.standard_normal(part.size).astype(np.float32) for part in (layout, target))
    chunks = target_chunks(layout, target)
    arrays = {"params": online, "target_chunk": chunks, "isv": isv_values(target_tau=0.02), "target_params": start}
    moved = trial.run("rl_polyak", arrays, n_target_chunks=len(chunks))["target_params"]
    for tensor in target.tensors:
        old, new = target.view(start, tensor.name).astype(np.float64), layout.view(online, tensor.name)
        trial.close(tensor.name, old + 0.02 * (new - old), target.view(moved, tensor.name), 1e-6)


@oracle("c51")
def q_target_statistics_cover_the_iteration(trial: Trial) -> None:
    """The first update starts anew, later ones widen the extremes and average the clipped share; NaN shows."""
    isv = isv_values(q_target_max=90.0, q_target_min=-90.0, q_target_clip_rate=0.9)
    names = ("Q_TARGET_MAX", "Q_TARGET_MIN", "Q_TARGET_CLIP_RATE")
    updates = (([1.0, 3.0], [0.0, 0.4]), ([5.0, 2.0], [0.5, 0.5]), ([0.0, 4.0], [0.0, 0.2]))
    wanted = ((3.0, 1.0, 0.2), (5.0, 1.0, 0.35), (5.0, 0.0, 0.8 / 3.0))
    for update, ((targets, clipped), want) in enumerate(zip(updates, wanted, strict=True)):
        tops, lows = np.array(targets, np.float32), np.array(targets[::-1], np.float32)
        arrays = {"tops": tops, "lows": lows, "clipped": np.array(clipped, np.float32), "isv": isv}
        isv = trial.run("rl_q_target_statistics", arrays, n=2, update=update)["isv"].astype(np.float32)
        trial.close(f"after update {update}", want, [isv[number(name)] for name in names], 1e-6)
    bad = np.array([np.nan, 1.0], np.float32)
    arrays = {"tops": bad, "lows": bad, "clipped": np.zeros(2, np.float32), "isv": isv}
    isv = trial.run("rl_q_target_statistics", arrays, n=2, update=3)["isv"]
    trial.true("NaN shows", np.isnan(isv[[number("Q_TARGET_MAX"), number("Q_TARGET_MIN")]]).all())


@oracle("c51")
def norms_match_numpy(trial: Trial) -> None:
    """Divergence of the target head and the gradient norm, first value and EMA; a vector shorter than its parts."""
    rig = rig_of(trial)
    elements = f"HIDDEN_DIM*P*N_ACTIONS*{Z}"
    rig.set("grad_w_c51", np.random.default_rng(1).standard_normal((128, P * A * Z)))
    rig.run([*c51.divergence(), *gradient_norm("grad_w_c51", elements, "Q_GRAD_NORM_EMA")])
    w, target = rig.get("w_c51"), rig.get("target_w_c51")
    apart = np.linalg.norm(w - target) / np.linalg.norm(w)
    trial.close("divergence", 1.0, rig.slot("Q_DIVERGENCE_EMA") / apart, 1e-5)
    norm = np.linalg.norm(rig.get("grad_w_c51"))
    trial.close("gradient norm", 1.0, rig.slot("Q_GRAD_NORM_EMA") / norm, 1e-5)
    rig.set("grad_w_c51", np.zeros((128, P * A * Z)))
    rig.run(gradient_norm("grad_w_c51", elements, "Q_GRAD_NORM_EMA"))
    trial.close("EMA after a zero gradient", 0.95, rig.slot("Q_GRAD_NORM_EMA") / norm, 1e-5)
    rig.set("short", np.array([3.0, 4.0, 12.0, 100.0]))  # the last is not part of the vector
    rig.run(gradient_norm("short", "3", "V_GRAD_NORM_EMA"))
    trial.close("three elements", 13.0, rig.slot("V_GRAD_NORM_EMA"), 1e-5)
