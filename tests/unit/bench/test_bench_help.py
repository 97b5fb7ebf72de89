"""The examples of every bench's help run as pasted (those that take minutes are only checked for their options)."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

COMMANDS = ("throughput", "kernels", "replay", "hindsight", "learn")
LONG = ("foxhunt bench learn --encoders mlp --curves",)


def foxhunt(*args: str, cwd: Path | None = None) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "foxhunt_cli.cli", *args]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=600)


def examples(command: str) -> list[str]:
    text = foxhunt("bench", command, "--help").stdout
    joined = re.sub(r"\\\n\s+", "", text)
    return [line.strip() for line in joined.splitlines() if line.strip().startswith("foxhunt bench")]


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_run_as_pasted(command: str, tmp_path: Path) -> None:
    found = examples(command)
    assert found
    for example in found:
        if example.startswith(LONG):
            continue
        done = foxhunt(*shlex.split(example)[1:], cwd=tmp_path)
        assert done.returncode == 0, f"{example}\n{done.stderr}"
        assert len(done.stdout.splitlines()) >= 3


def test_json_is_one_document_with_the_rows() -> None:
    done = foxhunt(
        "bench", "replay", "--device", "cpu", "--capacity", "32768", "--seconds", "0.5", "--peers", "", "--json"
    )
    found = json.loads(done.stdout)
    assert found["rows"][0]["buffer"] == "foxhunt" and found["rows"][0]["us"] > 0


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (("kernels", "-b", "16,x"), "--batch"),
        (("replay", "--peers", "nobody"), "--peers"),
        (("hindsight", "--kinds", "all"), "--kinds"),
        (("replay", "--capacity", "1000"), "power of two"),
    ],
)
def test_usage_errors_name_the_option(args: tuple[str, ...], named: str) -> None:
    done = foxhunt("bench", *args, "--device", "cpu")
    assert done.returncode == 2 and named in done.stderr and "Traceback" not in done.stderr
