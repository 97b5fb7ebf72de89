"""Replay: the sum tree, sampling, importance weights, priorities."""

from __future__ import annotations

import numpy as np

from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.replay_rig import ReplayRig, random_iteration
from foxhunt_cli.replay import per


def _fresh(trial: Trial, capacity: int, rows: int, priorities: np.ndarray, **isv: float) -> ReplayRig:
    """A replay whose leaves are given, all slots live, data index = slot."""
    rig = ReplayRig(trial.device, batch=1, rollout=1, capacity=capacity, rows=rows, isv=isv)
    tree = np.zeros(2 * capacity)
    tree[capacity:] = priorities
    rig.set(per_tree=tree, store_index=np.arange(capacity), store_n=1)
    rig.set(replay_state=np.array([0, capacity, 0, 0, 0, 0, 0, 0]))
    rig.run(per.tree_rebuild(capacity))
    return rig


@oracle("replay")
def replay_root_is_sum_of_leaves_after_a_million_updates(trial: Trial) -> None:
    rng = np.random.default_rng(1)
    capacity, rows, updates = 1024, 256, 4000
    rig = _fresh(trial, capacity, rows, rng.random(capacity))
    plan = rig.plan([*per.sample(), *per.update_priorities(capacity, rows)])
    for _ in range(updates // 20):
        rig.set(c51_td=np.exp(rng.normal(0, 4, rows)))
        for _ in range(20):
            plan.run_eager()
    rig.device.synchronize()
    leaves, tree = rig.leaves().astype(np.float64), rig.get("per_tree")
    trial.true("a million priorities", updates * rows >= 10**6, updates * rows)
    trial.close("root / sum of leaves", 1.0, tree[1] / leaves.sum(), 1e-5)
    nodes = np.arange(1, capacity)
    trial.equal("every node is the float sum of its children", tree[2 * nodes] + tree[2 * nodes + 1], tree[nodes])
    trial.close("total in its slot", tree[1], rig.slot("PER_TREE_TOTAL"), 0.0)
    trial.true("no empty leaf", leaves.min() > 0.0, leaves.min())


@oracle("replay")
def replay_paths_and_ranges_equal_a_full_rebuild(trial: Trial) -> None:
    """After a batch's priorities and after pushes, the touched nodes alone give the bits of a full rebuild."""
    rng = np.random.default_rng(2)
    for capacity, rows in ((2048, 7), (1 << 17, 256)):
        rig = _fresh(trial, capacity, rows, rng.random(capacity))
        rig.set(c51_td=np.exp(rng.normal(0, 3, rows)))
        rig.run([*per.sample(), *per.update_priorities(capacity, rows)])
        paths = rig.get("per_tree")
        rig.run(per.tree_rebuild(capacity))
        trial.equal(f"C={capacity}: paths", rig.get("per_tree"), paths)
        used = {stage.kernel for stage in per.tree_of_sampled(capacity, rows)}
        trial.true(f"C={capacity}: paths were used", "rl_per_tree_paths" in used)
    for start in (0, 5, 8192 - 3):
        rig = ReplayRig(trial.device, batch=2, rollout=4, capacity=8192, isv={"N_STEP": 1.0})
        rig.set(replay_state=[start, 4000, 0, 0, 0, 0, 0, 0])
        rig.run([*per.push(), *per.tree_of_pushed(8192, 2, 4)])
        ranges = rig.get("per_tree")
        rig.run(per.tree_rebuild(8192))
        trial.equal(f"start {start}: range", rig.get("per_tree"), ranges)
        trial.close(f"start {start}: root", 8.0, ranges[1], 0.0)
    trial.true("ranges were used", "rl_per_tree_range" in {s.kernel for s in per.tree_of_pushed(8192, 2, 4)})


def _draw(rig: ReplayRig, batches: int) -> np.ndarray:
    plan, drawn = rig.plan(per.sample()), []
    for _ in range(batches):
        plan.run_eager()
        rig.device.synchronize()
        drawn.append(rig.get("sample_slot"))
    return np.concatenate(drawn)


@oracle("replay")
def replay_sampling_is_proportional(trial: Trial) -> None:
    """Chi-square of 204,800 draws over 1,024 leaves; strata can only lower it, so both ends are checked."""
    rng = np.random.default_rng(4)
    priorities = np.exp(rng.normal(0, 1, 1024))
    rig = _fresh(trial, 1024, 256, priorities)
    drawn = _draw(rig, 800)
    expected = priorities / priorities.sum() * len(drawn)
    statistic = ((np.bincount(drawn, minlength=1024) - expected) ** 2 / expected).sum()
    trial.true("chi-square below the 99.99 % point of 1,023 degrees of freedom", statistic < 1200.0, statistic)
    trial.true("the draws are random", statistic > 50.0, statistic)
    trial.equal("gathered index is the slot's", rig.get("sample_slot"), rig.get("replay_index"))


@oracle("replay")
def replay_batch_carries_the_stored_transition(trial: Trial) -> None:
    rng = np.random.default_rng(6)
    rig = ReplayRig(trial.device, batch=5, rollout=16, capacity=1024, rows=32, isv={"N_STEP": 4.0})
    rig.set(**random_iteration(rng, 5, 16, np.arange(5) * 50, 0.05))
    rig.run([*per.push(), *per.tree_of_pushed(1024, 5, 16), *per.sample()])
    slot = rig.get("sample_slot")
    pairs = {
        "replay_h": "h", "replay_next_h": "next_h", "replay_index": "index", "replay_n": "n", "replay_lots": "lots",
        "replay_next_lots": "next_lots", "replay_action": "action", "replay_reward": "return",
        "replay_discount": "discount", "replay_terminal": "terminal",
    }  # fmt: skip
    for name, stored in pairs.items():
        trial.equal(name, rig.get(f"store_{stored}")[slot], rig.get(name))
    trial.equal("priority", rig.leaves()[slot], rig.get("sample_priority"))


@oracle("replay")
def replay_never_draws_an_empty_or_zero_leaf(trial: Trial) -> None:
    """Priorities 1e-12 next to 1e6, and empty leaves between: whatever rounding does, a drawn leaf has mass."""
    rng = np.random.default_rng(5)
    capacity = 1024
    cases = {
        "alternating": np.where(np.arange(capacity) % 2, 1e6, 1e-12),
        "one huge at the front": np.r_[1e6, np.full(capacity - 1, 1e-12)],
        "huge, then empty": np.r_[np.full(3, 1e6), 1e-12, np.zeros(capacity - 4)],
        "tiny last": np.r_[np.zeros(capacity // 2), np.full(capacity // 2 - 1, 1e6), 1e-12],
        "sparse": np.where(rng.random(capacity) < 0.03, 10.0 ** rng.uniform(-12, 6, capacity), 0.0),
        "one leaf": np.eye(1, capacity, 700)[0] * 1e-12,
    }
    for label, priorities in cases.items():
        rig = _fresh(trial, capacity, 256, priorities)
        drawn = _draw(rig, 40)
        trial.true(f"{label}: least priority drawn", priorities[drawn].min() > 0.0, priorities[drawn].min())
        weight = rig.get("is_weight")
        trial.true(f"{label}: weights in (0, 1]", np.all(weight > 0.0) and np.all(weight <= 1.0), weight.max())


def _state_before(output: int) -> int:
    """The xorshift32 state whose next output is ``output``: each of the three steps undone."""
    x = output
    for shift, left in ((5, True), (17, False), (13, True)):
        undone = x
        for _ in range(32 // shift + 1):
            undone = x ^ ((undone << shift if left else undone >> shift) & 0xFFFFFFFF)
        x = undone
    return x


@oracle("replay")
def replay_rounded_sums_never_lead_to_an_empty_leaf(trial: Trial) -> None:
    """1 + 0.6 ulp rounds up to 1 + 1 ulp: the topmost draw lies beyond all mass; it must not fall into a void."""
    small = 0.6 * 2.0**-23
    for depth in range(1, 10):
        far = 1 << depth  # the small leaf: first of its subtree, everything behind it is empty
        priorities = np.zeros(1024)
        priorities[0], priorities[far] = 1.0, small
        rig = _fresh(trial, 1024, 1, priorities)
        rig.set(rng_replay=_state_before(0xFFFFFFFF))
        rig.run(per.sample())
        trial.equal(f"small leaf {far}", far, rig.get("sample_slot"))
        trial.true(f"small leaf {far}: the root is rounded up", float(rig.get("per_tree")[1]) > 1.0 + small)


@oracle("replay")
def replay_importance_weights(trial: Trial) -> None:
    """(N P)^-beta / max over the batch, at most 1, the largest exactly 1; beta 1 at the end of the run."""
    rng = np.random.default_rng(7)
    priorities = rng.random(512) + 0.01
    for beta in (0.4, 0.73, 1.0):
        rig = _fresh(trial, 512, 128, priorities, PER_BETA=beta)
        rig.run(per.sample())
        p = rig.leaves()[rig.get("sample_slot")].astype(np.float64) / priorities.sum()
        raw = (512 * p) ** -beta
        trial.close(f"beta {beta}", raw / raw.max(), rig.get("is_weight"), 1e-5)
        trial.equal(f"beta {beta}: largest", 1.0, rig.get("is_weight").max())


@oracle("replay")
def replay_beta_is_one_at_the_end(trial: Trial) -> None:
    """The schedule that slot PER_BETA follows: 0.4 at the start, exactly 1 at RUN_STEPS and after."""
    for step, beta in ((0, 0.4), (5_000, 0.7), (9_999, 0.99994), (10_000, 1.0), (12_000, 1.0)):
        rig = ReplayRig(trial.device, batch=1, rollout=1, capacity=1024)
        rig.slots(RUN_STEPS=10_000, PER_BETA=0.4)
        start = rig.get("isv")
        rig.slots(TRAIN_STEP=step)
        rig.set(isv=trial.run("rl_controller_per_beta", {"isv": rig.get("isv"), "isv_seed": start})["isv"])
        trial.close(f"step {step}", beta, rig.slot("PER_BETA"), 0.0 if beta == 1.0 else 1e-6)


@oracle("replay")
def replay_priorities_and_duplicates(trial: Trial) -> None:
    """|TD|^alpha + 1e-6, alpha once, the last row of a slot wins; the maximum follows the data and fades by 0.999."""
    rig = _fresh(trial, 1024, 6, np.ones(1024), PER_ALPHA=0.5, PER_MAX_PRIORITY=1.0)
    rig.set(sample_slot=[3, 9, 3, 1023, 9, 0], c51_td=[16.0, 4.0, 0.25, 0.0, -9.0, 1e-4])
    rig.run([*per.update_priorities(1024, 6)])
    leaves = rig.leaves()
    trial.close("slot 3: row 2", 0.5 + 1e-6, leaves[3], 1e-6)
    trial.close("slot 9: row 4", 3.0 + 1e-6, leaves[9], 1e-6)
    trial.close("slot 1023: zero TD", 1e-6, leaves[1023], 1e-12)
    trial.close("slot 0", 1e-2 + 1e-6, leaves[0], 1e-7)
    trial.close("maximum: of the batch", 4.0 + 1e-6, rig.slot("PER_MAX_PRIORITY"), 1e-6)
    trial.equal("others untouched", 1.0, leaves[10:1023])
    rig.set(c51_td=0.01)
    rig.run([*per.update_priorities(1024, 6)])
    trial.close("maximum fades", 0.999 * (4.0 + 1e-6), rig.slot("PER_MAX_PRIORITY"), 1e-5)
    before = rig.leaves()[[3, 9]]
    rig.set(c51_td=[1.0, 1.0, np.nan, 1.0, np.inf, 1.0])
    rig.run([*per.update_priorities(1024, 6)])
    trial.equal("a TD error that is not finite changes no leaf", before, rig.leaves()[[3, 9]])
    trial.true("and not the tree", np.isfinite(rig.get("per_tree")).all())
