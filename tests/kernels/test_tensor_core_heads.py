"""The heads' kernels with tensor cores on the CPU device, whose threads compute what the tensor cores would.

Their source as it is, apart from ``mma.cuh``: rounding and the instruction stand in ``tf32_on_cpu.cuh``. Shared memory
is poisoned and threads run in another order than their numbers'.
"""

from __future__ import annotations

import pytest
from tensor_cores import emulated, trial_of

from foxhunt_cli.nets import policy
from foxhunt_cli.oracles import distill_fused, head_rig, iqn_update, policy_heads, supervised
from foxhunt_cli.pipeline import build

FILES = ("iqn_update_tf32.cu", "ensemble_tf32.cu", "heads_update_tf32.cu", "policy_heads_tf32.cu")


@pytest.fixture(scope="module")
def contracts(tmp_path_factory):
    return emulated(tmp_path_factory.mktemp("heads"), FILES)


@pytest.fixture
def trial(contracts, monkeypatch):
    yield from trial_of(contracts, monkeypatch, (build, head_rig))


@pytest.mark.parametrize("path", [True, False])
def test_iqn_update_equals_its_steps(trial, path: bool) -> None:
    sizes = ((7, 5, 32, None), (1, 9, 8, None), (20, 1, 13, None))
    iqn_update.compare_update(trial, "tf32", path, iqn_update.TF32, sizes)


def test_action_values_match_float64(trial) -> None:
    distill_fused.compare_values(trial, ((1, 9), (270, 1), (33, 9)))


@pytest.mark.parametrize("kernel_for", [1, 100_000])
def test_heads_equal_their_steps(trial, kernel_for: int) -> None:
    """Small tiles, and the large ones that many rows get."""
    supervised.compare_heads(trial, "tf32", supervised.TF32, ((3, 4, 9), (1, 1, 9), (2, 33, 17)), kernel_for)


@pytest.mark.parametrize("few_rows", [0, 4096])
def test_policy_products_match_float64(trial, monkeypatch, few_rows: int) -> None:
    """Large tiles, and the small ones that few rows get."""
    monkeypatch.setattr(policy, "FEW_ROWS", few_rows)
    policy_heads.compare_products(trial, ((1, 1, 9), (3, 27, 9), (5, 7, 1), (2, 9, 17)))
