"""Compiles kernel files with NVRTC, with or without a GPU.

Owns: finding the NVRTC library, the options every kernel is compiled with, the hash of a file with all it
includes, and a cache of compiled kernels on disk. It must not import ``cupy`` (only the thin bindings that come
with it) nor touch a driver: tests and CI compile every kernel on machines that have none.

Why not leave compilation to CuPy's ``RawModule``: it adds ``-ftz=true`` (denormals become zero, so a GPU would no
longer agree with the CPU device bit for bit), its cache does not see included headers, and NVRTC works through one
lock per process, so only processes compile in parallel.
"""

from __future__ import annotations

import ctypes
import glob
import hashlib
import json
import os
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from foxhunt_cli.config.places import cache_folder
from foxhunt_cli.data.whole import replacing
from foxhunt_cli.device.base import CompileError, DeviceError, Progress
from foxhunt_cli.device.seal import is_whole, sealed
from foxhunt_cli.kernels.contract import conditional_source
from foxhunt_cli.kernels.text import include_closure

OPTIONS = ("--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true")
_PLACE = re.compile(r"^(.+?)\((\d+)\):", re.M)
_OWN_FEATURES = "wgmma.cuh"  # the header whose functions only Hopper has, and only under its own target
_REMEDY = "install it with 'pip install nvidia-cuda-nvrtc-cu12' (or the -cu13 wheel beside cupy-cuda13x)"


@dataclass(frozen=True)
class CompileTask:
    """One ``.cu`` file for one architecture: ``sm_90`` gives machine code, ``compute_90`` gives PTX.

    conditional: each kernel takes a flag as its last parameter and does nothing where that is 0.
    """

    path: Path
    arch: str
    include_dirs: tuple[Path, ...]
    conditional: bool = False

    @property
    def target(self) -> str:
        """The architecture, with the features it shares with no other where the file uses them (``sm_90a``)."""
        return self._target(include_closure(self.path, self.include_dirs))

    def _target(self, files: Iterable[Path]) -> str:
        own = self.arch == "sm_90" and any(file.name == _OWN_FEATURES for file in files)
        return f"{self.arch}a" if own else self.arch

    def source(self) -> str:
        """What is compiled. Lines have the numbers they have in the file."""
        text = self.path.read_text()
        return conditional_source(text) if self.conditional else text

    def key(self) -> str:
        """Digest of everything the result depends on: text, headers, options, compiler."""
        closure = include_closure(self.path, self.include_dirs)
        parts = [self._target(closure), *OPTIONS, repr(version()), _digest(closure)]
        parts += [self.source()] if self.conditional else []
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


@cache
def bindings() -> Any:
    """CuPy's NVRTC bindings with the library loaded. Raises DeviceError with the remedy."""
    try:
        from cupy_backends.cuda.libs import nvrtc
    except ImportError as error:
        raise DeviceError(f"CuPy is not installed ({error}); install it with 'pip install cupy-cuda12x'") from None
    try:
        nvrtc.getVersion()
    except Exception as first:  # the binding raises RuntimeError, ImportError or OSError, by version
        _preload_from_wheels()
        try:
            nvrtc.getVersion()
        except Exception:
            raise DeviceError(f"the NVRTC library is not found ({first}); {_REMEDY}") from None
    return nvrtc


def _preload_from_wheels() -> None:
    """Loads libnvrtc from an ``nvidia-cuda-nvrtc`` wheel, where the system's loader would not look."""
    for folder in map(Path, sys.path):
        for library in sorted(glob.glob(str(folder / "nvidia" / "*" / "lib" / "libnvrtc.so.*"))):
            try:
                ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
            except OSError:
                continue


@cache
def version() -> tuple[int, int]:
    """(major, minor) of NVRTC."""
    return tuple(bindings().getVersion())


def supported_archs() -> tuple[int, ...]:
    """Compute capabilities this NVRTC knows, ascending: 75 for 7.5, 120 for 12.0."""
    return tuple(sorted(bindings().getSupportedArchs()))


def arch_for(capability: int) -> str:
    """Target for a GPU: its machine code, or PTX of the newest older architecture where NVRTC is older than the GPU."""
    known = supported_archs()
    if capability in known:
        return f"sm_{capability}"
    older = [arch for arch in known if arch < capability]
    if not older:
        raise DeviceError(
            f"this GPU has compute capability {capability / 10:.1f}; NVRTC {'.'.join(map(str, version()))} starts at "
            f"{known[0] / 10:.1f}. Use --device cpu, or a CUDA version that still knows this GPU"
        )
    return f"compute_{older[-1]}"


