"""SIGKILL at random moments, over and over: the run that comes out is the one that was never disturbed."""

from __future__ import annotations

import json
import random
import shutil
import time
from pathlib import Path

import pytest

from runs import lines, start, state, train

STEPS = 4096
KILLS = 20
OPTIONS = ("--steps", str(STEPS), "--checkpoint-every", "16", "--eval-every", "0")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> tuple[Path, float]:
    """A run to the end, and the seconds until its first line."""
    folder = tmp_path_factory.mktemp("storm")
    process, begin = start(*OPTIONS, name="whole", cwd=folder, quiet=True), time.monotonic()
    log = folder / "runs/whole/run.jsonl"
    while process.poll() is None and not (log.exists() and log.stat().st_size):
        time.sleep(0.01)
    first_line = time.monotonic() - begin
    assert process.wait(timeout=300) == 0
    return folder / "runs" / "whole", first_line


def test_a_run_killed_twenty_times_equals_the_undisturbed_one(undisturbed: tuple[Path, float]) -> None:
    whole, first_line = undisturbed
    folder, run = whole.parents[1], whole.parent / "killed"
    chance, kills, lost = random.Random(20), 0, 0
    while kills < KILLS:
        manifest = run / "manifest.json"
        if manifest.exists() and json.loads(manifest.read_text())["status"] == "done":
            shutil.rmtree(run)  # it got to its end between two kills: once more from the start
        begun = any((run / "checkpoints").glob("step-*")) if run.exists() else False
        if not begun:
            shutil.rmtree(run, ignore_errors=True)
        process = start("--resume", "runs/killed", cwd=folder, quiet=True) if begun else start(
            *OPTIONS, name="killed", cwd=folder, quiet=True
        )  # fmt: skip
        try:
            process.wait(timeout=chance.uniform(0.5, 1.0) * first_line + chance.uniform(0.0, 0.6))
            assert process.returncode == 0, "ended on its own, and not well"
        except Exception as error:
            if type(error).__name__ != "TimeoutExpired":
                raise
            process.kill()
            process.wait()
            kills += 1
            lost += not any((run / "checkpoints").glob("step-*")) if begun else 0
    assert lost == 0, "a kill took the last checkpoint away"
    done = train("--resume", "runs/killed", cwd=folder) if any((run / "checkpoints").glob("step-*")) else train(
        *OPTIONS, name="killed", cwd=folder
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert lines(run) == lines(whole)
    assert state(run, STEPS) == state(whole, STEPS)
    assert not list((run / "checkpoints").glob(".*")), "leftovers of killed writers"
