"""A case that fails says what its last kernel was given, one that does not apply to the device says why."""

from __future__ import annotations

import numpy as np

from foxhunt_cli.device.cpu import CpuDevice
from foxhunt_cli.oracles.base import Case, Trial, run_case


def _vsn(trial: Trial) -> np.ndarray:
    x = np.full((1, 1, 56), 2.0, np.float32)
    arrays = {"x": x, "bias": np.zeros(56, np.float32), "gate": np.zeros_like(x), "out": np.zeros_like(x)}
    return trial.run("vsn_forward", arrays, W=1, B=1)["out"]


def _fails(trial: Trial) -> None:
    trial.close("right", 2.0, _vsn(trial), 1e-6)
    trial.close("wrong", 3.0, _vsn(trial), 1e-6)


def _breaks(trial: Trial) -> None:
    _vsn(trial)
    raise ValueError("no such thing")


def test_a_failing_case_shows_what_its_last_kernel_was_given() -> None:
    result = run_case(Case("frame", "fails", _fails), CpuDevice())
    assert [check.ok for check in result.checks] == [True, False]
    assert result.inputs.splitlines()[0] == "vsn_forward, 1 blocks of 64: W 1, B 1"
    assert "  x [1x1x56] [2., 2., 2., 2., 2., 2., ...], range 2 .. 2" in result.inputs.splitlines()


def test_a_case_that_breaks_shows_them_too() -> None:
    result = run_case(Case("frame", "breaks", _breaks), CpuDevice())
    assert not result.passed and "no such thing" in result.error and result.inputs.startswith("vsn_forward")


def test_a_passing_case_shows_none() -> None:
    result = run_case(Case("frame", "passes", lambda t: t.close("right", 2.0, _vsn(t), 1e-6)), CpuDevice())
    assert result.passed and not result.inputs


def test_a_case_for_hopper_is_skipped_on_the_cpu_with_its_reason() -> None:
    result = run_case(Case("frame", "hopper", lambda t: t.needs_tensor_cores()), CpuDevice())
    assert result.skipped == "needs an NVIDIA GPU of compute capability 9.0 or newer" and not result.checks


def test_a_case_that_checks_nothing_has_not_passed() -> None:
    assert not run_case(Case("frame", "empty", lambda t: None), CpuDevice()).passed
