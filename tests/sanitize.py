"""Oracles and whole programs on a GPU under NVIDIA's compute-sanitizer, several processes at a time.

``python tests/sanitize.py --tool racecheck`` runs every oracle under one tool; suites can be named, and programs:
``smoke``, and ``train`` and ``seed``, some steps of each preset kernel by kernel. ``--seconds`` ends it early; with
``--report FILE``, which is written as it goes, a later call goes on with what is missing: a tool slows kernels down a
hundred times and more. It ends non-zero if a tool or an oracle found something. Needs a GPU and compute-sanitizer.

memcheck and initcheck give every array an allocation of its own, so that neighbours in a memory pool hide nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from foxhunt_cli.oracles.base import suites
from foxhunt_cli.train.run_dir import kernel_hash

WORKER = Path(__file__).with_name("sanitize_worker.py")
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
OWN_ALLOCATIONS = ("memcheck", "initcheck")
# A few iterations in which the critic learns, once its replay is filled; no evaluation.
_TRAIN = ["train", "--no-graph", "-b", "16", "--set", "synthetic.snapshots=20000", "--set", "holdout=0"]
PROGRAMS = {
    "smoke": ["smoke"],
    "train": [*_TRAIN, "--steps", "64", "--replay-batch", "64"],
    "seed": [*_TRAIN, "--steps", "16", "--preset", "seed"],
}
CLEAN, FOUND, CUT = "clean", "found", "cut"
_QUIET = re.compile(r"=+ *(COMPUTE-SANITIZER|(ERROR|LEAK) SUMMARY: 0 .*|RACECHECK SUMMARY: 0 hazards.*)?$")
_FINDINGS = 40  # lines kept of a case
_CONNECT_S = 300  # until the tool takes a process for lost: on a busy machine one needs a minute to load
_SAVE_S = 2.0  # between two writes of the report


@dataclass
class Outcome:
    """Of one case under one tool. ``found``: what the tool or the oracle said; ``cut``: the time was over first."""

    result: str = CUT
    seconds: float = 0.0
    found: list[str] = field(default_factory=list)


def chosen(wanted: list[str]) -> list[str]:
    """Names of cases, ``suite/case`` or a program's. Raises SystemExit on an unknown name."""
    known = suites()
    if unknown := [name for name in wanted if name not in known and name not in PROGRAMS]:
        raise SystemExit(f"no suite or program named '{unknown[0]}'; known: {', '.join([*PROGRAMS, *known])}")
    names = [name for name in PROGRAMS if name in wanted]
    by_suite = [[f"{s}/{c.name}" for c in cases] for s, cases in known.items() if not wanted or s in wanted]
    return names + [name for cases in by_suite for name in cases]


