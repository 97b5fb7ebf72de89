"""Replay: what a push writes where. Windows of n steps, their order, the end of an episode, the ring."""

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
