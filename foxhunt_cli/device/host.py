"""What of the host kernels are built with and depend on: compiler, processor, folder of caches.

Needs the standard library alone: ``foxhunt doctor`` asks it on machines where nothing else is installed.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shlex
import shutil
import sys
from pathlib import Path


def compiler_command() -> tuple[str, ...] | None:
    """The words that call the C++ compiler: ``$CXX``, else g++, clang++, else the one of the ziglang package.

    None where there is none. What ``$CXX`` says is taken on trust.
    """
    chosen = os.environ.get("CXX", "").strip()
    if chosen:
        return tuple(shlex.split(chosen))
    for name in ("g++", "clang++"):
        if shutil.which(name):
            return (name,)
    return (sys.executable, "-m", "ziglang", "c++") if importlib.util.find_spec("ziglang") else None


def cpu_model() -> str:
    """The processor's name, for people."""
    return _cpu_fields().get("model name") or platform.processor() or platform.machine()


def cpu_identity() -> str:
    """What ``-march=native`` depends on: name and instruction sets. Part of the cache key (homes are shared)."""
    fields = _cpu_fields()
    wanted = ("model name", "flags", "CPU implementer", "CPU part", "Features")
    return "|".join([platform.machine(), *(fields.get(name, "") for name in wanted)])


def _cpu_fields() -> dict[str, str]:
    """Fields of the first processor in /proc/cpuinfo; empty where there is none."""
    try:
        first = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}
