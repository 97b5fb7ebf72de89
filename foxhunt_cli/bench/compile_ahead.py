"""Compiled code of several sizes at once: a process a size, before the first one is measured.

PyTorch compiles one function at a time and keeps the result on disk. Sizes share nothing, so their processes fill that
cache side by side and end; what is measured then compiles from it. ``python -m foxhunt_cli.bench.compile_ahead`` is
such a process: one RunConfig as JSON on stdin.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from foxhunt_cli.config.run import RunConfig

if TYPE_CHECKING:
    from foxhunt_cli.cli.console import Terminal


def compile_ahead(configs: Sequence[RunConfig], console: Terminal) -> int:
    """Fills PyTorch's cache for every configuration; how many processes did. What one fails at is compiled later."""
    console.note(f"PyTorch compiles {len(configs)} sizes at once")
    package = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])
    processes = []
    for config in configs:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, text=True, env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        processes.append((process, config))
    try:
        for process, config in processes:
            process.communicate(config.model_dump_json())
    finally:
        for process, _ in processes:
            process.kill()
            process.wait()
    return sum(process.returncode == 0 for process, _ in processes)


def main() -> None:
    """Makes the compiled peer of the configuration on stdin ready, once."""
    from foxhunt_cli.bench import peers

    peers.make_ready(RunConfig.model_validate_json(sys.stdin.read()), peers.COMPILED)


if __name__ == "__main__":
    main()
