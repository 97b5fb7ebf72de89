"""The lists of steps: bands of the tree, paths or full by capacity, hindsight switches, buffers of every parameter."""

import pytest

from foxhunt_cli.buffers.replay import ROWS
from foxhunt_cli.kernels.registry import kernel
from foxhunt_cli.pipeline.stage import Stage
from foxhunt_cli.replay import hindsight, path_targets, per

NAMES = {row.name for row in ROWS}


@pytest.mark.parametrize("depth", range(1, 23))
def test_bands_cover_every_level_once(depth):
    bands = per.bands(1 << depth)
    assert bands[0][0] == depth and bands[-1][1] == 0
    assert all(bottom - top in range(1, per.TREE_BAND + 1) for bottom, top in bands)
    assert [top for _, top in bands[:-1]] == [bottom for bottom, _ in bands[1:]]


def test_small_trees_are_rebuilt_large_ones_renewed_along_paths():
    assert {s.kernel for s in per.tree_of_sampled(1024, 256)} == {"rl_per_tree_rebuild"}
    kernels = [s.kernel for s in per.tree_of_sampled(1 << 20, 256)]
    assert kernels == ["rl_per_tree_paths"] * 2 + ["rl_per_tree_rebuild"] * 2
    assert per.tree_of_pushed(1 << 20, 16, 16)[0].kernel == "rl_per_tree_range"


def test_the_root_belongs_to_one_kernel():
    for capacity in (1 << 10, 1 << 15, 1 << 22):
        for steps in (per.tree_rebuild(capacity), per.tree_of_sampled(capacity, 8), per.tree_of_pushed(capacity, 1, 1)):
            assert steps[-1].kernel == "rl_per_tree_rebuild" and steps[-1].remap["top"] == "0"


def test_hindsight_switches():
    assert hindsight.inject("off") == []
    for direction, enabled in (("both", "11"), ("backward", "10"), ("forward", "01")):
        steps = {s.kernel: s for s in hindsight.inject(direction)}
        assert steps["rl_hindsight_peak"].remap["enabled"] + steps["rl_hindsight_forward"].remap["enabled"] == enabled


def test_every_buffer_is_used_by_a_kernel():
    steps: list[Stage] = [*per.push(), *per.sample(), *per.update_priorities(1 << 20, 8), *hindsight.track(0)]
    steps += [*hindsight.inject(), *path_targets.table(), *path_targets.targets()]
    used = {s.remap.get(p.name, p.name) for s in steps for p in kernel(s.kernel).params if p.pointer}
    assert NAMES - used <= {"critic_grad_h"}  # what the lesson to the encoder adds
