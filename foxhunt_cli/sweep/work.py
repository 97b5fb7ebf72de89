"""One run of a sweep as an ordinary ``foxhunt train`` in a process of its own: its own CUDA context, its own log.

Knows nothing of Ray; what it needs to know of the other nodes stands in the folder of the sweep.
"""

from __future__ import annotations

import ctypes
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import foxhunt_cli
from foxhunt_cli.sweep.folder import config_path, is_done, is_stopping, log_path
from foxhunt_cli.train import checkpoint

DONE, FAILED, STOPPED = "done", "failed", "stopped"
_LOOK_EVERY_S = 0.5
_BY_SIGNAL = {128 + number for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)}
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Outcome:
    """How an attempt at a run ended: DONE, FAILED for a reason in one line, or STOPPED because that was asked."""

    label: str
    state: str
    reason: str = ""


def attempt(folder: Path, label: str) -> Outcome:
    """Start that run, or go on from its newest checkpoint, and wait for its end. Raises OSError, FileError."""
    if is_stopping(folder):
        return Outcome(label, STOPPED)
    log = log_path(folder, label)
    with log.open("wb") as file:
        command = [sys.executable, "-m", "foxhunt_cli.cli", "train", *_arguments(folder, label)]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=Path(foxhunt_cli.__file__).parents[1],  # where this very package is found, installed or not
            start_new_session=True,  # Ctrl-C on the terminal is the sweep's to pass on
            preexec_fn=_end_with_parent(),
        )
        status = _wait(process, folder)
    if status == 0 and is_done(folder, label):
        return Outcome(label, DONE)
    if is_stopping(folder) and status in _BY_SIGNAL | {0, -signal.SIGTERM}:
        return Outcome(label, STOPPED)
    return Outcome(label, FAILED, _reason(log, status))


def _arguments(folder: Path, label: str) -> list[str]:
    run = folder / label
    if checkpoint.saved(run):
        return ["--resume", str(run)]
    if run.exists():
        shutil.rmtree(run)  # it ended before its first checkpoint: there is nothing to go on from
    return ["--config", str(config_path(folder, label))]


def _wait(process: subprocess.Popen, folder: Path) -> int:
    """Exit status. A run that is asked to stop gets SIGTERM: Ray's workers, and so their children, block SIGINT."""
    asked = False
    while True:
        try:
            return process.wait(_LOOK_EVERY_S)
        except subprocess.TimeoutExpired:
            if not asked and is_stopping(folder):
                process.terminate()
                asked = True


def _end_with_parent():
    """For a child before it starts: where the worker is killed the run ends too, instead of going on alone."""
    prctl = ctypes.CDLL(None).prctl  # looked up here: after a fork nothing should be loaded
    return lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _reason(log: Path, status: int) -> str:
    """The last error in the log, or how the process ended."""
    errors = [line for line in log.read_text(errors="replace").splitlines() if line.startswith("error: ")]
    if errors:
        return errors[-1].removeprefix("error: ")
    return f"ended by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
