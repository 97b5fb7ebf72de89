"""The JSON schema of run.jsonl: a valid schema, met by what runs write, and broken by what they must not write."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from foxhunt_cli.api import train
from foxhunt_cli.diag.fields import live_slots, record
from foxhunt_cli.diag.schema import shipped
from foxhunt_cli.diag.writer import encode
from foxhunt_cli.isv.table import ISV_SIZE, number, slots

SMALL = {"device": "cpu", "encoder": "mlp", "batch": 4, "replay_batch": 32, "holdout": 0, "replay_capacity": 1024}
PRESETS = {
    "foxhunt": {"rollout": 8, "updates": 1, "steps": 64},
    "seed": {"preset": "seed", "steps": 40},
    "policy alone": {"rollout": 8, "updates": 0, "steps": 16},
}


def problems(line: object) -> list[str]:
    return [error.message for error in Draft202012Validator(shipped()).iter_errors(line)]


def full_line() -> dict:
    isv = np.zeros(ISV_SIZE, np.float32)
    isv[number("TRADES_CLOSED")] = 1.0
    extra = {"step": 0, "iteration": 1, "time": 0.0, "perf.env_steps_per_s": 1.0, "perf.step_us": 1.0}
    return json.loads(encode(record(isv, slots(), extra)))


def test_the_schema_is_one_and_holds_every_field() -> None:
    Draft202012Validator.check_schema(shipped())
    assert problems(full_line()) == []


@pytest.mark.parametrize("preset", PRESETS)
def test_every_line_of_a_run_meets_it(preset: str, tmp_path: Path) -> None:
    run = train(**SMALL, **PRESETS[preset], name="x", runs_dir=tmp_path, synthetic__snapshots=12000)
    lines = [json.loads(line) for line in (run.path / "run.jsonl").read_text().splitlines()]
    assert len(lines) == run.manifest["config"]["steps"] // run.manifest["config"]["rollout"]
    assert [problem for line in lines for problem in problems(line)] == []


def test_a_number_that_is_not_finite_is_allowed_and_named() -> None:
    isv = np.zeros(ISV_SIZE, np.float32)
    isv[number("LOSS_V")] = np.nan
    line = json.loads(encode(record(isv, slots(), {"step": 0, "iteration": 1, "time": 0.0})))
    assert line["loss"]["v"] is None and line["nonfinite"] == ["loss.v"] and problems(line) == []


def test_what_a_person_set_is_in_every_line() -> None:
    extra = {"step": 0, "iteration": 1, "time": 0.0}
    line = json.loads(encode(record(np.zeros(ISV_SIZE, np.float32), live_slots(()), extra)))
    assert problems(line) == []
    for broken in (("controllers", "gamma"), ("isv_config", "p_min")):
        bad = copy.deepcopy(line)
        del bad[broken[0]][broken[1]]
        assert len(problems(bad)) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda line: line.update(extra=1),
        lambda line: line["loss"].update(w=1.0),
        lambda line: line["loss"].update(v="0.1"),
        lambda line: line.update(step=1.5),
        lambda line: line.pop("nonfinite"),
        lambda line: line["actions"]["share"].pop(),
        lambda line: line["actions"]["share"].append(0.0),
        lambda line: line["units"].update(active=[0.0]),
    ],
)
def test_other_lines_break_it(change) -> None:
    line = full_line()
    change(line)
    assert len(problems(line)) == 1
