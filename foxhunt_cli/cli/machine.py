"""What this machine has to train with: libraries, devices, compiler, memory, cache, and the fix for what is missing.

Looks without loading the numeric libraries, so that it also answers on a half-installed machine.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import foxhunt_cli
from foxhunt_cli.config.places import cache_folder
from foxhunt_cli.device.host import compiler_command

CORE = ("numpy", "pydantic", "typer", "rich", "databento-dbn", "zstandard", "safetensors", "orjson")
EXTRAS = {
    "plots": ("matplotlib",),
    "parquet": ("pyarrow",),
    "tensorboard": ("tensorboardX",),
    "notebook": ("pandas", "polars"),
    "ray": ("ray",),
}
COMPILER_FIX = "apt install g++, or pip install 'foxhunt[cpu]' for a compiler as a wheel"


@dataclass(frozen=True)
class Finding:
    """One thing looked for. ``missing`` stops something from working, ``absent`` is optional here."""

    topic: str
    mark: str
    text: str
    fix: str = ""


def examine() -> list[Finding]:
    """Everything worth knowing about this machine, in reading order."""
    return [finding for look in (_versions, _cuda, _compiler, _memory, _cache) for finding in look()]


def usable_devices(findings: list[Finding]) -> list[str]:
    """Devices that can train, best first."""
    good = {finding.topic for finding in findings if finding.mark == "ok"}
    broken = any(finding.mark == "missing" and finding.topic == "package" for finding in findings)
    cuda = {"GPU", "CuPy", "NVRTC"} <= good
    return [] if broken else [kind for kind, usable in (("cuda", cuda), ("cpu", "compiler" in good)) if usable]


def _versions() -> Iterator[Finding]:
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    yield Finding("foxhunt", "info", f"{foxhunt_cli.__version__}, {system}")
    found = []
    for name in CORE:
        version = _version(name)
        if version is None:
            yield Finding("package", "missing", f"{name} is not installed", "pip install --force-reinstall foxhunt")
        else:
            found.append(f"{name} {version}")
    yield Finding("packages", "ok", ", ".join(found))
    for extra, names in EXTRAS.items():
        versions = {name: _version(name) for name in names}
        text = ", ".join(f"{name} {version or 'is not installed'}" for name, version in versions.items())
        complete = all(versions.values())
        fix = "" if complete else f"pip install 'foxhunt[{extra}]', if you want it"
        yield Finding(extra, "ok" if complete else "absent", text, fix)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cuda() -> Iterator[Finding]:
    yield from _gpus()
    if importlib.util.find_spec("cupy") is None:
        yield Finding("CuPy", "absent", "not installed: CUDA cannot be used", "pip install cupy-cuda12x")
    else:
        names = ("cupy-cuda12x", "cupy-cuda13x", "cupy")
        yield Finding("CuPy", "ok", next(filter(None, map(_version, names)), "installed"))
    version = _nvrtc_version()
    if version is None:
        yield Finding("NVRTC", "absent", "not found: CUDA cannot be used", "pip install nvidia-cuda-nvrtc-cu12")
    else:
        yield Finding("NVRTC", "ok", version)


def first_device() -> str:
    """What ``--device auto`` would take, by the looks of driver and CuPy; nothing is opened."""
    gpu = next((finding for finding in _gpus() if finding.mark == "ok"), None)
    if gpu is None or importlib.util.find_spec("cupy") is None:
        return f"cpu ({platform.machine()}, {len(os.sched_getaffinity(0))} cores)"
    return gpu.text.partition(";")[0]


def _gpus() -> Iterator[Finding]:
    """Driver and devices, asked of libcuda itself: CuPy may be the part that is missing."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        yield Finding(
            "GPU", "absent", "no NVIDIA driver: training uses the CPU", "on a GPU machine: install its driver"
        )
        return
    count, version = ctypes.c_int(0), ctypes.c_int(0)
    status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    driver.cuDriverGetVersion(ctypes.byref(version))
    supports = f"driver supports CUDA {version.value // 1000}.{version.value % 1000 // 10}"
    if status or not count.value:
        yield Finding("GPU", "absent", f"{supports}, but no device answers (status {status})", "look at nvidia-smi")
        return
    for index in range(count.value):
        yield Finding("GPU", "ok", f"cuda:{index} {_gpu_name(driver, index)}; {supports}")


def _gpu_name(driver: ctypes.CDLL, index: int) -> str:
    device, name, size = ctypes.c_int(), ctypes.create_string_buffer(128), ctypes.c_size_t()
    driver.cuDeviceGet(ctypes.byref(device), index)
    driver.cuDeviceGetName(name, len(name), device)
    driver.cuDeviceTotalMem_v2(ctypes.byref(size), device)
    return f"{name.value.decode()}, {size.value / 2**30:,.1f} GiB"


def _nvrtc_version() -> str | None:
    """Version of the NVRTC library, from its wheel or the system; None where it cannot be loaded."""
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []
    wheels = [str(path) for folder in folders for path in sorted(folder.glob("*/lib/libnvrtc.so.*"))]
    for name in (*wheels, "libnvrtc.so.13", "libnvrtc.so.12"):
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        major, minor = ctypes.c_int(), ctypes.c_int()
        library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}"
    return None


def _compiler() -> Iterator[Finding]:
    """The C++ compiler that the CPU device uses."""
    command = compiler_command()
    if command is None:
        yield Finding("compiler", "missing", "no C++ compiler: the CPU device cannot build its kernels", COMPILER_FIX)
        return
    words = shlex.join(command)
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        fix = "unset CXX or name a C++17 compiler" if os.environ.get("CXX") else COMPILER_FIX
        yield Finding("compiler", "missing", f"{words} does not start: the CPU device cannot build its kernels", fix)
    else:
        yield Finding("compiler", "ok", f"{words}: {(done.stdout.splitlines() or [''])[0]}")


def _memory() -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0))
    page, pages = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_AVPHYS_PAGES")
    total = os.sysconf("SC_PHYS_PAGES") * page
    yield Finding("host", "info", f"{cores} cores, {total / 2**30:,.1f} GiB memory, {page * pages / 2**30:,.1f} free")


def _cache() -> Iterator[Finding]:
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free / 2**30
        yield Finding("cache", "ok", f"{folder}, {free:,.1f} GiB free")
    except OSError as error:
        fix = "set XDG_CACHE_HOME to a folder you may write to"
        yield Finding("cache", "missing", f"{folder} cannot be written: {error.strerror}", fix)
