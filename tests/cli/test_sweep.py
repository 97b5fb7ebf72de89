"""``foxhunt sweep``: one run at a time without Ray, and whole sweeps on a Ray of this machine."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from foxhunt_cli.sweep import folder
from foxhunt_cli.sweep.plan import plan
from foxhunt_cli.sweep.work import DONE, FAILED, STOPPED, attempt
from foxhunt_cli.train.run_dir import read_manifest

TINY = ["encoder=mlp", "batch=2", "synthetic.snapshots=20000", "eval_every=0", "checkpoint_every=0"]
HAS_RAY = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not HAS_RAY, reason="ray is not installed; pip install 'foxhunt[ray]'")


def begun(place: Path, *sets: str):
    """A sweep of one run, as the command leaves it to Ray."""
    (run,) = plan("s", (), 1, sets=[*TINY, f"runs_dir={place}", *sets])
    folder.begin(place / "s", [run])
    folder.write_config(place / "s", run, "cpu", 1)
    return place / "s", run.label


def wait_for(path: Path, process: subprocess.Popen | None = None) -> None:
    """Until ``path`` has content; a process that ended before is a failure."""
    end = time.monotonic() + 120
    while not (path.exists() and path.stat().st_size):
        assert time.monotonic() < end and (process is None or process.poll() is None), path
        time.sleep(0.1)


def test_a_run_is_stopped_saved_resumed_and_done(tmp_path) -> None:
    place, label = begun(tmp_path, "steps=3000")
    found = []
    thread = threading.Thread(target=lambda: found.append(attempt(place, label)))
    thread.start()
    wait_for(place / label / "run.jsonl")
    folder.ask_to_stop(place, True)
    thread.join(60)
    assert found[0].state == STOPPED and read_manifest(place / label)["status"] == "interrupted"
    assert attempt(place, label).state == STOPPED  # nothing begins while the sweep is stopping
    folder.ask_to_stop(place, False)
    assert attempt(place, label).state == DONE and folder.is_done(place, label)
    assert f"resume: {place / label} from step" in folder.log_path(place, label).read_text()
    assert read_manifest(place / label)["summary"]["steps"] == 3008


def test_a_run_that_fails_says_why_and_is_tried_again(tmp_path) -> None:
    place, label = begun(tmp_path, "steps=32", "synthetic.snapshots=100")
    outcome = attempt(place, label)
    assert outcome.state == FAILED and "longest session" in outcome.reason and "\n" not in outcome.reason
    (place / label).mkdir()  # what a killed process leaves before its first checkpoint
    assert attempt(place, label).reason == outcome.reason


@pytest.mark.skipif(HAS_RAY, reason="ray is installed")
def test_without_ray_it_says_what_to_install_and_writes_nothing(tmp_path, foxhunt, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    status, _, err = foxhunt("sweep", "x", "--seeds", "2")
    assert (status, "pip install 'foxhunt[ray]'" in err, list(tmp_path.iterdir())) == (2, True, [])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["x/y"], "NAME: expected"),
        (["x", "--set", "name=z"], "give NAME as the argument"),
        (["x", "--device", "cuda:1"], "use --device cuda"),
        (["x", "--vary", "batch=2,4", "-b", "8"], "batch is given by --batch too"),
    ],
)
def test_wrong_requests_are_refused_before_anything_starts(tmp_path, foxhunt, monkeypatch, arguments, words) -> None:
    monkeypatch.chdir(tmp_path)
    status, _, err = foxhunt("sweep", *arguments)
    assert (status, words in err, list(tmp_path.iterdir())) == (2, True, []), err


def command(*arguments: str) -> list[str]:
    sets = [word for text in TINY for word in ("--set", text)]
    return [sys.executable, "-m", "foxhunt_cli.cli", "sweep", "s", "--device", "cpu", *sets, *arguments]


@needs_ray
def test_a_sweep_ends_with_one_table_and_a_failure_stops_nothing(tmp_path) -> None:
    asked = command("--seeds", "2", "--steps", "32", "--vary", "synthetic.snapshots=20000,100", "--json")
    done = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, timeout=400)
    found = json.loads(done.stdout)
    assert done.returncode == 1, done.stderr
    assert [(row["done"], row["failed"]) for row in found["rows"]] == [(2, 0), (0, 2)]
    assert found["rows"][0]["rule"] and found["rows"][0]["net"] is not None
    assert [run["state"] for run in found["runs"]] == ["done", "done", "failed", "failed"]
    assert "longest session" in found["runs"][3]["reason"] and done.stderr.count("\nbegan ") == 4
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs" / "s").glob("*-20000--*/manifest.json")}
    again = subprocess.run([*asked[:5], "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=400)
    assert json.loads(again.stdout)["rows"][0] == found["rows"][0]
    assert len(before) == 2 and before == {path: path.stat().st_mtime_ns for path in before}
    other = subprocess.run([*asked, "--set", "keep=9"], cwd=tmp_path, capture_output=True, text=True, timeout=400)
    assert other.returncode == 2 and "another sweep of that name" in other.stderr


@needs_ray
def test_ctrl_c_saves_and_the_name_alone_goes_on(tmp_path) -> None:
    asked = command("--seeds", "2", "--steps", "6000")
    with subprocess.Popen(
        asked, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        wait_for(tmp_path / "runs" / "s" / "seed-0" / "run.jsonl", process)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: Ray's processes get it too
        out, err = process.communicate(timeout=120)
    assert process.returncode == 130 and "stopping: the runs save and end" in err
    assert "go on with the same command, or: foxhunt sweep s\n" in out
    assert read_manifest(tmp_path / "runs" / "s" / "seed-0")["status"] == "interrupted"
    done = subprocess.run(asked[:5], cwd=tmp_path, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0 and "2 of 2" in done.stdout, done.stderr
    assert "resume: " in folder.log_path(tmp_path / "runs" / "s", "seed-0").read_text()