class Report:
    """What came out, by tool and case, in a file that is whole at every moment; without a path, nowhere.

    Outcomes of other kernels than today's count for nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self._path, self._written, self._lock = path, 0.0, threading.Lock()
        found = json.loads(path.read_text()) if path and path.exists() else {"kernels": ""}
        self._tools: dict[str, dict[str, Any]] = found["tools"] if found["kernels"] == kernel_hash() else {}

    def named(self, tool: str, result: str) -> set[str]:
        """Cases that came out so under the tool."""
        return {name for name, row in self._tools.get(tool, {}).items() if row["result"] == result}

    def keep(self, tool: str, outcomes: dict[str, Outcome], at_once: bool = False) -> None:
        """Takes outcomes in and writes the file, unless it was written a moment ago."""
        with self._lock:
            self._tools.setdefault(tool, {}).update({name: asdict(outcome) for name, outcome in outcomes.items()})
            if self._path is None or not (at_once or time.monotonic() - self._written > _SAVE_S):
                return
            part = self._path.with_name(self._path.name + ".part")
            part.write_text(json.dumps({"kernels": kernel_hash(), "tools": self._tools}, indent=1))
            part.replace(self._path)
            self._written = time.monotonic()


class Watch:
    """One tool over a list of cases: starts the processes, reads what they say, keeps the outcomes."""

    def __init__(
        self, tool: str, names: list[str], report: Report, device: str, precision: str, deadline: float
    ) -> None:
        self.tool, self.device, self.precision, self.deadline = tool, device, precision, deadline
        self._report, slow = report, report.named(tool, CUT)
        self.programs = [name for name in names if name in PROGRAMS]
        self.cases = [name for name in names if name not in PROGRAMS]
        self.outcomes: dict[str, Outcome] = {}
        self.claims = Path(tempfile.mkdtemp(prefix="sanitize-"))
        self.files = self.claims / "names"
        quick = [name for name in self.cases if name not in slow]
        self.files.write_text("\n".join([*quick, "", *(name for name in self.cases if name in slow)]))

    def run(self, processes: int) -> None:
        """Until all cases are through or the time is over."""
        own = [threading.Thread(target=self._program, args=(name,)) for name in self.programs]
        own += [threading.Thread(target=self._worker) for _ in range(max(1, processes - len(own)))]
        for thread in own:
            thread.start()
        for thread in own:
            thread.join()
        shutil.rmtree(self.claims, ignore_errors=True)

    def left(self) -> list[str]:
        """Cases that nobody began."""
        return [name for name in (*self.programs, *self.cases) if name not in self.outcomes]

    def _command(self, *program: str) -> list[str]:
        own = ["--target-processes", "application-only", "--launch-timeout", str(_CONNECT_S), "--print-limit", "20"]
        own += ["--error-exitcode", "9"]
        return ["compute-sanitizer", "--tool", self.tool, *own, sys.executable, *program]

    def _program(self, name: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            command = self._command("-m", "foxhunt_cli.cli", *PROGRAMS[name], "--device", self.device)
            outcome, begin, said = self.outcomes.setdefault(name, Outcome()), time.perf_counter(), []
            with _Process(command, self.deadline, Path(folder)) as process:
                for line in process.lines():
                    said.append(line)
                    _note(outcome, line)
            outcome.seconds = time.perf_counter() - begin
            if not process.late:
                outcome.result = FOUND if process.status else CLEAN
                outcome.found += said[-10:] if process.status else []
            self._tell(name, outcome)

    def _worker(self) -> None:
        """Processes one behind the other: one that a fault has stopped is followed by a fresh one."""
        options = ["--device", self.device, "--precision", self.precision]
        options += ["--own-allocations"] if self.tool in OWN_ALLOCATIONS else []
        command = self._command(str(WORKER), str(self.files), *options)
        while time.monotonic() < self.deadline and set(self.left()) & set(self.cases):
            begun, before = "", len(self.outcomes)
            with _Process(command, self.deadline) as process:
                for line in process.lines():
                    begun = self._hear(line, begun)
            if process.late or len(self.outcomes) == before:
                if process.status and not process.late:
                    print(f"{self.tool}: a process ended with status {process.status}", *process.tail, sep="\n")
                return
            if begun:  # it stopped in the middle of a case
                self._judge(begun, 0.0, f"the process ended with status {process.status}")

    def _hear(self, line: str, begun: str) -> str:
        """Takes in a line; the case that is under way behind it."""
        word, _, rest = line.partition(" ")
        if word == "begin":
            self.outcomes[rest] = Outcome()
            return rest
        if word == "end":
            name, seconds, problem = rest.split("\t", 2)
            self._judge(name, float(seconds), problem)
            return ""
        if line.startswith("=====") and not _QUIET.match(line):
            name = begun or "between cases"
            _note(self.outcomes.setdefault(name, Outcome(FOUND)), line)
        return begun

    def _judge(self, name: str, seconds: float, problem: str) -> None:
        outcome = self.outcomes[name]
        outcome.found += [problem] if problem else []
        outcome.result, outcome.seconds = FOUND if outcome.found else CLEAN, seconds
        self._tell(name, outcome)

    def _tell(self, name: str, outcome: Outcome) -> None:
        print(f"{self.tool}  {name}: {outcome.result}, {outcome.seconds:.1f} s", flush=True)
        self._report.keep(self.tool, dict(self.outcomes))


class _Process:
    """A process group of its own whose lines can be read until a deadline, when it is ended."""

    def __init__(self, command: list[str], deadline: float, cwd: Path | None = None) -> None:
        self.late, self.status, self.tail = False, 0, []
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "PYTHONUNBUFFERED": "1"}
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            start_new_session=True, env=variables, cwd=cwd,
        )  # fmt: skip
        self._timer = threading.Timer(max(0.0, deadline - time.monotonic()), self._end)

    def __enter__(self) -> _Process:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.status = self._process.wait()
        self._timer.cancel()

    def lines(self) -> Iterator[str]:
        for line in self._process.stdout or ():
            self.tail = [*self.tail[-9:], line.rstrip("\n")]
            yield self.tail[-1]

    def _end(self) -> None:
        self.late = True
        os.killpg(self._process.pid, signal.SIGKILL)


def _note(outcome: Outcome, line: str) -> None:
    if line.startswith("=====") and not _QUIET.match(line) and len(outcome.found) < _FINDINGS:
        outcome.found.append(line)


def show(watch: Watch) -> None:
    """The tool's table: a line a suite, then every finding."""
    by_suite: dict[str, Counter[str]] = {}
    for name, outcome in watch.outcomes.items():
        by_suite.setdefault(name.split("/")[0], Counter())[outcome.result] += 1
    for name in watch.left():
        by_suite.setdefault(name.split("/")[0], Counter())["not begun"] += 1
    for suite, counts in sorted(by_suite.items()):
        print(f"{watch.tool}  {suite}: " + ", ".join(f"{n} {word}" for word, n in sorted(counts.items())))
    for name, outcome in watch.outcomes.items():
        if outcome.found or outcome.result == CUT:
            print(f"{watch.tool}  {name}: {outcome.result} {outcome.seconds:.1f} s", *outcome.found, sep="\n    ")
    total = Counter(outcome.result for outcome in watch.outcomes.values())
    counts = f"{total[CLEAN]} clean, {total[FOUND]} with findings, {total[CUT]} cut, {len(watch.left())} not begun"
    print(f"{watch.tool}: {counts}", flush=True)


