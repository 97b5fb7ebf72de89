"""Oracles of the fused critic update: batch, priorities and step bit for bit, the whole on tensor cores within TF32."""

from __future__ import annotations

import numpy as np

from foxhunt_cli.isv.table import number
from foxhunt_cli.nets import c51, c51_update
from foxhunt_cli.nets.target import CriticBatch, follow, gradient_norm, polyak
from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.critic_rig import ACTIONS, ATOMS, CriticRig
from foxhunt_cli.pipeline import critic, learn
from foxhunt_cli.pipeline.shape import Shape
from foxhunt_cli.pipeline.stage import Stage, chosen
from foxhunt_cli.replay import path_targets, per

PLACES = 24  # of a pair's atoms in packed arrays
_BATCH = (
    "rng_replay", "sample_slot", "sample_priority", "replay_h", "replay_next_h", "replay_index", "replay_n",
    "replay_lots", "replay_next_lots", "replay_action", "replay_reward", "replay_discount", "replay_terminal",
)  # fmt: skip
_STATE = (
    "params",
    "adam_m",
    "adam_v",
    "target_params",
    "adam_step",
    "fault_critic",
    "nonfinite_parts_critic",
    "per_tree",
)
_TOLD = (
    "LOSS_Q", "Q_TARGET_MAX", "Q_TARGET_MIN", "Q_TARGET_CLIP_RATE", "Q_BIAS_EMA", "NONFINITE_COUNT", "Q_GRAD_NORM_EMA",
    "Q_DIVERGENCE_EMA", "PER_MAX_PRIORITY", "PER_TREE_TOTAL",
)  # fmt: skip
# Sums of some hundred float32 numbers in another order.
ORDER = 2e-5


@oracle("critic update")
def replay_batch_by_warps_equals_its_steps(trial: Trial) -> None:
    """Draws, gathers, path targets: every bit, for windows longer and shorter than the latency, trees deep and flat."""
    for rows, classes, capacity, latency in ((37, 9, 1024, 1), (64, 17, 4096, 3), (5, 5, 32, 0), (256, 1, 8192, 1)):
        case = f"{rows} rows, P={classes}, C={capacity}, latency {latency}"
        for path in (True, False):
            rigs = [CriticRig(trial, rows, classes, capacity, latency=latency) for _ in range(2)]
            for rig, fusion in zip(rigs, ("none", "float32"), strict=True):
                rig.run([*path_targets.table(), *chosen([per.batch(path=path)], fusion)])
            for name in (*_BATCH, *(("path_return", "path_discount") if path else ())):
                trial.equal(f"{case}: {name}", rigs[0].get(name), rigs[1].get(name))
            slots = rigs[1].get("sample_slot").astype(np.int64)
            trial.true(f"{case}: slots never descend", (np.diff(slots) >= 0).all())


