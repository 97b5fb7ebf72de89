"""Whole critic updates by their tensor-core kernels on the CPU device, whose threads compute what the cores would.

Their source as it is, apart from ``mma.cuh`` (``tf32_on_cpu.cuh``). Shared memory is poisoned and threads run in an
order other than their numbers'.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from foxhunt_cli.device.cpu import CpuDevice
from foxhunt_cli.kernels.contract import parse_file
from foxhunt_cli.kernels.registry import cuda_root, kernel
from foxhunt_cli.nets import c51_update
from foxhunt_cli.oracles import critic_rig, critic_update
from foxhunt_cli.oracles.base import Trial
from foxhunt_cli.pipeline import build

FILES = ("c51_next_tf32.cu", "c51_update_tf32.cu", "iqn_update_tf32.cu")
FOLDERS = ("include", "generated", "env", "nets", "replay", "fused", "cuda_only")


@pytest.fixture(scope="module")
def contracts(tmp_path_factory):
    root = tmp_path_factory.mktemp("critic") / "cuda_src"
    for folder in FOLDERS:
        shutil.copytree(cuda_root() / folder, root / folder, ignore=shutil.ignore_patterns("*.cu"))
    shutil.copy(Path(__file__).parent / "tf32_on_cpu.cuh", root / "cuda_only" / "mma.cuh")
    copies = [shutil.copy(cuda_root() / "cuda_only" / name, root / "fused" / name) for name in FILES]
    return {contract.name: contract for copy in copies for contract in parse_file(Path(copy))}


@pytest.fixture
def trial(contracts, monkeypatch):
    for module in (build, critic_rig):
        monkeypatch.setattr(module, "kernel", lambda name: contracts.get(name) or kernel(name))
    trial = Trial(CpuDevice(order="random:2", poison=True))
    yield trial
    assert trial.checks
    assert all(check.ok for check in trial.checks), [vars(check) for check in trial.checks if not check.ok]


@pytest.mark.parametrize(("rows", "classes", "hindsight", "updates"), [(40, 3, "path", 2), (21, 1, "none", 2)])
def test_updates_equal_their_steps(trial, rows: int, classes: int, hindsight: str, updates: int) -> None:
    critic_update.compare_updates(trial, rows, classes, hindsight, updates)


def test_wide_kernel_of_large_batches(trial, monkeypatch) -> None:
    monkeypatch.setattr(c51_update, "WIDE_FROM", 1)
    critic_update.compare_updates(trial, 70, 3, "path", 1)
