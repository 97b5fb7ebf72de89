"""From translation units to shared libraries of the host.

Owns the choice of flags, and the cache of libraries. It loads and launches nothing.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from foxhunt_cli.config.places import cache_folder
from foxhunt_cli.device.base import CacheError, CompileError, DeviceError, Progress
from foxhunt_cli.device.cpu_source import KernelUnit
from foxhunt_cli.device.host import compiler_command, cpu_identity
from foxhunt_cli.device.seal import is_whole, sealed
from foxhunt_cli.kernels.text import include_closure

RUNTIME_DIR = Path(__file__).resolve().parent / "cpu_runtime"
SHIM = RUNTIME_DIR / "cuda_on_cpu.h"
RUNTIME = RUNTIME_DIR / "runtime.cpp"

# Results are the same bits in every build: no contraction, no reassociation. What is relaxed (errno, traps) cannot
# change a value.
COMMON_FLAGS = ("-std=gnu++17", "-fPIC", "-shared", "-pthread", "-ffp-contract=off", "-fvisibility=hidden")
KERNEL_FLAGS = ("-fno-math-errno", "-fno-trapping-math", "-Wno-unknown-pragmas")
MAX_FRAME_BYTES = 32768  # a frame must leave room on a fiber's stack of 64 KiB
SANITIZE_FLAGS = (
    "-O1",
    "-g",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined,float-cast-overflow",
    "-fno-sanitize-recover=all",
    "-DFOXHUNT_SANITIZE",
)


@dataclass(frozen=True)
class BuildOptions:
    """The builds a kernel file can have. ``ucontext``: portable stack switching, for tests and other processors."""

    sanitize: bool = False
    double: bool = False
    ucontext: bool = False

    def kernel_flags(self) -> tuple[str, ...]:
        """Flags for kernel files."""
        speed = SANITIZE_FLAGS if self.sanitize else ("-O3", "-fno-semantic-interposition")
        return (*COMMON_FLAGS, *KERNEL_FLAGS, *speed, *(("-DFOXHUNT_DOUBLE",) if self.double else ()))

    def runtime_flags(self) -> tuple[str, ...]:
        """Flags for the runtime library, which is the same for float and double."""
        speed = SANITIZE_FLAGS if self.sanitize else ("-O2",)
        red_zone = ("-mno-red-zone",) if platform.machine() == "x86_64" else ()  # context.h pushes there
        return (*COMMON_FLAGS, *speed, *red_zone, *(("-DFH_UCONTEXT",) if self.ucontext else ()))


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: the words that call it, and its version line."""

    command: tuple[str, ...]
    version: str

    @property
    def is_clang(self) -> bool:
        """Also true of ziglang, which is clang within."""
        return "clang" in self.version


def find_compiler() -> Compiler:
    """The compiler of the host. Raises DeviceError where there is none, or none that starts."""
    command = compiler_command()
    if command is None:
        raise DeviceError(
            "the CPU device needs a C++ compiler and found none (looked for $CXX, g++, clang++, the ziglang package): "
            "install one with `apt install g++`, or `pip install foxhunt[cpu]` where you cannot"
        )
    if shutil.which(command[0]) is None:
        words = shlex.join(command)
        raise DeviceError(f"CXX is set to '{words}', which is not found; unset it or name a C++17 compiler")
    return Compiler(command, _version(command))


def _version(command: Sequence[str]) -> str:
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60)
    except OSError as error:
        raise DeviceError(f"the C++ compiler '{shlex.join(command)}' does not start: {error}") from error
    if done.returncode:
        raise DeviceError(f"'{shlex.join(command)} --version' failed: {done.stderr.strip()}")
    return done.stdout.splitlines()[0].strip() if done.stdout else "unknown"


@dataclass(frozen=True)
class Target:
    """A library to build: its cached path, and how."""

    label: str
    text: str
    flags: tuple[str, ...]
    includes: tuple[Path, ...]
    path: Path

    @property
    def key(self) -> str:
        """Hash of everything the library depends on."""
        return self.path.stem.rpartition("-")[2]