@oracle("critic update")
def replay_priorities_in_one_kernel_equal_their_steps(trial: Trial) -> None:
    """Leaves, maximum, tree and total: every bit; slots drawn twice, TD errors that are not finite, a tiny tree."""
    rng = np.random.default_rng(3)
    for rows, capacity in ((256, 32768), (300, 64), (7, 1024), (1030, 2048)):
        rigs = [CriticRig(trial, rows, 5, capacity) for _ in range(2)]
        td = rng.exponential(2.0, rows)
        td[[1, rows // 2]] = np.nan, np.inf
        for rig, fusion in zip(rigs, ("none", "float32"), strict=True):
            rig.run(per.sample())
            rig.set("c51_td", td)
            rig.run(chosen([per.priorities(capacity, rows)], fusion))
        repeats = int((np.diff(rigs[0].get("sample_slot").astype(np.int64)) == 0).sum())
        trial.equal(f"R={rows}, C={capacity} ({repeats} twice): tree", rigs[0].get("per_tree"), rigs[1].get("per_tree"))
        for name in ("PER_MAX_PRIORITY", "PER_TREE_TOTAL"):
            trial.equal(f"R={rows}, C={capacity}: {name}", rigs[0].slot(name), rigs[1].slot(name))
    trial.true("a slot was drawn twice", repeats > 0)


def packed(w: np.ndarray, b: np.ndarray, pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """The packed order of weights [128, pairs * 21] and biases of one head, by its definition; weights as halves."""
    log2_e = np.float32(1.44269504)
    wide = np.zeros((128, pairs, PLACES), np.float32)
    wide[:, :, :ATOMS] = w.astype(np.float32).reshape(128, pairs, ATOMS) * log2_e
    out = np.zeros((pairs, 3, 8, 32, 2, 2), np.float16)
    for lane in range(32):
        g, t = divmod(lane, 4)
        for word in range(2):
            for half in range(2):
                inputs = np.arange(8) * 16 + 8 * word + 2 * t + half
                out[:, :, :, lane, word, half] = wide[inputs][:, :, g::8].transpose(1, 2, 0)
    bias = np.full((pairs, PLACES), -3e38, np.float32)
    bias[:, :ATOMS] = b.astype(np.float32).reshape(pairs, ATOMS) * log2_e
    return out.reshape(pairs, -1), bias


def _halves(rig: CriticRig) -> np.ndarray:
    """c51_packed_w as numbers."""
    return rig.get("c51_packed_w").view(np.float16)


def _check_packed(trial: Trial, label: str, rig: CriticRig) -> None:
    """c51_packed_* against the noisy weights that rl_noisy_compose left."""
    pairs = rig.dims["P"] * ACTIONS
    want = [packed(rig.get(f"noisy_{head}w_c51"), rig.get(f"noisy_{head}b_c51"), pairs) for head in ("", "target_")]
    trial.equal(f"{label}: weights", np.stack([w for w, _ in want]), _halves(rig))
    trial.equal(f"{label}: biases", np.stack([b for _, b in want]), rig.get("c51_packed_b"))


@oracle("critic update")
def c51_opening_packs_the_noisy_weights(trial: Trial) -> None:
    """Noise of both heads and their weights under it: the bits of rl_sample_noise and rl_noisy_compose."""
    for classes in (1, 5, 9):
        steps, fused = (CriticRig(trial, 8, classes, 32) for _ in range(2))
        steps.run([*c51.draw_noise(), *c51.compose_noise()])
        fused.run(c51_update.opening())
        both = np.stack([steps.get("c51_noise"), steps.get("c51_target_noise")])
        trial.equal(f"P={classes}: noise", both, fused.get("c51_noises_even"))
        for name in ("rng_c51_noise", "rng_c51_target_noise"):
            trial.equal(f"P={classes}: {name}", steps.get(name), fused.get(name))
        for name in (f"noisy_{head}{kind}_c51" for head in ("", "target_") for kind in "wb"):
            fused.set(name, steps.get(name))
        _check_packed(trial, f"P={classes}", fused)


def _from_parts(rig: CriticRig) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of weights and biases that the parts add up to, slice after slice in float32."""
    parts = rig.get("c51_grad_parts")
    total = np.zeros(parts.shape[1:], np.float32)
    for part in parts:
        total = total + part
    flat = total[:, :, :ATOMS].reshape(129, -1)
    return flat[:128], flat[128]


def _step_inputs(rig: CriticRig, rng: np.random.Generator) -> None:
    """What the kernels before the step leave, at random: a batch, gradients in parts, losses, targets."""
    rig.run([*path_targets.table(), *chosen([per.batch(path=True)], "float32")])
    rig.run([*c51_update.opening(), Stage("rl_c51_both_noises", {**_GENERATORS, "noises": "c51_noises_odd"})])
    rig.set("update_control_critic", [1.0, 1.0] + [0.0] * 12)
    rig.allocate({"iqn_bad_parts"})
    for name in ("c51_grad_parts", "c51_td_parts", "c51_block_parts", "c51_row_gap"):
        rig.allocate({name})
        rig.set(name, rng.standard_normal(rig.arrays[name].shape) * (1e-3 if name == "c51_grad_parts" else 1.0))
    rig.set("c51_td_parts", np.abs(rig.get("c51_td_parts")))
    rig.set("c51_block_parts", rig.get("c51_block_parts") * [1.0, 1.0, 1.0, 0.0])
    for group in (1, 5):  # what rl_c51_next leaves: Adam's bias corrections of the coming step
        n = int(rig.get("adam_step_critic")[group]) + 1
        control = rig.get("update_control_critic")
        control[2 + 2 * group : 4 + 2 * group] = 1.0 / (1.0 - 0.9**n), (1.0 - 0.999**n) ** -0.5
        rig.set("update_control_critic", control)


_GENERATORS = {
    "rng_noise": "rng_c51_noise", "rng_target_noise": "rng_c51_target_noise", "n": f"HIDDEN_DIM + P*N_ACTIONS*{ATOMS}",
}  # fmt: skip


def _stepped(trial: Trial, fused: CriticRig, td: np.ndarray) -> CriticRig:
    """A rig on which the single kernels have done what the step does, from what ``fused`` holds before it."""
    rows, classes, capacity = (fused.dims[name] for name in ("R", "P", "C"))
    steps = CriticRig(trial, rows, classes, capacity)
    w, b = _from_parts(fused)
    noises, after = fused.get("c51_noises_even"), fused.get("c51_noises_odd")
    steps.set("sample_slot", fused.get("sample_slot"))
    for name, value in (("grad_w_c51", w), ("grad_b_c51", b), ("c51_noise", noises[0]), ("c51_td", td)):
        steps.set(name, value)
    noisy = {f"grad_{kind}": f"grad_{kind}_c51" for kind in ("w", "b", "sw", "sb")} | {"noise": "c51_noise"}
    size = {"inputs": "HIDDEN_DIM", "outputs": f"P*N_ACTIONS*{ATOMS}"}
    steps.run(
        [
            Stage("rl_noisy_backward", noisy | size),
            *gradient_norm("grad_w_c51", f"HIDDEN_DIM*P*N_ACTIONS*{ATOMS}", "Q_GRAD_NORM_EMA"),
            *learn.optimiser("critic").steps,
            *per.update_priorities(capacity, rows),
            *polyak(),
            *c51.divergence(),
        ]
    )
    steps.set("c51_noise", after[0])
    steps.set("c51_target_noise", after[1])
    steps.run(c51.compose_noise())
    return steps


def _check_slots(trial: Trial, case: str, rig: CriticRig, td: np.ndarray) -> None:
    """What the step says of losses and targets, against the parts it adds up."""
    block, pairs = rig.get("c51_block_parts").astype(np.float64), rig.dims["P"] * ACTIONS
    told = {
        "LOSS_Q": td.mean(),
        "Q_TARGET_MAX": block[:, 0].max(),
        "Q_TARGET_MIN": block[:, 1].min(),
        "Q_TARGET_CLIP_RATE": block[:, 2].sum() / (len(td) * pairs),
        "Q_BIAS_EMA": rig.get("c51_row_gap").mean(),
    }
    for name, want in told.items():
        trial.close(f"{case}: {name}", want, rig.slot(name), 1e-5)


@oracle("critic update")
def critic_step_equals_its_steps(trial: Trial) -> None:
    """Adam on both heads, all target copies, next noisy weights, priorities, counters: against the single kernels.

    Gradients are the same bits; Adam's bias corrections are made here in float64, so parameters agree to rounding.
    """
    for rows, classes, capacity in ((70, 5, 1024), (9, 1, 64), (300, 9, 4096)):
        case, pairs = f"R={rows}, P={classes}", classes * ACTIONS
        fused = CriticRig(trial, rows, classes, capacity)
        _step_inputs(fused, np.random.default_rng(rows))
        td = fused.get("c51_td_parts").sum(0, dtype=np.float64) / pairs
        steps = _stepped(trial, fused, td)
        own = c51_update.Update(CriticBatch(), 0, 2, rows, path=True)
        fused.run([c51_update.priorities(own), c51_update.step(own), follow(1), *c51_update.closing()])
        for name in ("params", "target_params", "adam_m", "adam_v"):
            trial.close(f"{case}: {name}", steps.get(name), fused.get(name), 1e-6)
        for name in ("adam_step", "fault_critic"):
            trial.equal(f"{case}: {name}", steps.get(name), fused.get(name))
        trial.close(f"{case}: TD errors", td, fused.get("c51_td"), 1e-5)
        trial.close(f"{case}: tree", 1.0, fused.get("per_tree")[1] / steps.get("per_tree")[1], 1e-5)
        for name in ("Q_GRAD_NORM_EMA", "Q_DIVERGENCE_EMA", "PER_MAX_PRIORITY"):
            trial.close(f"{case}: {name}", 1.0, fused.slot(name) / steps.slot(name), ORDER)
        _check_slots(trial, case, fused, td)
        for head, which in enumerate(("", "target_")):
            want, bias = packed(steps.get(f"noisy_{which}w_c51"), steps.get(f"noisy_{which}b_c51"), pairs)
            got = _halves(fused)[head].astype(np.float32)  # the last bit of a half may be another
            trial.close(f"{case}: next {which}weights", want.astype(np.float32), got, 1e-3)
            trial.close(f"{case}: next {which}biases", bias, fused.get("c51_packed_b")[head], 3e-6)


@oracle("critic update")
def target_copies_that_wait_equal_those_that_follow(trial: Trial) -> None:
    """All moves of an iteration at once: the bits that as many single ones leave, the critic's own copies untouched."""
    for times in (1, 4):
        waited, followed = (CriticRig(trial, 8, 5, 32) for _ in range(2))
        before = waited.get("target_params_critic")
        waited.run([follow(times)])
        followed.run(polyak() * times)
        copies = (rig.get("target_params_encoder") for rig in (waited, followed))
        trial.equal(f"{times} moves: the encoder's", *copies)
        trial.equal(f"{times} moves: the critic's", before, waited.get("target_params_critic"))


@oracle("critic update")
def critic_step_refuses_what_is_not_finite(trial: Trial) -> None:
    """A bad part, bad gradients or a bad loss of the other head, or the sticky flag.

    No weight moves, targets follow, counters tell.
    """
    for what in ("part", "quantiles", "stage", "sticky"):
        rig = CriticRig(trial, 40, 5, 256)
        _step_inputs(rig, np.random.default_rng(4))
        before = {name: rig.get(name) for name in _STATE if name in rig.arrays}
        if what == "part":
            rig.set("c51_block_parts", rig.get("c51_block_parts") + [[0.0, 0.0, 0.0, 2.0]])
        elif what == "quantiles":
            rig.set("iqn_bad_parts", np.arange(rig.get("iqn_bad_parts").size) == 7)
        elif what == "stage":
            rig.set("nonfinite_parts_critic", [0, 0, 0, 0, 3, 0, 0, 0])
        else:
            rig.set("update_control_critic", [0.0] * 14)
        rig.run([c51_update.step(c51_update.Update(CriticBatch(), 1, 2, 40, path=True)), *c51_update.closing()])
        for name in ("params", "adam_m", "adam_v", "adam_step"):
            trial.equal(f"{what}: {name}", before[name], rig.get(name))
        own = rig.get("target_params_critic")
        trial.true(f"{what}: targets follow", (before["target_params"][-own.size :] != own).mean() > 0.9)
        blocks = len(rig.get("c51_block_parts"))
        counted = {"part": 2 * blocks, "quantiles": 1, "stage": 3, "sticky": 0}[what]
        trial.equal(f"{what}: counted", counted, rig.slot("NONFINITE_COUNT"))
        trial.equal(f"{what}: refusals in a row", [int(counted > 0), 0], rig.get("fault_critic"))


def _lists(shape: Shape, fusion: str) -> list:
    """Table and U updates as a run has them."""
    return chosen([*path_targets.table(), *(critic.update(shape, number) for number in range(shape.updates))], fusion)


@oracle("critic update")
def critic_updates_on_tensor_cores_equal_their_steps(trial: Trial) -> None:
    """Whole updates against the list they stand for, both forms, odd and wide batches, one class and nine.

    TF32 keeps 10 bits of an operand: TD errors agree to 5e-3, Adam's steps to a tenth of their norm (gradients near
    zero may change their sign). Where two actions are nearly equal the heads may choose another, which shows in means
    over a small batch: slots agree to 2e-2, after several updates to 5e-2.
    """
    trial.needs_tensor_cores()
    for rows, classes, hindsight, updates in (
        (256, 9, "path", 1), (256, 9, "path", 3), (70, 5, "path", 2), (2100, 9, "path", 1), (37, 1, "none", 2),
        (256, 9, "none", 1),
    ):  # fmt: skip
        compare_updates(trial, rows, classes, hindsight, updates)


def compare_updates(trial: Trial, rows: int, classes: int, hindsight: str, updates: int) -> None:
    """U updates of ``rows`` rows as steps and as their tensor-core launches, from the same start."""
    capacity = 8192
    shape = Shape(rollout=1, batch=1, updates=updates, replay_batch=rows, capacity=capacity, hindsight=hindsight)
    case = f"R={rows}, P={classes}, {hindsight}, U={updates}"
    steps, fused = (CriticRig(trial, rows, classes, capacity) for _ in range(2))
    start = steps.get("params").astype(np.float64)
    steps.run(_lists(shape, "none"))
    fused.run(_lists(shape, "tf32"))
    for name in ("rng_replay", "rng_c51_noise", "rng_c51_target_noise", "rng_tau", "adam_step", "fault_critic"):
        trial.equal(f"{case}: {name}", steps.get(name), fused.get(name))
    if updates == 1:
        td, got = steps.get("c51_td").astype(np.float64), fused.get("c51_td")
        trial.close(f"{case}: TD errors, relative L2", 0.0, np.linalg.norm(td - got) / np.linalg.norm(td), 5e-3)
        trial.equal(f"{case}: slots", steps.get("sample_slot"), fused.get("sample_slot"))
    for name in _TOLD:
        want, got = steps.slot(name), fused.slot(name)
        trial.close(f"{case}: {name}", 0.0, abs(want - got) / max(abs(want), 0.1), 5e-2 if updates > 1 else 2e-2)
    moved, got = steps.get("params") - start, fused.get("params") - start
    trial.close(f"{case}: steps, relative L2", 0.0, np.linalg.norm(moved - got) / np.linalg.norm(moved), 0.1)
    for name in ("adam_m", "adam_v", "target_params"):
        want, have = steps.get(name).astype(np.float64), fused.get(name)
        trial.close(f"{case}: {name}, relative L2", 0.0, np.linalg.norm(want - have) / np.linalg.norm(want), 2e-2)
    trial.true(f"{case}: isv is finite", np.isfinite(fused.get("isv")[number("LOSS_Q")]))
