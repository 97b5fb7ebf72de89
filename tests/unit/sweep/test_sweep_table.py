"""Figures of a sweep, from run directories written by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from foxhunt_cli.config.load import Setting
from foxhunt_cli.sweep.plan import plan
from foxhunt_cli.sweep.table import rows, run_figures
from foxhunt_cli.train import run_dir

NET = "net USD / 1,000 steps"


def finished(place: Path, run, agent: float | None, flow: float, status: str = "done") -> None:
    path = place / run.label
    (path / "eval").mkdir(parents=True)
    facts = {"config": run_dir.recorded(run.config), "data": {"digest": "d"}, "kernel_hash": "k"}
    run_dir.write_manifest(path, facts | {"status": status, "summary": {"seconds": 2.0 + run.seed}})
    nets = {"agent": agent, "critic": 7.0, "hold": 0.0, "flow": flow}
    policies = {who: {NET: net, "trades": 10 * (run.seed + 1)} for who, net in nets.items()}
    run_dir.write_json(path / "eval" / "final.json", {"policies": policies})


@pytest.fixture
def runs(tmp_path):
    return plan("s", ["batch=2,4"], 3, options=[Setting("runs_dir", tmp_path, "here")])


def test_a_row_has_medians_and_the_range_over_the_seeds(tmp_path, runs) -> None:
    for run, agent in zip(runs[:3], (5.0, -1.0, 30.0), strict=True):
        finished(tmp_path, run, agent, flow=3.0)
    first, second = rows([run_figures(tmp_path, run, {}) for run in runs])
    assert first == {
        "setting": {"batch": 2}, "seeds": 3, "done": 3, "failed": 0, "net": 5.0, "least": -1.0, "largest": 30.0,
        "critic": 7.0, "rule": "flow", "rule net": 3.0, "trades": 20.0, "seconds": 3.0,
    }  # fmt: skip
    assert (second["done"], second["rule"]) == (0, None)
    assert all(math.isnan(second[key]) for key in ("net", "least", "largest", "critic", "rule net", "seconds"))


def test_failed_and_unfinished_runs_are_counted_not_averaged(tmp_path, runs) -> None:
    finished(tmp_path, runs[0], 5.0, flow=-3.0)
    finished(tmp_path, runs[1], 100.0, flow=-3.0, status="interrupted")
    figures = [run_figures(tmp_path, run, {runs[2].label: "no space"}) for run in runs[:3]]
    assert [run["state"] for run in figures] == ["done", "unfinished", "failed"]
    assert figures[2]["reason"] == "no space"
    (row,) = rows(figures)
    assert (row["done"], row["failed"], row["net"], row["rule"], row["rule net"]) == (1, 1, 5.0, "hold", 0.0)


def test_a_number_that_was_none_stays_none(tmp_path, runs) -> None:
    finished(tmp_path, runs[0], None, flow=3.0)
    finished(tmp_path, runs[1], 4.0, flow=3.0)
    (row,) = rows([run_figures(tmp_path, run, {}) for run in runs[:2]])
    assert (row["done"], row["net"], row["least"]) == (2, 4.0, 4.0)
