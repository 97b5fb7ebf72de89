"""The kernels of a whole CfC sequence on the CPU device, whose threads exchange what the tensor cores would.

Their source as it is, apart from ``half.cuh``: rounding to half and the instruction stand in ``half_on_cpu.cuh``.
"""

import shutil
from pathlib import Path

import pytest

from foxhunt_cli.device.cpu import CpuDevice
from foxhunt_cli.kernels.bind import bind
from foxhunt_cli.kernels.contract import parse_file
from foxhunt_cli.kernels.registry import cuda_root
from foxhunt_cli.nets.cfc import WIDE_FROM
from foxhunt_cli.oracles.base import Trial
from foxhunt_cli.oracles.cfc_sequence import TF32, Sequence, judge
from foxhunt_cli.pipeline.stage import Stage

FILES = ("cfc_forward.cu", "cfc_backward.cu", "cfc_wide.cu")


@pytest.fixture(scope="module")
def contracts(tmp_path_factory):
    root = tmp_path_factory.mktemp("cfc") / "cuda_src"
    for folder in ("include", "generated", "nets", "cuda_only"):
        shutil.copytree(cuda_root() / folder, root / folder, ignore=shutil.ignore_patterns("*.cu"))
    shutil.copy(Path(__file__).parent / "half_on_cpu.cuh", root / "cuda_only" / "half.cuh")
    copies = [shutil.copy(cuda_root() / "cuda_only" / name, root / "nets" / name) for name in FILES]
    return {contract.name: contract for copy in copies for contract in parse_file(Path(copy))}


class _OnCpu(Sequence):
    """The cell with its sequence kernels taken from ``contracts`` and rows shared out as a case wants."""

    def __init__(self, trial, contracts, W, T, B, like=0, **share):
        super().__init__(trial, W, T, B, like)
        self.contracts, self.share = contracts, {name: str(value) for name, value in share.items()}

    def run(self, steps):
        for step in steps:
            if isinstance(step, Stage) and step.kernel in self.contracts:
                contract = self.contracts[step.kernel]
                own = {p.name for p in contract.params}
                share = {name: value for name, value in self.share.items() if name in own}
                launch = bind(contract, self.arrays, self.dims, {**step.remap, **share})
                self.device.plan([launch], use_graph=False).run_eager()
            else:
                super().run([step])
        self.device.synchronize()


@pytest.mark.parametrize(
    ("order", "W", "T", "B", "rows", "tiles"),
    [("forward", 5, 3, 6, 4, 1), ("reverse", 4, 1, 19, 8, 2), ("random:3", 3, 2, 5, 8, 1), ("forward", 2, 1, 9, 4, 1)],
)
def test_sequence_kernels_match_float64(contracts, order, W, T, B, rows, tiles):
    trial = Trial(CpuDevice(order=order))
    judge(trial, "", _OnCpu(trial, contracts, W, T, B, rows=rows, tiles=tiles), "tf32", TF32)
    assert len(trial.checks) == 11
    assert all(check.ok for check in trial.checks), [vars(check) for check in trial.checks if not check.ok]


def test_the_form_for_many_rows_where_warpgroups_are_missing(contracts):
    trial = Trial(CpuDevice(order="random:1"))
    judge(trial, "", _OnCpu(trial, contracts, 3, 2, 37, like=WIDE_FROM, rows=8, tiles=1), "tf32", TF32)
    assert len(trial.checks) == 11
    assert all(check.ok for check in trial.checks), [vars(check) for check in trial.checks if not check.ok]
