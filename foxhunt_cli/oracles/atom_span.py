"""The atom span: when it grows, and that the distributions stay where they were when it does."""

from __future__ import annotations

import numpy as np

from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.controllers import Panel
from foxhunt_cli.oracles.env_rig import isv_vector


@oracle("controllers")
def controller_atom_span_grows_with_the_clamps(trial: Trial) -> None:
    """The realised form: as wide as the clamps ever were, never narrower."""
    panel = Panel(trial)
    for win, loss, span in ((1.0, 3.0, (1, -3)), (6.0, 2.0, (6, -3)), (2.0, 9.0, (6, -9)), (1.0, 1.0, (6, -9))):
        panel.set(REWARD_CLAMP_WIN=win, REWARD_CLAMP_LOSS=loss)
        before = panel.isv[[485, 484]]
        panel.run("atom_span", realised_reward=1)
        trial.equal(f"clamps {win:g}, {loss:g}", span, panel.isv[484:486])
        trial.equal("the span before", before, panel.memory["atom_span_before"])


@oracle("controllers")
def controller_atom_span_grows_when_targets_are_clipped(trial: Trial) -> None:
    """The symmetric form: x 1.5 after 100 iterations with more than 0.1 % of the target mass outside."""
    panel = Panel(trial)
    panel.set(C51_V_MAX=16.0, C51_V_MIN=-16.0)
    panel.run("atom_span", 150, realised_reward=0)
    trial.equal("no targets: nothing is counted", 0.0, panel.memory["atom_span_window"])
    panel.set(Q_TARGET_MAX=20.0, Q_TARGET_MIN=-1.0, Q_TARGET_CLIP_RATE=0.0009)
    trial.equal("a little: stays", (16, -16), panel.run("atom_span", 100, realised_reward=0).isv[484:486])
    panel.set(Q_TARGET_CLIP_RATE=0.0012)
    trial.equal("99 iterations: not yet", (16, -16), panel.run("atom_span", 99, realised_reward=0).isv[484:486])
    trial.equal("100: grows", (24, -24), panel.run("atom_span", realised_reward=0).isv[484:486])
    trial.equal("the span before", (-16, 16), panel.memory["atom_span_before"])
    trial.equal("a new window", 0.0, panel.memory["atom_span_window"])
    panel.set(Q_TARGET_CLIP_RATE=0.0)
    trial.equal("never shrinks", (24, -24), panel.run("atom_span", 200, realised_reward=0).isv[484:486])
    panel.set(C51_V_MAX=9e5, C51_V_MIN=-9e5, Q_TARGET_CLIP_RATE=1.0)
    trial.equal("bound", (9e5, -9e5), panel.run("atom_span", 100, realised_reward=0).isv[484:486])


def _spread(logits: np.ndarray, low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of softmax(logits) on linspace(low, high), float64."""
    atoms = np.linspace(low, high, 21)
    p = np.exp(logits - logits.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    mean = (p * atoms).sum(-1)
    return mean, np.sqrt((p * (atoms - mean[..., None]) ** 2).sum(-1))


def _bell_weights(rng: np.random.Generator, pairs: int, low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """Weights [128, pairs, 21] and biases [pairs, 21]: logits are those of a bell, whose centre depends on h."""
    atoms = np.linspace(low, high, 21)
    width = (high - low) / 8
    slope = rng.normal(0, 0.02, (128, pairs)) * (high - low)
    weights = slope[..., None] * atoms / width**2
    centre = rng.uniform(-0.15, 0.15, pairs) * (high - low)
    bias = -0.5 * (atoms - centre[:, None]) ** 2 / width**2
    return weights.astype(np.float32), bias.astype(np.float32)


@oracle("controllers")
def atom_span_growth_leaves_the_distributions_in_place(trial: Trial) -> None:
    """Bells of many centres on a span that grows: mean and spread of the value stay, for online and target head."""
    rng = np.random.default_rng(3)
    classes, old, new = 3, (-8.0, 8.0), (-12.0, 12.0)
    pairs = classes * 11
    w, b = _bell_weights(rng, pairs, *old)
    sigma = rng.uniform(0.01, 0.05, w.shape).astype(np.float32)
    arrays = {
        "w_c51": w, "b_c51": b, "sw_c51": sigma, "sb_c51": sigma[0].copy(), "target_w_c51": 0.9 * w,
        "target_b_c51": b, "target_sw_c51": sigma, "target_sb_c51": sigma[0].copy(),
        "isv": isv_vector(C51_V_MIN=new[0], C51_V_MAX=new[1]), "atom_span_before": np.float32(old),
    }  # fmt: skip
    got = trial.run("rl_atom_span_reproject", arrays, P=classes)
    h = rng.normal(0, 0.3, (20, 128))
    for head in ("", "target_"):
        before = np.einsum("nk,kpa->npa", h, arrays[f"{head}w_c51"].astype(np.float64)) + arrays[f"{head}b_c51"]
        after = np.einsum("nk,kpa->npa", h, got[f"{head}w_c51"].astype(np.float64)) + got[f"{head}b_c51"]
        mean, deviation = _spread(before, *old)
        moved, spread = _spread(after, *new)
        inside = np.abs(mean) + 2 * deviation < old[1]  # bells that the old span holds
        trial.true(f"{head}w_c51: enough bells inside", inside.mean() > 0.5, float(inside.mean()))
        trial.close(f"{head}w_c51: mean, in ticks of value", mean[inside], moved[inside], 0.12)
        trial.close(f"{head}w_c51: deviation", deviation[inside], spread[inside], 0.3)
    middle = got["sw_c51"][..., 10]
    trial.close("the middle atom stays", sigma[..., 10], middle, 1e-7)
    trial.true(
        "noise stays within its range", got["sw_c51"].min() >= sigma.min() and got["sw_c51"].max() <= sigma.max()
    )


@oracle("controllers")
def atom_span_reprojection_by_hand(trial: Trial) -> None:
    """New atom 10 + j lies at old atom 10 + 1.5 j; outside, the end's weight, and a bias one nat less an old atom."""
    line = np.arange(21.0)
    names = [f"{head}{tensor}_c51" for head in ("", "target_") for tensor in ("w", "sw", "b", "sb")]
    arrays = {
        n: np.tile(line, ((128, 11, 1) if "w" in n.split("_c51")[0] else (11, 1))).astype(np.float32) for n in names
    }
    grown = isv_vector(C51_V_MIN=-6.0, C51_V_MAX=6.0)
    got = trial.run("rl_atom_span_reproject", {**arrays, "isv": grown, "atom_span_before": np.float32([-4, 4])}, P=1)
    at = 10 + 1.5 * (line - 10)
    inside = np.clip(at, 0, 20)
    for name in names:
        want = inside - np.abs(at - inside) if name.endswith("b_c51") and not name.endswith("sb_c51") else inside
        trial.close(name, np.broadcast_to(want, got[name].shape), got[name], 1e-5)
    same = trial.run("rl_atom_span_reproject", {**arrays, "isv": grown, "atom_span_before": np.float32([-6, 6])}, P=1)
    trial.true("span unchanged: not one bit", all(np.array_equal(arrays[n], same[n]) for n in names))