class Builder:
    """Builds libraries into a cache that processes may share."""

    def __init__(self, options: BuildOptions, cache_dir: Path | None = None, jobs: int | None = None) -> None:
        self.options = options
        self.cache_dir = cache_dir or cache_folder() / "cpu"
        self.jobs = jobs or len(os.sched_getaffinity(0))
        self.compiler = find_compiler()
        self._shim = include_closure(SHIM, (RUNTIME_DIR,))

    def runtime(self) -> Target:
        """The runtime library."""
        covered = include_closure(RUNTIME, (RUNTIME_DIR,))
        text = covered.pop(RUNTIME)
        return self._target("runtime", text, covered, self.options.runtime_flags(), (RUNTIME_DIR,))

    def kernels(self, unit: KernelUnit) -> Target:
        """The library of one kernel file."""
        covered = {**self._shim, **unit.headers}
        return self._target(unit.file.stem, unit.text(), covered, self.options.kernel_flags(), (RUNTIME_DIR, unit.root))

    def _target(
        self, label: str, text: str, covered: dict[Path, str], flags: tuple[str, ...], includes: tuple[Path, ...]
    ) -> Target:
        flags = (*flags, *self._compiler_flags())
        parts = [text, *flags, *self.compiler.command, self.compiler.version, cpu_identity()]
        parts += [part for path in sorted(covered) for part in (str(path), covered[path])]
        key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]
        return Target(label, text, flags, includes, self.cache_dir / f"{label}-{key}.so")

    def _compiler_flags(self) -> tuple[str, ...]:
        """Flags whose spelling depends on the processor or the compiler."""
        native = "-mcpu=native" if platform.machine() == "aarch64" else "-march=native"
        # Neither kernels nor runtime use the C++ library; ziglang would compile its own for minutes on first use.
        library = ("-nostdlib++",) if self.compiler.is_clang else ()
        if self.options.sanitize:  # its redzones make frames larger, and stacks are larger too
            return (native, *library)
        if self.compiler.is_clang:
            return (native, *library, f"-Wframe-larger-than={MAX_FRAME_BYTES}", "-Werror=frame-larger-than")
        return (native, f"-Werror=frame-larger-than={MAX_FRAME_BYTES}")

    def build(self, targets: Sequence[Target], progress: Progress | None = None) -> None:
        """Builds what the cache lacks or holds damaged, in parallel. Raises one CompileError of all that failed."""
        missing = [t for t in targets if not is_whole(t.path)]
        if not missing:
            return
        try:
            self.cache_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._cache_error(error) from error
        failures = []
        with ThreadPoolExecutor(self.jobs) as pool:
            waiting = {pool.submit(self._compile, target): target for target in missing}
            for done, future in enumerate(as_completed(waiting), 1):
                try:
                    future.result()
                except CompileError as error:
                    failures.append(str(error))
                if progress:
                    progress(done, len(missing), waiting[future].label)
        if failures:
            raise CompileError("\n\n".join(sorted(failures)))

    def _cache_error(self, error: OSError) -> CacheError:
        return CacheError(
            f"cannot write the kernel cache {self.cache_dir}: {error}; set XDG_CACHE_HOME to a writable folder"
        )

    def _compile(self, target: Target) -> None:
        """Compiles beside the target and renames: two processes may build the same one at once."""
        scratch = target.path.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
        source, library = scratch.with_suffix(scratch.suffix + ".cpp"), scratch.with_suffix(scratch.suffix + ".tmp")
        command = [*self.compiler.command, *target.flags, f'-DFH_KEY="{target.key}"']
        command += [f"-I{path}" for path in target.includes]
        try:
            source.write_text(target.text)
            done = subprocess.run([*command, str(source), "-o", str(library)], capture_output=True, text=True)
            if done.returncode:
                words = "\n".join(done.stderr.splitlines()[:60])
                raise CompileError(f"{target.label}: {self.compiler.command[0]} refused it:\n{words}")
            library.write_bytes(sealed(library.read_bytes()))
            os.replace(library, target.path)
        except OSError as error:
            raise self._cache_error(error) from error
        finally:
            source.unlink(missing_ok=True)
            library.unlink(missing_ok=True)


def sanitizer_environment(compiler: Compiler | None = None) -> dict[str, str]:
    """Variables a process needs from its start so that it can load sanitized kernels into Python."""
    chosen = compiler or find_compiler()
    libraries = []
    for name in ("libasan.so", "libubsan.so"):
        found = _library(chosen, name)
        if chosen.is_clang or not found.is_absolute():  # clang's own runtimes do not load into Python
            raise DeviceError(f"the sanitized build needs GCC and its {name}; the compiler is {chosen.version}")
        libraries.append(str(found.resolve()))
    return {
        "LD_PRELOAD": " ".join(libraries),
        # Python leaks by design; fake stacks would hide which fiber an address belongs to.
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def _library(compiler: Compiler, name: str) -> Path:
    """Where the compiler keeps one of its libraries; a relative path when it has none of that name."""
    done = subprocess.run([*compiler.command, f"-print-file-name={name}"], capture_output=True, text=True)
    return Path(done.stdout.strip() or name)
