"""SIGKILL at random moments, over and over: the run that comes out is the one that was never disturbed."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from runs import lines, start, state

STEPS = 1024
KILLS = 20
OPTIONS = ("--steps", str(STEPS), "--checkpoint-every", "32", "--eval-every", "0")


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


def has_checkpoint(run: Path) -> bool:
    return any((run / "checkpoints").glob("step-*"))


def begin_or_resume(run: Path) -> subprocess.Popen[str]:
    """The next process of the run: the first one, or one after a kill."""
    folder = run.parents[1]
    if has_checkpoint(run):
        return start("--resume", f"runs/{run.name}", cwd=folder)
    shutil.rmtree(run, ignore_errors=True)
    return start(*OPTIONS, name=run.name, cwd=folder)


def test_a_run_killed_twenty_times_equals_the_undisturbed_one(undisturbed: tuple[Path, float]) -> None:
    whole, first_line = undisturbed
    run = whole.parent / "killed"
    chance, kills = random.Random(20), 0
    while kills < KILLS:
        safe = has_checkpoint(run)
        process = begin_or_resume(run)
        try:
            words = process.communicate(timeout=chance.uniform(0.5, 1.0) * first_line + chance.uniform(0.0, 0.4))
            assert process.returncode == 0, words
            shutil.rmtree(run)  # it got to its end between two kills: once more from the start
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills += 1
            assert has_checkpoint(run) or not safe, "a kill took the last checkpoint away"
    last = begin_or_resume(run)
    words = last.communicate(timeout=300)
    assert last.returncode == 0, words
    assert lines(run) == lines(whole)
    assert state(run, STEPS) == state(whole, STEPS)
    assert not list((run / "checkpoints").glob(".*")), "leftovers of killed writers"
