"""Oracles of the optimiser: norms, clip, finite check, Adam, and the dense layers' element-wise stages."""

from __future__ import annotations

import numpy as np

from foxhunt_cli.isv.seeds import seed_values
from foxhunt_cli.isv.table import number
from foxhunt_cli.nets.params import CHUNK
from foxhunt_cli.nets.target import nonfinite_parts
from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.critic_rig import CriticRig
from foxhunt_cli.pipeline import learn
from foxhunt_cli.pipeline.stage import chosen

PI, V, AUX, VSN, HEADS = 2, 3, 4, 0, 4
# One Adam step in float32: sqrt, division and two products, each half an ulp of values of order 1.
ADAM_TOLERANCE = 1e-6


def codes() -> dict[str, np.ndarray]:
    """Three chunks: an encoder tensor, a policy tensor, a value tensor."""
    return {
        "group_code": np.array([AUX, PI, V], np.uint8),
        "branch_code": np.array([VSN, HEADS, HEADS], np.uint8),
        "encoder_code": np.array([1, 0, 0], np.uint8),
    }


def update(
    trial: Trial, state: dict[str, np.ndarray], isv: np.ndarray, bad_losses: int = 0, publish: int = 1
) -> dict[str, np.ndarray]:
    """The optimiser's three kernels on ``state``; returns the new state, control and ISV."""
    n = len(state["grads"]) // CHUNK
    squares = trial.run(
        "rl_grad_chunk_squares", {"grads": state["grads"], "chunk_square": np.zeros(n, np.float32)}, n_chunks=n
    )
    control = {"update_control": np.zeros(14, np.float32), "isv": isv}
    norms = trial.run(
        "rl_grad_norms",
        {**squares, **codes(), **control, "adam_step": state["adam_step"], "fault": state["fault"]}
        | {"nonfinite_parts": np.array([0, 0, bad_losses, 0, 0, 0, 0, 0], np.int32)},
        n_chunks=n,
        publish=publish,
        norms=1,
    )
    vectors = {k: state[k] for k in ("params", "grads", "adam_m", "adam_v")}
    arrays = {**vectors, **codes(), "update_control": norms["update_control"], "isv": isv}
    return {**state, **norms, **trial.run("rl_adam_step", arrays, n_chunks=n)}


def fresh(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    state = {k: rng.normal(size=3 * CHUNK).astype(np.float32) for k in ("params", "grads")}
    state |= {k: np.zeros(3 * CHUNK, np.float32) for k in ("adam_m", "adam_v")}
    return state | {"adam_step": np.zeros(6, np.uint32), "fault": np.zeros(2, np.uint32)}


@oracle("optim")
def adam_matches_float64_over_ten_steps(trial: Trial) -> None:
    """Ten steps with bias correction, per-group rates, branch multiplier, encoder clip and weight decay; every second
    one as a further pass of its iteration."""
    seeds = {
        "lr_pi": 1e-3,
        "lr_v": 2e-3,
        "lr_aux": 4e-4,
        "weight_decay": 0.01,
        "branch_lr_mult_vsn": 0.5,
        "grad_clip_norm": 2.0,
    }
    isv, state = seed_values(seeds), fresh(1)
    rate = np.repeat([4e-4 * 0.5, 1e-3, 2e-3], CHUNK)
    w, m, v = state["params"].astype(np.float64), 0.0, 0.0
    rng = np.random.default_rng(2)
    for step in range(1, 11):
        state["grads"] = rng.normal(size=3 * CHUNK).astype(np.float32)
        g = state["grads"].astype(np.float64)
        norm = np.linalg.norm(g[:CHUNK])
        g[:CHUNK] *= min(1.0, 2.0 / norm)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        w = w - rate * (m / (1 - 0.9**step) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8) + 0.01 * w)
        state = update(trial, state, isv, publish=step % 2)
    trial.close("parameters", w, state["params"], 10 * ADAM_TOLERANCE)
    trial.equal("updates counted", [0, 0, 10, 10, 10, 0], state["adam_step"])


