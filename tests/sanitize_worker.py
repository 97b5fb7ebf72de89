"""The process that a tool of compute-sanitizer watches: runs oracles and says on stdout which one it is at.

``sanitize.py`` starts several of them beside each other; which one runs what, they settle by files.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from foxhunt_cli.device.select import select
from foxhunt_cli.oracles.base import Case, run_case, suites

GOLDEN = 0.618  # multiples of it, modulo 1, spread evenly however many there are


def main() -> None:
    """Takes cases until there are none."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", type=Path, help="file of cases, one a line; an empty line before those that are slow")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", choices=("fp32", "tf32"), default="fp32")
    parser.add_argument("--own-allocations", action="store_true", help="no memory pool")
    options = parser.parse_args()
    work(options.names.read_text().split("\n"), options.names.parent, options)


def work(names: list[str], claims: Path, options: argparse.Namespace) -> None:
    """Runs the cases that no other process has claimed in the folder ``claims``, with a line before and behind each."""
    device = select(options.device, precision=options.precision).device
    if options.own_allocations:
        import cupy

        cupy.cuda.set_allocator(None)
    known = {f"{suite}/{case.name}": case for suite, cases in suites().items() for case in cases}
    for name in _claimed(names, claims):
        print(f"begin {name}", flush=True)
        begin = time.perf_counter()
        problem = _problem(known[name], device)
        device.synchronize()
        print(f"end {name}\t{time.perf_counter() - begin:.2f}\t{problem}", flush=True)


def _claimed(names: list[str], claims: Path) -> Iterator[str]:
    """Names up to an empty one, from a place of this process's own on, then the rest.

    Processes thus begin with different suites: a tool takes seconds over every file of kernels that a process loads.
    """
    quick = names.index("")
    number = next(k for k in range(1_000_000) if _claim(claims / f"process-{k}"))
    start = int(number * GOLDEN * quick) % max(1, quick)
    for place in (*range(start, quick), *range(start), *range(quick + 1, len(names))):
        if _claim(claims / str(place)):
            yield names[place]


def _claim(path: Path) -> bool:
    with contextlib.suppress(FileExistsError):
        path.touch(exist_ok=False)
        return True
    return False


def _problem(case: Case, device: object) -> str:
    result = run_case(case, device)
    wrong = [f"{c.label}: expected {c.expected}, got {c.got}" for c in result.checks if not c.ok]
    text = "" if result.passed else result.error.strip() or "; ".join(wrong) or "checked nothing"
    return " ".join(text.split())


if __name__ == "__main__":
    main()
