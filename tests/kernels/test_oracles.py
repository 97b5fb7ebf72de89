"""Every oracle on the CPU device, as built for users. ``FOXHUNT_TEST_DEVICE=cuda`` runs the same bodies on a GPU."""

from __future__ import annotations

import os

import pytest

from foxhunt_cli.device.select import select
from foxhunt_cli.kernels.registry import kernels
from foxhunt_cli.oracles.base import Case, run_case, suites

CASES = [case for cases in suites().values() for case in cases]


@pytest.fixture(scope="session")
def device():
    chosen = select(os.environ.get("FOXHUNT_TEST_DEVICE", "cpu")).device
    chosen.compile(list(kernels().values()))
    return chosen


@pytest.mark.parametrize("case", CASES, ids=[f"{case.suite}-{case.name}" for case in CASES])
def test_oracle(case: Case, device) -> None:
    result = run_case(case, device)
    if result.skipped:
        pytest.skip(result.skipped)
    failed = [
        f"{c.label}: expected {c.expected}, got {c.got}, tolerance {c.tolerance:g}" for c in result.checks if not c.ok
    ]
    assert result.passed, "\n".join([*failed, result.error, result.inputs])