@oracle("optim")
def norms_are_published_by_branch_and_head(trial: Trial) -> None:
    """Branch norms as they are; head norms as an EMA that takes its first observation."""
    state = fresh(3)
    g = state["grads"].astype(np.float64)
    isv = update(trial, state, seed_values({}))["isv"]
    trial.close("VSN branch", np.linalg.norm(g[:CHUNK]), isv[number("BRANCH_GRAD_NORM_VSN")], 2e-6)
    trial.close("heads branch", np.linalg.norm(g[CHUNK:]), isv[number("BRANCH_GRAD_NORM_HEADS")], 2e-6)
    trial.close("pi", np.linalg.norm(g[CHUNK : 2 * CHUNK]), isv[number("PI_GRAD_NORM_EMA")], 2e-6)
    trial.close("v", np.linalg.norm(g[2 * CHUNK :]), isv[number("V_GRAD_NORM_EMA")], 2e-6)


@oracle("optim")
def a_non_finite_gradient_refuses_the_update(trial: Trial) -> None:
    """Nothing moves, the count is published, three in a row set the sticky flag, which a good update does not clear."""
    state, isv = fresh(4), seed_values({})
    state["grads"][5] = np.nan
    before = state["params"].copy()
    for expected in (1, 2, 3):
        state = update(trial, state, isv)
        trial.equal(f"consecutive refusals {expected}", [expected, int(expected == 3)], state["fault"])
    trial.equal("parameters", before, state["params"])
    trial.equal("count", 1, state["isv"][number("NONFINITE_COUNT")])
    state["grads"] = np.ones_like(state["grads"])
    state = update(trial, state, isv)
    trial.equal("sticky", [0, 1], state["fault"])
    trial.equal("still nothing moves", before, state["params"])
    trial.equal("no update counted", 0, state["adam_step"])


@oracle("optim")
def a_non_finite_loss_refuses_the_update_too(trial: Trial) -> None:
    """Gradients may be finite where a loss was not: the stages' counters count as well."""
    state = fresh(8)
    before = state["params"].copy()
    state = update(trial, state, seed_values({}), bad_losses=2)
    trial.equal("parameters", before, state["params"])
    trial.equal("count", 2, state["isv"][number("NONFINITE_COUNT")])


@oracle("optim")
def one_bad_update_is_skipped_and_training_goes_on(trial: Trial) -> None:
    """After one refused update the next good one is Adam's first."""
    state, isv = fresh(5), seed_values({"lr_pi": 1e-3, "lr_v": 1e-3, "lr_aux": 1e-3})
    good = state["grads"].copy()
    state["grads"] = np.full_like(good, np.inf)
    state = update(trial, state, isv)
    state["grads"] = good
    before = state["params"].copy()
    state = update(trial, state, isv)
    trial.equal("first update", [0, 0, 1, 1, 1, 0], state["adam_step"])
    # Adam's first step is the rate times the sign of the gradient.
    trial.close("moved by the rate", 1e-3, np.abs(state["params"] - before)[CHUNK:], 2e-6)


