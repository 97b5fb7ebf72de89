"""The watch over compute-sanitizer, with a tool that is planted: what it says of a case is kept with that case."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "sanitize.py"
# Takes the tool's own options off and runs the program; what it prints on the way is the test's.
TOOL = """#!{python}
import subprocess, sys
program = sys.argv[sys.argv.index("--error-exitcode") + 2:]
process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
print("========= COMPUTE-SANITIZER")
for line in process.stdout:
    print(line, end="", flush=True)
    {say}
print("========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)")
sys.exit(process.wait())
"""
HAZARD = (
    'print("========= Error: Race reported between Write access and Read access") if "begin isv/{case}" in line else 0'
)
CASE = "isv/signals_start_at_the_sentinel"
NAME = CASE.partition("/")[2]
# Read by every Python that starts with it on its path: the process ends in the middle of one case.
DEATH = """
import os
from foxhunt_cli.oracles import base
run_case = base.run_case
base.run_case = lambda case, device: os._exit(7) if case.name == "{case}" else run_case(case, device)
"""


def watch(folder: Path, say: str, *options: str) -> tuple[subprocess.CompletedProcess[str], dict]:
    """The suite isv on the CPU device under a tool that does ``say`` behind each line; the report of racecheck."""
    tool, report = folder / "compute-sanitizer", folder / "report.json"
    tool.write_text(TOOL.format(python=sys.executable, say=say))
    tool.chmod(0o755)
    variables = {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]),
    }
    command = [sys.executable, str(SCRIPT), "isv", "--tool", "racecheck", "--device", "cpu", "--processes", "2"]
    command += ["--report", str(report), *options]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120)
    return done, json.loads(report.read_text())["tools"]["racecheck"]


def test_clean_cases_are_counted_and_not_run_again(tmp_path: Path) -> None:
    done, rows = watch(tmp_path, "pass")
    assert done.returncode == 0, done.stdout
    assert len(rows) == 5 and {row["result"] for row in rows.values()} == {"clean"}
    assert "racecheck: 5 clean, 0 with findings, 0 cut, 0 not begun" in done.stdout
    again, same = watch(tmp_path, "pass")
    assert "racecheck: 0 clean" in again.stdout and same == rows


def test_what_the_tool_finds_belongs_to_the_case_that_ran(tmp_path: Path) -> None:
    done, rows = watch(tmp_path, HAZARD.format(case=NAME))
    assert done.returncode == 1 and rows[CASE]["result"] == "found"
    assert "Race reported" in rows[CASE]["found"][0]
    assert [name for name, row in rows.items() if row["result"] != "clean"] == [CASE]


def test_a_process_that_ends_in_a_case_is_a_finding_and_the_others_run(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(DEATH.format(case=NAME))
    done, rows = watch(tmp_path, "pass")
    assert done.returncode == 1 and rows[CASE]["found"][0].startswith("the process ended")
    assert sum(row["result"] == "clean" for row in rows.values()) == 4


def test_when_the_time_is_over_nothing_counts_as_clean(tmp_path: Path) -> None:
    done, rows = watch(tmp_path, "__import__('time').sleep(30) if 'begin' in line else 0", "--seconds", "6")
    assert not [row for row in rows.values() if row["result"] == "clean"], done.stdout
    assert "0 clean" in done.stdout


def test_an_unknown_suite_is_named(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "no-such"], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 1 and "no suite or program named 'no-such'" in done.stderr


def test_the_frame_of_a_tool_is_no_finding(tmp_path: Path) -> None:
    frame = ("=========", "========= ERROR SUMMARY: 0 errors", "========= COMPUTE-SANITIZER")
    _, rows = watch(tmp_path, f"print(*{frame!r}, sep=chr(10))")
    assert {row["result"] for row in rows.values()} == {"clean"}