def main() -> int:
    """Runs what the arguments say; 0 if nothing was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="suite", help="suites or programs; all oracles by default")
    parser.add_argument("--tool", action="append", choices=TOOLS, help="repeatable; all four by default")
    parser.add_argument("--processes", type=int, default=8, help="at a time")
    parser.add_argument("--seconds", type=float, default=86_400.0, help="end after so long")
    parser.add_argument("--device", default="cuda", help="cuda or cuda:N")
    parser.add_argument("--precision", choices=("fp32", "tf32"), default="fp32", help="of matrix products")
    parser.add_argument("--report", type=Path, help="JSON file of what came out; what is clean there is not run again")
    options = parser.parse_args()
    wanted = chosen(options.names)
    if shutil.which("compute-sanitizer") is None:
        raise SystemExit("compute-sanitizer is not on the path; it comes with NVIDIA's CUDA toolkit")
    report, found = Report(options.report), 0
    deadline = time.monotonic() + options.seconds
    tools = options.tool or TOOLS
    for number, tool in enumerate(tools):
        names = [name for name in wanted if name not in report.named(tool, CLEAN)]
        share = (deadline - time.monotonic()) / (len(tools) - number)
        watch = Watch(tool, names, report, options.device, options.precision, time.monotonic() + share)
        watch.run(options.processes)
        report.keep(tool, watch.outcomes, at_once=True)
        show(watch)
        found += sum(outcome.result == FOUND for outcome in watch.outcomes.values())
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
