"""Every example runs, from an empty folder, on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import foxhunt_cli

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PACKAGE_PARENT = str(Path(foxhunt_cli.__file__).parents[1])


def run(folder: Path, *arguments: str) -> str:
    path = os.pathsep.join(filter(None, [PACKAGE_PARENT, os.environ.get("PYTHONPATH")]))
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, env={**os.environ, "PYTHONPATH": path}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("train_synthetic.py", ["trained: runs/", "numbers: finite throughout", "held-out:"]),
        ("train_databento.py", ["instrument ES, run runs/", "snapshots trained on"]),
        ("custom_instrument.py", ["TULIP: runs/"]),
        ("hindsight_ablation.py", ["path", "none", "net USD / 1,000 steps"]),
    ],
)
def test_example(tmp_path: Path, script: str, words: list[str]) -> None:
    out = run(tmp_path, str(EXAMPLES / script))
    for word in words:
        assert word in out


def test_configuration_and_reading(tmp_path: Path) -> None:
    config = ["--config", str(EXAMPLES / "small.toml"), "--device", "cpu", "--name", "small"]
    run(tmp_path, "-m", "foxhunt_cli.cli", "train", *config)
    out = run(tmp_path, str(EXAMPLES / "read_run.py"), "runs/small")
    assert out.count("to step") == 4 and "256:" in out and "fees" in out


def test_every_example_is_listed_and_run() -> None:
    names = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".toml")}
    listed, tested = (EXAMPLES / "README.md").read_text(), Path(__file__).read_text()
    assert all(f"`{name}`" in listed and f'"{name}"' in tested for name in names)