@oracle("optim")
def the_optimiser_in_two_kernels_equals_its_steps(trial: Trial) -> None:
    """Both spans, with and without clip, first and further passes: squares, moments and counts to the bit, parameters
    too where nothing is clipped; norms are sums in another order."""
    for span, cap in (("policy", 0.01), ("policy", 1e3), ("critic", 0.01)):
        rigs = [CriticRig(trial, 4, 5, 32) for _ in range(2)]
        for rig, fusion in zip(rigs, ("none", "float32"), strict=True):
            isv = rig.get("isv")
            isv[number("GRAD_CLIP_NORM")], isv[number("LR_PI")], isv[number("LR_AUX")] = cap, 1e-3, 2e-3
            rig.set("isv", isv)
            rig.run(chosen([learn.optimiser(span, publish=True), learn.optimiser(span)], fusion))
        steps, fused = rigs
        for name in (f"chunk_square_{span}", "adam_step", f"fault_{span}"):
            trial.equal(f"{span}, cap {cap}: {name}", steps.get(name), fused.get(name))
        clipped = span == "policy" and cap < 1.0
        for name in ("params", "adam_m", "adam_v"):
            trial.close(
                f"{span}, cap {cap}: {name}", steps.get(name), fused.get(name), ADAM_TOLERANCE if clipped else 0.0
            )
        for name in ("PI_GRAD_NORM_EMA", "BRANCH_GRAD_NORM_VSN", "BRANCH_GRAD_NORM_HEADS"):
            trial.close(f"{span}, cap {cap}: {name}", steps.slot(name), fused.slot(name), 1e-5)


@oracle("optim")
def the_optimiser_in_two_kernels_refuses_too(trial: Trial) -> None:
    """A gradient or a loss that is not finite: nothing moves, counts as the steps have them, the flag sticks."""
    for span in ("policy", "critic"):
        rigs = [CriticRig(trial, 4, 5, 32) for _ in range(2)]
        before = rigs[0].get("params")
        for rig, fusion in zip(rigs, ("none", "float32"), strict=True):
            good = rig.get("grads")
            bad = good.copy()
            bad[[3, 40, -40]] = np.nan
            rig.set("grads", bad)
            optimiser = chosen([learn.optimiser(span, publish=True)], fusion)
            for _ in range(3):
                rig.run(optimiser)
            rig.set("grads", good)
            rig.set(nonfinite_parts(span), [0, 1, 0, 0, 0, 0, 0, 0])
            rig.run(optimiser)
        for name in ("params", "adam_step", f"fault_{span}"):
            trial.equal(f"{span}: {name}", rigs[0].get(name), rigs[1].get(name))
        trial.equal(f"{span}: nothing moved", before, rigs[1].get("params"))
        trial.equal(f"{span}: count", rigs[0].slot("NONFINITE_COUNT"), rigs[1].slot("NONFINITE_COUNT"))
        trial.equal(f"{span}: sticky", 1, rigs[1].get(f"fault_{span}")[1])


@oracle("optim")
def tanh_layers_and_their_slopes(trial: Trial) -> None:
    """y = tanh(y + b), and grad * (1 - y^2) against central differences in float64."""
    rng = np.random.default_rng(6)
    y, b = rng.normal(size=(7, 5)).astype(np.float32), rng.normal(size=5).astype(np.float32)
    out = trial.run("bias_tanh", {"bias": b, "y": y}, rows=7, cols=5)["y"]
    # tanhf is within 2 ulp of values below 1.
    trial.close("tanh", np.tanh(y.astype(np.float64) + b), out, 3e-7)
    x, g = np.arctanh(np.clip(out.astype(np.float64), -0.999, 0.999)), rng.normal(size=(7, 5)).astype(np.float32)
    got = trial.run("tanh_backward", {"y": np.tanh(x).astype(np.float32), "grad": g}, rows=7, cols=5)["grad"]
    trial.close("slope", g * (np.tanh(x + 1e-6) - np.tanh(x - 1e-6)) / 2e-6, got, 2e-6)


@oracle("optim")
def diagnostic_ring_keeps_the_last_records(trial: Trial) -> None:
    """Records go round the ring and the head counts them."""
    ring, head, isv = np.zeros((3, 640), np.float32), np.zeros(1, np.uint32), np.arange(640, dtype=np.float32)
    for i in range(5):
        out = trial.run("rl_diag_record", {"isv": isv + i, "diag_ring": ring, "diag_head": head}, RING=3)
        ring, head = out["diag_ring"], out["diag_head"]
    trial.equal("head", [5], head)
    trial.equal("slots", np.stack([isv + 3, isv + 4, isv + 2]), ring)
