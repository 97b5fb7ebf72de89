"""A folder as a user has it after a first run: runs/demo, runs/other and a market file. Trained once a session."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from foxhunt_cli.cli.app import main

SMALL = ["--device", "cpu", "--steps", "96", "-b", "4", "--rollout", "8", "--encoder", "mlp", "--eval-every", "48"]
SMALL += ["--set", "synthetic.snapshots=20000"]


@pytest.fixture(scope="session")
def _made(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("workplace")
    for arguments in (
        ["train", *SMALL, "--name", "demo"],
        ["data", "make-synthetic", "--snapshots", "5000", "-o", "ESH4.mbp-10.dbn.zst"],
    ):
        command = [sys.executable, "-m", "foxhunt_cli.cli", *arguments]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    shutil.copytree(folder / "runs" / "demo", folder / "runs" / "other")
    manifest = folder / "runs" / "other" / "manifest.json"
    other = json.loads(manifest.read_text())
    other["config"]["lot_limit"] = 2
    manifest.write_text(json.dumps(other))
    return folder


@pytest.fixture
def workplace(_made: Path, tmp_path: Path, monkeypatch) -> Path:
    """A copy of it, as the working directory."""
    folder = tmp_path / "work"
    shutil.copytree(_made, folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def foxhunt(capsys):
    """Runs a command line in this process: exit status, stdout, stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        captured = capsys.readouterr()
        return ended.value.code, captured.out, captured.err

    return run
