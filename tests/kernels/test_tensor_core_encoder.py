"""The encoder's kernels with tensor cores on the CPU device, whose threads compute what the tensor cores would."""

from __future__ import annotations

import pytest
from tensor_cores import emulated, trial_of

from foxhunt_cli.oracles import base, encoder_tf32


@pytest.fixture(scope="module")
def contracts(tmp_path_factory):
    files = ("mamba2_forward_tf32.cu", "mamba2_backward_tf32.cu", "vsn_forward_tf32.cu", "vsn_backward_tf32.cu")
    return emulated(tmp_path_factory.mktemp("encoder"), files)


@pytest.fixture
def trial(contracts, monkeypatch):
    yield from trial_of(contracts, monkeypatch, (base,))


def test_mamba2_chunks_match_the_steps(trial) -> None:
    encoder_tf32.compare_sizes(trial, ((1, 1), (3, 2), (16, 1), (17, 1), (47, 2)))


def test_mamba2_chunks_with_extreme_decays(trial) -> None:
    encoder_tf32.compare_decays(trial)


def test_mamba2_chunks_keep_rows_apart(trial) -> None:
    encoder_tf32.compare_rows(trial)


def test_vsn_in_matches_the_steps(trial) -> None:
    encoder_tf32.compare_selection(trial)


def test_vsn_in_backward_matches_the_steps(trial) -> None:
    encoder_tf32.compare_selection_backward(trial)
