"""The runner of other schedules finds what it is for; a few suites run here, all of them in ``.ci/run``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import run_oracles
from run_oracles import all_cases, compare, in_sanitized_process

from foxhunt_cli.device.base import DeviceError, Launch
from foxhunt_cli.kernels.contract import parse_file
from foxhunt_cli.oracles.base import Case, Trial

PLANTED = Path(__file__).parents[1] / "faults" / "planted"


def case_of(name: str, *, read: bool = True) -> Case:
    """An oracle that launches a planted kernel and is content with whatever comes."""
    contract = {c.name: c for c in parse_file(PLANTED / "races.cu")}[name]

    def oracle(trial: Trial) -> None:
        values = {
            "in": trial.device.upload(np.random.default_rng(0).standard_normal(64).astype(np.float32)),
            "N": 64 if contract.launch.mode == "threads" else 1,
        }
        values["out"] = trial.device.zeros(64, np.float32)
        args = tuple(values[p.name] for p in contract.params)
        trial.device.plan([Launch(contract, 1, 64, 256, args)]).run()
        trial.true("ran", np.isfinite(trial.device.download(values["out"])).all() if read else True)

    return Case("planted", name, oracle)


@pytest.mark.parametrize("name", ["missing_barrier", "scan_missing_barrier", "last_writer"])
def test_a_planted_race_is_found_although_its_oracle_passes(name: str) -> None:
    problems = compare([case_of(name)])
    assert problems and all(name in problem for problem in problems)
    assert any("bits differ" in problem or "ran: expected true" in problem for problem in problems)


def test_a_kernel_without_races_gives_the_same_bits() -> None:
    assert compare([case_of("correct_scan")]) == []


def test_an_oracle_that_checks_nothing_is_a_problem() -> None:
    assert "checked nothing" in compare([Case("planted", "empty", lambda trial: None)])[0]


def test_no_oracles_are_no_success() -> None:
    with pytest.raises(ValueError, match="no oracles chosen"):
        compare(all_cases(["no such suite"]))


def test_suites_with_barriers_pass_in_reverse_and_random_order() -> None:
    assert compare(all_cases(["c51", "popart", "spectral"])) == []


def test_a_suite_passes_under_the_sanitizers() -> None:
    try:
        done = in_sanitized_process(["c51"])
    except DeviceError as error:
        pytest.skip(str(error))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "c51/" in done.stdout and ", 0 problems" in done.stdout


def test_every_schedule_differs_from_the_plain_one() -> None:
    labels = {schedule.label for schedule in (run_oracles.PLAIN, *run_oracles.SCHEDULES)}
    assert len(labels) == 1 + len(run_oracles.SCHEDULES)
