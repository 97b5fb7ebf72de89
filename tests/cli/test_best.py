"""``--best``: the checkpoint that earned most on held-out data is kept, evaluated on demand, and survives a resume."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foxhunt_cli.cli.console import Terminal
from foxhunt_cli.config.load import ConfigError, load_config
from foxhunt_cli.market.evaluate import Evaluation, Evaluator
from foxhunt_cli.train import checkpoint
from foxhunt_cli.train.evaluate import evaluate_run
from foxhunt_cli.train.loop import NET, RunSummary
from foxhunt_cli.train.loop import train as train_run
from foxhunt_cli.train.resume import resumed_config

SMALL = ["device=cpu", "encoder=mlp", "batch=4", "rollout=8", "updates=1", "replay_batch=32", "replay_capacity=1024",
         "synthetic.snapshots=20000", "steps=64", "eval_every=16", "checkpoint_every=16", "best=true"]  # fmt: skip


def run(folder: Path, *sets: str) -> RunSummary:
    return train_run(load_config(sets=[*SMALL, f'runs_dir="{folder}"', *sets]), Terminal(quiet=True))


@pytest.fixture
def scores(monkeypatch) -> list[float]:
    """What the next evaluations say that the policy earned, instead of playing it."""
    planned: list[float] = []

    def say(evaluator: Evaluator, *_: object) -> Evaluation:
        return Evaluation({"agent": {NET: planned.pop(0), "trades": 1.0}})

    monkeypatch.setattr(Evaluator, "agent", say)
    monkeypatch.setattr(Evaluator, "all_policies", say)
    return planned


@pytest.mark.parametrize(
    ("said", "best"),
    [([5.0, 9.0, 7.0, 8.0], 32), ([5.0, 5.0, 5.0, 5.0], 16), ([-3.0, -2.0, -1.0, 4.0], 64), ([1.0, 0.0, 0.0, 0.0], 16)],
)
def test_the_best_is_kept_beside_the_newest(tmp_path: Path, scores: list[float], said: list[float], best: int) -> None:
    scores += said
    summary = run(tmp_path, "name=one", "keep=1")
    assert scores == []
    assert [p.name for p in sorted((summary.run / "checkpoints").iterdir())] == [f"best-{best:09d}", "step-000000064"]
    assert (summary.figures["best_step"], summary.figures["best_net_usd_per_1000_steps"]) == (best, max(said))
    assert checkpoint.best(summary.run).name == f"best-{best:09d}"
    assert checkpoint.progress(checkpoint.best(summary.run))["held_out"] == max(said)


def test_a_resumed_run_knows_what_was_best(tmp_path: Path, scores: list[float]) -> None:
    scores += [5.0, 9.0, 7.0, 8.0]
    run(tmp_path, "name=one")
    scores += [8.5, 8.9]
    more = resumed_config(tmp_path / "one", [])
    summary = train_run(more.model_copy(update={"steps": 96}), Terminal(quiet=True), tmp_path / "one")
    assert summary.figures["best_step"] == 32
    scores += [9.5, 1.0]
    summary = train_run(more.model_copy(update={"steps": 128}), Terminal(quiet=True), tmp_path / "one")
    assert summary.figures["best_step"] == 112


def test_a_damaged_best_is_not_played(tmp_path: Path, scores: list[float]) -> None:
    scores += [5.0, 9.0, 7.0, 8.0]
    summary = run(tmp_path, "name=one")
    (checkpoint.best(summary.run) / "state.safetensors").write_bytes(b"")
    assert checkpoint.best(summary.run) is None


def test_the_best_plays_as_it_did_when_it_was_found(tmp_path: Path) -> None:
    """Figures of ``eval --best`` are those of the evaluation that chose it."""
    summary = run(tmp_path, "name=one", "isv.p_min=0.08", "isv.lr_pi=0.001", "seed=3")
    step = summary.figures["best_step"]
    found = tmp_path / "one" / "eval" / ("final.json" if step == 64 else f"step-{step:09d}.json")
    agent = evaluate_run(summary.run, Terminal(quiet=True), "cpu", best=True).policies["agent"]
    wanted = json.loads(found.read_text())["policies"]["agent"]
    assert all(agent[name] == value for name, value in wanted.items() if value is not None)


def test_a_run_without_one_says_so(tmp_path: Path, scores: list[float]) -> None:
    scores += [5.0, 9.0, 7.0, 8.0]
    summary = run(tmp_path, "name=one", "best=false")
    with pytest.raises(checkpoint.FileError, match="keeps no best checkpoint"):
        evaluate_run(summary.run, Terminal(quiet=True), "cpu", best=True)


@pytest.mark.parametrize("sets", [["eval_every=0"], ["holdout=0"]])
def test_without_evaluations_there_is_nothing_to_choose_by(sets: list[str]) -> None:
    with pytest.raises(ConfigError, match="best needs evaluations"):
        load_config(sets=["best=true", *sets])
