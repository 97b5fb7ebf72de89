"""Replay: windows and slots of the push, the sum tree, sampling, weights, priorities."""

from __future__ import annotations

import numpy as np

from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.replay_rig import PushReference, ReplayRig, Transition, random_iteration
from foxhunt_cli.replay import per
from foxhunt_cli.replay.capacity import default_capacity
from foxhunt_cli.replay.constants import HEAD, PUSHED, SIZE, SYNTHETIC

FLOAT = 1e-5  # float32 sums of at most 32 rewards of order 1
_STORED = {
    "store_birth": "birth", "store_row": "row", "store_n": "n", "store_index": "index", "store_lots": "lots",
    "store_next_lots": "next_lots", "store_action": "action", "store_terminal": "terminal",
}  # fmt: skip


def _check_slots(trial: Trial, label: str, rig: ReplayRig, first: int, wanted: list[Transition]) -> None:
    """The slots from ``first`` on hold ``wanted``, in order."""
    capacity = rig.dims["C"]
    at = (first + np.arange(len(wanted))) % capacity
    for buffer, name in _STORED.items():
        trial.equal(f"{label}: {name}", [getattr(w, name) for w in wanted], rig.get(buffer)[at].astype(np.int64))
    trial.close(f"{label}: n-step return", [w.value for w in wanted], rig.get("store_return")[at], FLOAT)
    trial.close(f"{label}: discount gamma^n", [w.discount for w in wanted], rig.get("store_discount")[at], FLOAT)
    trial.equal(f"{label}: h", np.stack([w.h for w in wanted]), rig.get("store_h")[at])
    trial.equal(f"{label}: next h", np.stack([w.next_h for w in wanted]), rig.get("store_next_h")[at])


def _push_case(trial: Trial, batch: int, rollout: int, lengths: list[int], capacity: int, ends: float) -> None:
    """Iterations of random moments, n as given, against the reference; the ring wraps where capacity is small."""
    rng = np.random.default_rng(batch * 100 + rollout)
    rig = ReplayRig(trial.device, batch=batch, rollout=rollout, capacity=capacity, isv={"GAMMA": 0.9})
    reference, cursor, total = PushReference(batch), rng.integers(0, 1000, batch), 0
    births: list[tuple[int, int]] = []
    for iteration, n in enumerate(lengths):
        given = random_iteration(rng, batch, rollout, cursor, ends)
        rig.set(**given)
        rig.slots(N_STEP=n, PER_MAX_PRIORITY=1.0 + iteration)
        rig.run([*per.push(), *per.tree_of_pushed(capacity, batch, rollout)])
        wanted = reference.iteration(given, n, 0.9)
        label = f"B={batch} T={rollout} n={n} iteration {iteration}"
        if wanted:
            _check_slots(trial, label, rig, total, wanted)
            at = (total + np.arange(len(wanted))) % capacity
            trial.equal(f"{label}: priority", 1.0 + iteration, rig.leaves()[at])
        total += len(wanted)
        births += [(w.row, w.birth) for w in wanted]
        trial.equal(f"{label}: pushed", len(wanted), rig.state(PUSHED))
        trial.equal(f"{label}: head", total % capacity, rig.state(HEAD))
        trial.equal(f"{label}: size", min(total, capacity), rig.state(SIZE))
        trial.close(
            f"{label}: root", rig.leaves().sum(dtype=np.float64), rig.get("per_tree")[1], 1e-5 * total * len(lengths)
        )
        cursor = cursor + rollout
    begun = len(lengths) * rollout * batch
    waiting = {(b, moment["birth"]) for b, rows in enumerate(reference.pending) for moment in rows}
    trial.equal("no start is dropped or pushed twice", begun, len(set(births) | waiting))
    trial.equal("nor both", begun, len(births) + len(waiting))


@oracle("replay")
def replay_push_windows_and_order(trial: Trial) -> None:
    _push_case(trial, 3, 5, [1, 1], 1024, 0.0)
    _push_case(trial, 5, 16, [8] * 4, 1024, 0.0)
    _push_case(trial, 130, 2, [3] * 5, 16384, 0.0)


@oracle("replay")
def replay_n_step_flushes_at_done(trial: Trial) -> None:
    _push_case(trial, 7, 16, [8] * 4, 2048, 0.08)
    _push_case(trial, 4, 3, [32] * 14, 1024, 0.03)
    _push_case(trial, 2, 1, [5] * 20, 1024, 0.1)
    _push_case(trial, 3, 40, [32] * 3, 1024, 0.02)


