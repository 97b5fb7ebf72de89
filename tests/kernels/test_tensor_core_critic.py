"""Whole critic updates by their tensor-core kernels on the CPU device, whose threads compute what the cores would.

Their source as it is, apart from ``mma.cuh`` (``tf32_on_cpu.cuh``). Shared memory is poisoned and threads run in an
order other than their numbers'.
"""

from __future__ import annotations

import pytest
from tensor_cores import emulated, trial_of

from foxhunt_cli.nets import c51_update, iqn
from foxhunt_cli.oracles import critic_rig, critic_update
from foxhunt_cli.pipeline import build

FILES = ("c51_next_tf32.cu", "c51_update_tf32.cu", "iqn_update_tf32.cu")


@pytest.fixture(scope="module")
def contracts(tmp_path_factory):
    return emulated(tmp_path_factory.mktemp("critic"), FILES)


@pytest.fixture
def trial(contracts, monkeypatch):
    yield from trial_of(contracts, monkeypatch, (build, critic_rig))


@pytest.mark.parametrize(("rows", "classes", "hindsight", "updates"), [(40, 3, "path", 2), (21, 1, "none", 2)])
def test_updates_equal_their_steps(trial, rows: int, classes: int, hindsight: str, updates: int) -> None:
    critic_update.compare_updates(trial, rows, classes, hindsight, updates)


def test_wide_kernel_of_large_batches(trial, monkeypatch) -> None:
    monkeypatch.setattr(c51_update, "WIDE_FROM", 1)
    critic_update.compare_updates(trial, 70, 3, "path", 1)


def test_quantile_kernel_of_more_rows_than_one_tile_a_block(trial, monkeypatch) -> None:
    monkeypatch.setattr(iqn, "FEW_ROWS", 0)
    critic_update.compare_updates(trial, 40, 3, "path", 1)
