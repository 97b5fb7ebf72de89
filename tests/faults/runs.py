"""Small training runs as processes, and what is compared of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

CLI = [sys.executable, "-m", "foxhunt_cli.cli"]
# The whole program (encoder, policy, critic, replay, hindsight), at sizes where an iteration takes milliseconds.
SMALL = ["--device", "cpu", "--encoder", "mlp", "-b", "4", "--rollout", "8", "--updates", "1", "--replay-batch", "32"]
SMALL += ["--set", "replay_capacity=1024", "--set", "synthetic.snapshots=12000", "--set", "holdout=0"]
TIME_FIELDS = {"time", "perf"}


def command(*args: str, name: str | None = None) -> list[str]:
    """``foxhunt train`` at small sizes; ``name`` for a new run."""
    return [*CLI, "train", *SMALL, "--name", name, *args] if name else [*CLI, "train", *args]


def train(*args: str, name: str | None = None, cwd: Path, **options) -> subprocess.CompletedProcess[str]:
    """Runs it to its end."""
    return subprocess.run(command(*args, name=name), cwd=cwd, capture_output=True, text=True, timeout=300, **options)


def start(*args: str, name: str | None = None, cwd: Path, quiet: bool = False, **options) -> subprocess.Popen[str]:
    """Starts it in the background. quiet: its words are thrown away."""
    to = subprocess.DEVNULL if quiet else subprocess.PIPE
    return subprocess.Popen(command(*args, name=name), cwd=cwd, stdout=to, stderr=to, text=True, **options)


def wait_for_lines(process: subprocess.Popen[str], run: Path, count: int = 1) -> None:
    """Until the run has logged ``count`` lines."""
    log, deadline = run / "run.jsonl", time.monotonic() + 120
    while not (log.exists() and log.read_bytes().count(b"\n") >= count):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"{run}: no line in two minutes"
        time.sleep(0.01)


def lines(run: Path) -> list[dict]:
    """Records of the run but for what depends on the clock."""
    records = [json.loads(line) for line in (run / "run.jsonl").read_text().splitlines()]
    return [{k: v for k, v in record.items() if k not in TIME_FIELDS} for record in records]


def state(run: Path, step: int) -> bytes:
    """The device state that the run saved at ``step``."""
    return (run / "checkpoints" / f"step-{step:09d}" / "state.safetensors").read_bytes()


def one_error(done: subprocess.CompletedProcess[str], status: int, *words: str) -> None:
    """The command ended with ``status``, one error line that has ``words``, and no traceback."""
    assert done.returncode == status, (done.returncode, done.stderr)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1 and "Traceback" not in done.stderr and "internal error" not in errors[0], done.stderr
    for word in words:
        assert word in errors[0], errors[0]


def environment(**more: str) -> dict[str, str]:
    """This process's variables and ``more``."""
    return {**os.environ, **more}