@oracle("replay")
def replay_n_may_change_between_iterations(trial: Trial) -> None:
    _push_case(trial, 6, 7, [32, 32, 32, 32, 32, 32, 8, 3, 3, 20, 5, 1, 4], 2048, 0.02)


@oracle("replay")
def replay_ring_wraps(trial: Trial) -> None:
    _push_case(trial, 3, 8, [4] * 14, 256, 0.05)


@oracle("replay")
def replay_new_episode_starts_empty(trial: Trial) -> None:
    """A row that drew a new start carries no moment over (its last step was truncated: there is none to lose)."""
    rng = np.random.default_rng(3)
    rig = ReplayRig(trial.device, batch=2, rollout=4, capacity=1024, isv={"N_STEP": 3.0})
    given = random_iteration(rng, 2, 4, np.array([10, 20]), 0.0)
    given["truncated"][3, 0] = True
    rig.set(**given)
    rig.run(per.push())
    trial.equal("pushed: row 0 all four, row 1 two", 6, rig.state(PUSHED))
    trial.equal("pending", [0, 2], rig.get("pending_moments"))
    rig.set(**random_iteration(rng, 2, 4, np.array([500, 24]), 0.0))
    rig.set(new_episode=[1, 0])
    rig.run(per.push())
    trial.equal("pushed: row 0 two, row 1 four", 6, rig.state(PUSHED))
    rig.set(new_episode=[0, 1])
    rig.run(per.push())
    trial.equal("a new start the host chose: row 0 four, row 1 two", 6, rig.state(PUSHED))
    at = slice(12, 18)
    trial.equal("first of row 1", 24, rig.get("store_index")[at][rig.get("store_row")[at] == 1].min())
    trial.equal("first of row 0", 500, rig.get("store_index")[6:12][rig.get("store_row")[6:12] == 0].min())


@oracle("replay")
def replay_wide_push_has_one_writer_a_slot(trial: Trial) -> None:
    """B = 4096, T = 16, every pending window flushed: one (row, birth) a slot, in the order t, row, age."""
    batch, rollout = 4096, 16
    capacity = default_capacity(batch, rollout)
    rig = ReplayRig(trial.device, batch=batch, rollout=rollout, capacity=capacity, rows=8, isv={"N_STEP": 8.0})
    rig.set(cursor=np.arange(batch) * 100, reward=1.0)
    rig.run(per.push())
    trial.equal("pushed", batch * (rollout - 7), rig.state(PUSHED))
    truncated = np.zeros((rollout, batch), np.uint8)
    truncated[-1] = 1
    rig.set(truncated=truncated, cursor=np.arange(batch) * 100 + rollout)
    rig.run(per.push())
    total = 2 * batch * rollout
    trial.equal("all moments are in", total, rig.state(SIZE))
    row, birth = rig.get("store_row")[:total].astype(np.int64), rig.get("store_birth")[:total].astype(np.int64)
    trial.equal("each once", total, len(np.unique(row * 64 + birth)))
    trial.equal("index follows birth", row * 100 + birth, rig.get("store_index")[:total])
    complete = np.minimum(birth + 8, 2 * rollout)
    trial.true("order: step, row, age", np.all(np.diff(complete * 10**7 + row * 100 + birth) > 0))
    trial.equal("no slot beyond", 0.0, rig.leaves()[total:])


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


@oracle("replay")
def replay_overwritten_synthetic_transitions_leave_the_count(trial: Trial) -> None:
    rig = ReplayRig(trial.device, batch=2, rollout=4, capacity=1024, isv={"N_STEP": 1.0})
    source = np.zeros(1024, np.uint8)
    source[[1022, 1023, 2, 3, 600]] = [1, 2, 1, 1, 2]
    rig.set(store_source=source, replay_state=[1021, 1024, 5, 0, 0, 0, 0, 0])
    rig.run(per.push())
    trial.equal("eight slots, four of them synthetic", 1, rig.state(SYNTHETIC))
    trial.equal("now real", 0, rig.get("store_source")[[1021, 1022, 1023, 0, 1, 2, 3, 4]])
    trial.equal("head", 5, rig.state(HEAD))
