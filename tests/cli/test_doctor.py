"""``foxhunt doctor`` on this machine, and what it concludes from what it finds."""

from __future__ import annotations

import json

import pytest

from foxhunt_cli.cli import machine
from foxhunt_cli.cli.app import main
from foxhunt_cli.cli.machine import Finding, examine, usable_devices

GPU, CUPY, NVRTC = (Finding(topic, "ok", "") for topic in ("GPU", "CuPy", "NVRTC"))
COMPILER = Finding("compiler", "ok", "")


@pytest.mark.parametrize(
    ("findings", "devices"),
    [
        ([], []),
        ([COMPILER], ["cpu"]),
        ([GPU, CUPY, NVRTC], ["cuda"]),
        ([GPU, CUPY, NVRTC, COMPILER], ["cuda", "cpu"]),
        ([GPU, NVRTC, COMPILER], ["cpu"]),
        ([COMPILER, Finding("package", "missing", "numpy is not installed")], []),
    ],
)
def test_what_can_train(findings, devices):
    assert usable_devices(findings) == devices


def test_everything_that_is_missing_has_a_fix():
    assert [finding for finding in examine() if finding.mark in ("missing", "absent") and not finding.fix] == []


def test_no_compiler_names_both_remedies(monkeypatch):
    monkeypatch.setattr(machine, "compiler_command", lambda: None)
    (finding,) = machine._compiler()
    assert finding.mark == "missing"
    assert "apt install g++" in finding.fix
    assert "foxhunt[cpu]" in finding.fix


def test_a_compiler_that_was_asked_for_and_does_not_start_is_missing(monkeypatch):
    """The CPU device takes no other in its place."""
    monkeypatch.setenv("CXX", "no-such-compiler -O3")
    (finding,) = machine._compiler()
    assert (finding.mark, finding.fix) == ("missing", "unset CXX or name a C++17 compiler")
    assert "no-such-compiler -O3" in finding.text


def test_json_and_exit_status(capsys, monkeypatch):
    for findings, status in (([COMPILER], 0), ([], 3)):
        monkeypatch.setattr(machine, "examine", lambda findings=findings: findings)
        with pytest.raises(SystemExit) as ended:
            main(["doctor", "--json"])
        assert ended.value.code == status
        assert json.loads(capsys.readouterr().out)["devices"] == (["cpu"] if findings else [])
