"""The Python interface on a real run: the same figures as the log and the commands."""

from __future__ import annotations

import json

import numpy as np
import pytest

from foxhunt_cli import api
from foxhunt_cli.config.load import ConfigError
from foxhunt_cli.diag.writer import FileError


@pytest.fixture
def run(workplace) -> api.Run:
    return api.load("runs/demo")


def test_columns_are_the_log(run):
    records = [json.loads(line) for line in (run.path / "run.jsonl").read_text().splitlines()]
    columns = run.columns(["loss.", "actions.share.2"])
    assert columns["step"].tolist() == [record["step"] for record in records]
    assert columns["loss.v"].tolist() == [record["loss"]["v"] for record in records]
    assert columns["actions.share.2"].tolist() == [record["actions"]["share"][2] for record in records]
    assert {name.split(".")[0] for name in columns} == {"step", "iteration", "time", "loss", "actions"}
    with pytest.raises(KeyError, match="did you mean 'loss.v'"):
        run.columns(["loss.vv"])


def test_a_field_that_some_lines_lack_is_nan_there(run):
    whole = run.columns()
    rate, trades = whole["market.win_rate"], whole["market.trades_closed"]
    np.testing.assert_array_equal(np.isnan(rate), trades == 0)
    assert len({len(values) for values in whole.values()}) == 1


@pytest.mark.parametrize("frame", ["pandas", "polars"])
def test_frames(run, frame):
    pytest.importorskip(frame)
    table = getattr(run, frame)(["loss."])
    assert len(table) == len(run.columns(["loss."])["step"])
    assert "loss.v" in table.columns


def test_evaluation_repeats_the_run_own(run):
    final = json.loads((run.path / "eval" / "final.json").read_text())["policies"]["agent"]
    agent = run.evaluate("cpu").policies["agent"]
    assert agent["net USD"] == final["net USD"] and agent["trades"] == final["trades"]
    assert run.summary().last_step == run.manifest["summary"]["steps"] == 96
    assert run.config.batch == 4


def test_training_from_settings(workplace):
    made = api.train(
        steps=16,
        batch=2,
        rollout=8,
        encoder="mlp",
        device="cpu",
        name="made",
        isv__lr_pi=1e-4,
        synthetic__snapshots=20_000,
    )
    assert made.path.name == "made" and made.config.isv == {"lr_pi": 1e-4}
    assert made.manifest["status"] == "done"


def test_errors_are_those_of_the_commands(workplace):
    with pytest.raises(ConfigError, match="batch="):
        api.train(batch=0)
    with pytest.raises(FileError, match="expected a run directory"):
        api.load("runs/none")
