"""Kernels with tensor cores on the CPU device, whose threads compute what the tensor cores would.

Their source as it is, apart from ``mma.cuh`` and ``half.cuh``: rounding and instructions stand in ``*_on_cpu.cuh``.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from foxhunt_cli.device.cpu import CpuDevice
from foxhunt_cli.kernels.contract import KernelContract, parse_file
from foxhunt_cli.kernels.registry import cuda_root, kernel
from foxhunt_cli.oracles.base import Trial

FOLDERS = ("include", "generated", "env", "nets", "replay", "fused", "cuda_only")


def emulated(folder: Path, files: Sequence[str]) -> dict[str, KernelContract]:
    """Contracts, by name, of the kernels in ``files`` of ``cuda_only``, copied under ``folder`` for the CPU device."""
    root = folder / "cuda_src"
    for name in FOLDERS:
        shutil.copytree(cuda_root() / name, root / name, ignore=shutil.ignore_patterns("*.cu"))
    for own, name in (("tf32_on_cpu.cuh", "mma.cuh"), ("half_on_cpu.cuh", "half.cuh")):
        shutil.copy(Path(__file__).parent / own, root / "cuda_only" / name)
    copies = [shutil.copy(cuda_root() / "cuda_only" / name, root / "fused" / name) for name in files]
    return {contract.name: contract for copy in copies for contract in parse_file(Path(copy))}


def trial_of(
    contracts: dict[str, KernelContract], monkeypatch: pytest.MonkeyPatch, modules: Sequence[ModuleType]
) -> Iterator[Trial]:
    """A trial in which ``modules`` find the emulated kernels; afterwards every check of it must have held.

    Shared memory is poisoned and threads run in an order other than their numbers'.
    """
    for module in modules:
        monkeypatch.setattr(module, "kernel", lambda name: contracts.get(name) or kernel(name))
    trial = Trial(CpuDevice(order="random:2", poison=True))
    yield trial
    assert trial.checks
    assert all(check.ok for check in trial.checks), [vars(check) for check in trial.checks if not check.ok]
