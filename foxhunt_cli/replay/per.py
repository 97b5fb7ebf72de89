"""Steps of prioritised replay: push, sample, priorities, renewal of the sum tree.

Order in an iteration: ``push()`` after the reward, hindsight, ``tree_of_pushed()``; then for every update ``sample()``,
the critic, ``update_priorities()``. Sizes that unroll a list (capacity, rows) are numbers here.
"""

from __future__ import annotations

from foxhunt_cli.pipeline.stage import Fused, Stage, Step
from foxhunt_cli.replay import path_targets
from foxhunt_cli.replay.constants import N_STEP_MAX, TREE_BAND


def push(features: str = "target_h") -> list[Step]:
    """Every moment of the iteration whose window is complete, at the largest priority. The tree is renewed later."""
    return [
        Stage("rl_per_push_count"),
        Stage("rl_per_push"),
        Stage("rl_per_push_copy", {"h": features}),
        Stage("rl_per_pending", {"h": features}),
    ]


def push_at_once(features: str = "target_h") -> list[Step]:
    """``push`` in two kernels, but for what is still pending."""
    return [Stage("rl_store_slots", {"blocks_done": "slots_done"}), Stage("rl_store_moments", {"h": features})]


def sample() -> list[Step]:
    """A batch of R transitions: slots, scalars, encodings, importance weights."""
    return [Stage("rl_per_sample"), Stage("rl_per_gather"), Stage("rl_per_weights")]


def batch(*, path: bool) -> Fused:
    """A batch with its importance weights and, where the critic learns from the price path, its targets."""
    draw = Stage("rl_replay_path_batch" if path else "rl_replay_batch")
    steps = (*sample(), *(path_targets.targets() if path else ()))
    return Fused((draw, Stage("rl_per_weights")), steps)


def priorities(capacity: int, rows: int) -> Fused:
    """``update_priorities`` of the batch just learned from."""
    return Fused(
        (Stage("rl_replay_priorities", {"td": "c51_td", "blocks_done": "priorities_done"}),),
        tuple(update_priorities(capacity, rows)),
    )


def update_priorities(capacity: int, rows: int, td: str = "c51_td") -> list[Step]:
    """Leaves of the batch from its TD errors, then the tree above them."""
    return [Stage("rl_per_leaves", {"td": td}), Stage("rl_per_update_priority"), *tree_of_sampled(capacity, rows)]


def tree_rebuild(capacity: int) -> list[Step]:
    """Every inner node from the leaves."""
    return [_full(bottom, top) for bottom, top in bands(capacity)]


def tree_of_sampled(capacity: int, rows: int) -> list[Step]:
    """The tree above a batch's leaves: touched paths where they are fewer than the groups of a band, else all."""
    steps: list[Step] = []
    for bottom, top in bands(capacity):
        if top == 0 or rows >= 1 << top:
            steps.append(_full(bottom, top))
        else:
            steps.append(Stage("rl_per_tree_paths", _band(capacity, bottom, top)))
    return steps


def tree_of_pushed(capacity: int, batch: int, rollout: int) -> list[Step]:
    """The tree above everything that an iteration wrote: its pushes and its hindsight."""
    steps: list[Step] = []
    for bottom, top in bands(capacity):
        groups = _groups_written(capacity >> top, batch, rollout)
        if top == 0 or groups >= 1 << top:
            steps.append(_full(bottom, top))
        else:
            steps.append(Stage("rl_per_tree_range", {**_band(capacity, bottom, top), "groups": str(groups)}))
    return steps


def tree_of_pushed_at_once(capacity: int, batch: int, rollout: int, features: str = "target_h") -> list[Step]:
    """``tree_of_pushed`` in one kernel, where the tree has more than one band (capacity above 32); with the pending
    rings, which ``push_at_once`` reads and leaves alone."""
    bottom, top = bands(capacity)[0]
    groups = min(_groups_written(capacity >> top, batch, rollout), 1 << top)
    sizes = {"groups": str(groups), "depth": str(bottom)}
    return [Stage("rl_store_tree", {**sizes, "h": features, "blocks_done": "tree_done"})]


def bands(capacity: int) -> list[tuple[int, int]]:
    """(bottom, top) depths of the bands of a tree, bottom first; the last ends at the root."""
    depth = capacity.bit_length() - 1
    return [(bottom, max(bottom - TREE_BAND, 0)) for bottom in range(depth, 0, -TREE_BAND)]


def _groups_written(slots: int, batch: int, rollout: int) -> int:
    """Bound on the groups of ``slots`` slots that an iteration's pushes and injections touch."""
    return ((rollout + N_STEP_MAX) * batch + 2 * rollout * batch) // slots + 2


def _full(bottom: int, top: int) -> Stage:
    return Stage("rl_per_tree_rebuild", {"groups": str(1 << top), "bottom": str(bottom), "top": str(top)})


def _band(capacity: int, bottom: int, top: int) -> dict[str, str]:
    return {"depth": str(capacity.bit_length() - 1), "bottom": str(bottom), "top": str(top)}