def _digest(closure: Mapping[Path, str]) -> str:
    digest = hashlib.sha256()
    for file, text in closure.items():
        digest.update(f"{file.name}\0{len(text)}\0{text}".encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class Compiled:
    """binary: machine code (``sm_NN``) or PTX (``compute_NN``). log: what the compiler said on the way."""

    binary: bytes
    log: str


def compile_source(
    source: str, name: str, include_dirs: Sequence[Path], arch: str, extra: Sequence[str] = ()
) -> Compiled:
    """Compiles ``source``, with ``extra`` options behind our own.

    ``name`` is what the compiler's messages call the file. Raises CompileError whose message starts with file:line.
    """
    nvrtc = bindings()
    program = nvrtc.createProgram(source, name, (), ())
    try:
        options = (*OPTIONS, *(f"-I{folder}" for folder in include_dirs), f"--gpu-architecture={arch}", *extra)
        try:
            nvrtc.compileProgram(program, options)
        except nvrtc.NVRTCError as error:
            log = nvrtc.getProgramLog(program).strip().strip("\0").strip()
            raise CompileError(_PLACE.sub(r"\1:\2:", log) or f"{name}: {error}") from None
        binary = nvrtc.getCUBIN(program) if arch.startswith("sm_") else nvrtc.getPTX(program)
        return Compiled(binary, nvrtc.getProgramLog(program))
    finally:
        nvrtc.destroyProgram(program)


def compile_file(task: CompileTask, extra: Sequence[str] = ()) -> Compiled:
    """``compile_source`` of a file on disk."""
    return compile_source(task.source(), str(task.path), task.include_dirs, task.target, extra)


def kernel_folder() -> Path:
    """Where compiled kernels are kept."""
    return cache_folder() / "nvrtc"


def compile_cached(
    tasks: Sequence[CompileTask],
    folder: Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Paths of the compiled files, in the order of ``tasks``; compiles what the cache lacks or holds damaged.

    Raises CompileError with the messages of every file that failed.
    """
    folder = folder or kernel_folder()
    folder.mkdir(parents=True, exist_ok=True)
    targets = [
        folder / f"{t.path.stem}-{t.arch}-{t.key()}{'.cubin' if t.arch.startswith('sm_') else '.ptx'}" for t in tasks
    ]
    missing = [(task, target) for task, target in zip(tasks, targets, strict=True) if not is_whole(target)]
    errors = _compile_in_processes(missing, workers or os.cpu_count() or 1, progress)
    if errors:
        raise CompileError("\n".join(errors))
    return targets


def _compile_in_processes(jobs: list[tuple[CompileTask, Path]], workers: int, progress: Progress | None) -> list[str]:
    """Runs every job; the messages of those that failed. One thread feeds one worker process."""
    waiting: queue.SimpleQueue[tuple[CompileTask, Path]] = queue.SimpleQueue()
    # Largest files first: the longest compilation must not start last.
    for job in sorted(jobs, key=lambda j: -j[0].path.stat().st_size):
        waiting.put(job)
    errors: list[str] = []
    done, lock = [0], threading.Lock()

    def finish(label: str, error: str | None) -> None:
        with lock:
            done[0] += 1
            if error:
                errors.append(error)
            if progress:
                progress(done[0], len(jobs), label)

    threads = [threading.Thread(target=_feed_worker, args=(waiting, finish)) for _ in range(min(workers, len(jobs)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(errors)


def _feed_worker(waiting: queue.SimpleQueue, finish: Any) -> None:
    package_parent = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([package_parent, *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "foxhunt_cli.device.nvrtc"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, text=True, env={**os.environ, "PYTHONPATH": path}
    ) as worker:
        while True:
            try:
                task, target = waiting.get_nowait()
            except queue.Empty:
                break
            folders = [str(folder) for folder in task.include_dirs]
            answer = ""
            try:
                order = [str(task.path), task.arch, folders, task.conditional, str(target)]
                worker.stdin.write(json.dumps(order) + "\n")
                worker.stdin.flush()
                answer = worker.stdout.readline()
            except BrokenPipeError:
                pass
            error = (
                json.loads(answer) if answer else f"{task.path}:1: the compiler process ended (exit {worker.poll()})"
            )
            finish(f"{task.path.name} {task.arch}", error)
        worker.stdin.close()


def _serve() -> None:
    """A worker process: one job a line on stdin, one answer a line on stdout (null, or the error's text)."""
    for line in sys.stdin:
        path, arch, folders, conditional, target = json.loads(line)
        error = None
        try:
            binary = compile_file(CompileTask(Path(path), arch, tuple(map(Path, folders)), conditional)).binary
            with replacing(Path(target)) as part:
                part.write_bytes(sealed(binary))
        except (DeviceError, OSError) as failure:
            error = str(failure)
        print(json.dumps(error), flush=True)


if __name__ == "__main__":
    _serve()
