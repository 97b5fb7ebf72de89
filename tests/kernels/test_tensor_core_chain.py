"""The encoder's chained layers, and all of it, on the CPU device, whose threads compute what tensor cores would."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tensor_cores import emulated, trial_of

from foxhunt_cli.nets import cfc
from foxhunt_cli.oracles import base, chain
from foxhunt_cli.pipeline import build

FILES = (
    *(f"{part}_{way}_tf32.cu" for part in ("mamba2", "vsn") for way in ("forward", "backward")),
    "cfc_forward.cu",
    "cfc_backward.cu",
    "chain_tf32.cu",
)


@pytest.fixture(scope="module")
def contracts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chain")
    found = emulated(folder, FILES)
    shutil.copy(Path(__file__).parent / "half_on_cpu.cuh", folder / "cuda_src" / "cuda_only" / "half.cuh")
    return found


@pytest.fixture
def trial(contracts, monkeypatch):
    yield from trial_of(contracts, monkeypatch, (base, build))


def test_chained_layers_match_float64(trial) -> None:
    chain.compare(trial, (1, 33, 2130))


def test_whole_encoder_matches_its_steps(trial) -> None:
    """Of many rows the most that do not go to ``cfc_wide.cu``: warpgroups are not emulated."""
    chain.compare_whole(trial, ((19, 3, 3), (17, 1, 2)), many=cfc.WIDE_FROM - 1)
