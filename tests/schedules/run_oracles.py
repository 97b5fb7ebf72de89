"""Every oracle under other schedules of threads, and in the sanitized build.

``python tests/schedules/run_oracles.py`` runs each oracle forward, then in reverse and in random orders with shared
memory poisoned and with other thread counts, and compares everything that the oracles read from the device, bit for
bit. With ``--sanitize`` it runs each oracle once under AddressSanitizer and UndefinedBehaviorSanitizer, in a process
that starts with the variables those need. Ends non-zero if an oracle fails, differs or stops the process.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foxhunt_cli.device.cpu import CpuDevice
from foxhunt_cli.device.cpu_build import sanitizer_environment
from foxhunt_cli.kernels.registry import kernels
from foxhunt_cli.oracles.base import Case, run_case, suites


@dataclass(frozen=True)
class Schedule:
    """One way to run the oracles. threads: None for the cores of the machine."""

    order: str
    threads: int | None = None
    poison: bool = True

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.order}, {self.threads or 'all'} threads{', poisoned' if self.poison else ''}"


PLAIN = Schedule("forward", poison=False)
SCHEDULES = (Schedule("reverse", 1), Schedule("random:1", 3))


class Witness(CpuDevice):
    """A CPU device that keeps a digest of everything read from it."""

    seen = hashlib.sha256()

    def download(self, array: np.ndarray) -> np.ndarray:
        """The array, added to the digest."""
        host = super().download(array)
        self.seen.update(f"{host.dtype}{host.shape}".encode() + host.tobytes())
        return host


def all_cases(only: Sequence[str] = ()) -> list[Case]:
    """Every registered oracle, or those of the suites named."""
    return [case for suite, cases in suites().items() for case in cases if not only or suite in only]


def witnessed(cases: Sequence[Case], schedule: Schedule) -> dict[str, tuple[str, str]]:
    """By oracle: what failed ("" where nothing did), and the digest of all that was read."""
    if not cases:
        raise ValueError("no oracles chosen; see 'foxhunt oracle --list' for the suites")
    device = Witness(order=schedule.order, threads=schedule.threads, poison=schedule.poison)
    device.compile(list(kernels().values()))
    found = {}
    for case in cases:
        device.seen = hashlib.sha256()
        result = run_case(case, device)
        wrong = [f"{c.label}: expected {c.expected}, got {c.got}" for c in result.checks if not c.ok]
        problem = "" if result.passed else result.error or "; ".join(wrong) or "checked nothing"
        found[f"{case.suite}/{case.name}"] = (problem, device.seen.hexdigest())
    return found


def compare(cases: Sequence[Case], schedules: Sequence[Schedule] = SCHEDULES) -> list[str]:
    """What went wrong under any of ``schedules``, a line each."""
    plain = witnessed(cases, PLAIN)
    problems = [f"{name} ({PLAIN.label}): {problem}" for name, (problem, _) in plain.items() if problem]
    for schedule in schedules:
        for name, (problem, digest) in witnessed(cases, schedule).items():
            if problem:
                problems.append(f"{name} ({schedule.label}): {problem}")
            elif digest != plain[name][1]:
                problems.append(f"{name} ({schedule.label}): passes, but its bits differ from {PLAIN.label}")
    return problems


def sanitized(cases: Sequence[Case]) -> list[str]:
    """Runs the cases in this process, which the sanitizers end at their first finding."""
    device = CpuDevice(sanitize=True)
    device.compile(list(kernels().values()))
    problems = []
    for case in cases:
        print(f"{case.suite}/{case.name}", flush=True)  # the last name is the one that stopped the process
        result = run_case(case, device)
        if not result.passed:
            problems.append(f"{case.suite}/{case.name}: {result.error or 'a check failed'}")
    return problems


def in_sanitized_process(suites: Sequence[str] = (), timeout_s: float = 1800) -> subprocess.CompletedProcess[str]:
    """This file with ``--sanitize`` in a process of its own. Raises DeviceError where there is no sanitizer."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), **sanitizer_environment()}
    command = [sys.executable, __file__, "--sanitize", *suites]
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=timeout_s)


def main() -> int:
    """Runs what the arguments say; 0 if all is well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", help="suites to run; all by default")
    parser.add_argument("--sanitize", action="store_true", help="the sanitized build instead of other schedules")
    options = parser.parse_args()
    begin = time.perf_counter()
    if options.sanitize and "libasan" not in os.environ.get("LD_PRELOAD", ""):
        done = in_sanitized_process(options.suites)
        print(done.stderr[-8000:], done.stdout[-4000:].rstrip(), sep="\n")
        return done.returncode
    cases = all_cases(options.suites)
    problems = sanitized(cases) if options.sanitize else compare(cases)
    for problem in problems:
        print(problem)
    print(f"{len(cases)} oracles, {len(problems)} problems, {time.perf_counter() - begin:.0f} s")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
