"""What each kernel takes of a GPU: registers, shared memory, stack and spills, as the compiler reports them.

Needs NVRTC, no GPU: the assembler's report is part of the compilation log. Reports are cached beside the compiled
kernels, by everything that they depend on.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from foxhunt_cli.data.whole import replacing
from foxhunt_cli.device import nvrtc

_REPORT = "--ptxas-options=-v"
_ENTRY = re.compile(r"Compiling entry function '(\w+)' for")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True)
class Resources:
    """Of one kernel on one architecture. Registers a thread; bytes of the rest."""

    kernel: str
    registers: int
    shared_bytes: int  # static; dynamic shared memory is part of the launch rule
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int


def resources(tasks: Sequence[nvrtc.CompileTask], folder: Path | None = None) -> dict[str, Resources]:
    """By kernel name. Raises DeviceError without NVRTC, CompileError for a file that does not compile."""
    folder = folder or nvrtc.kernel_folder()
    folder.mkdir(parents=True, exist_ok=True)
    targets = {task: folder / f"{task.path.stem}-{task.arch}-{task.key()}.usage.json" for task in tasks}
    missing = [task for task in tasks if not targets[task].exists()]
    for task, log in zip(missing, _logs(missing), strict=True):
        found = [vars(row) for row in parse(log)]
        with replacing(targets[task]) as part:
            part.write_text(json.dumps(found))
    rows = [Resources(**row) for target in targets.values() for row in json.loads(target.read_text())]
    return {row.kernel: row for row in rows}


def parse(log: str) -> list[Resources]:
    """Rows of the assembler's report, in its order."""
    rows = []
    for part in re.split(r"(?=Compiling entry function)", log):
        entry, frame, used = _ENTRY.search(part), _FRAME.search(part), _USED.search(part)
        if entry and used:
            shared = _SHARED.search(part)
            stack, stores, loads = map(int, frame.groups()) if frame else (0, 0, 0)
            rows.append(Resources(entry[1], int(used[1]), int(shared[1]) if shared else 0, stack, stores, loads))
    return rows


def _logs(tasks: Sequence[nvrtc.CompileTask]) -> list[str]:
    """Compilation logs, in parallel processes: NVRTC works through one lock a process."""
    if not tasks:
        return []
    nvrtc.bindings()  # says what is missing here, not in a worker
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(len(tasks), os.cpu_count() or 1), mp_context=spawn) as pool:
        return list(pool.map(_log, tasks))


def _log(task: nvrtc.CompileTask) -> str:
    return nvrtc.compile_file(task, (_REPORT,)).log
