"""From ``.cu`` files to shared libraries of the host.

Owns the text of a translation unit, the choice of compiler and flags, and the cache. It loads and launches nothing.

A unit is the shim, the kernel file under ``#line`` (so that messages name its own lines) and one launcher a kernel.
Only two things of the file are rewritten, each within its line: ``extern __shared__`` becomes a pointer, and kernels
without barriers get the built-in indices as parameters, which lets the compiler vectorise the loop over threads.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from foxhunt_cli.device.base import CompileError, DeviceError, Progress
from foxhunt_cli.kernels.contract import KernelContract, parse_file

RUNTIME_DIR = Path(__file__).parent / "cpu_runtime"
SHIM = ("abi.h", "cuda_on_cpu.h", "cuda_math.h")
RUNTIME = ("abi.h", "order.h", "context.h", "block.h", "pool.h", "runtime.cpp")

# Results are the same bits in every build: no contraction, no reassociation. What is relaxed (errno, traps) cannot
# change a value. A frame of a kernel must leave room on a fiber's stack of 64 KiB.
COMMON_FLAGS = ("-std=gnu++17", "-fPIC", "-shared", "-pthread", "-ffp-contract=off", "-fvisibility=hidden")
KERNEL_FLAGS = ("-fno-math-errno", "-fno-trapping-math", "-Wno-unknown-pragmas", "-Werror=frame-larger-than=32768")
SANITIZE_FLAGS = (
    "-O1",
    "-g",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined,float-cast-overflow",
    "-fno-sanitize-recover=all",
    "-DFOXHUNT_SANITIZE",
)

_COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.M)
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:.*\\\n)*.*)$", re.M)
_DYNAMIC_SHARED = re.compile(
    r"extern\s+__shared__\s+(?:__align__\s*\(\s*\d+\s*\)\s*)?([\w:\s]+?)\s+(\w+)\s*\[\s*\]\s*;"
)
_KERNEL_HEAD = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\(")
_FUNCTION_HEAD = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
_WORD = re.compile(r"[A-Za-z_]\w*")
# Words that need a thread to stop and wait, or memory that threads share; `in doubt` words included.
_MEETS = re.compile(r"__sync\w*|\w+_sync|__shared__|cooperative_groups")
_INDEX_WORDS = frozenset({"threadIdx", "blockIdx", "blockDim", "gridDim"})


@dataclass(frozen=True)
class BuildOptions:
    """The builds a kernel file can have. ``ucontext``: portable stack switching, for tests and other processors."""

    sanitize: bool = False
    double: bool = False
    ucontext: bool = False

    def kernel_flags(self) -> tuple[str, ...]:
        """Flags for kernel files."""
        speed = SANITIZE_FLAGS if self.sanitize else ("-O3", "-fno-semantic-interposition")
        frame = tuple(f for f in KERNEL_FLAGS if not (self.sanitize and "frame" in f))  # redzones are not the author's
        return (*COMMON_FLAGS, *speed, *frame, *(("-DFOXHUNT_DOUBLE",) if self.double else ()))

    def runtime_flags(self) -> tuple[str, ...]:
        """Flags for the runtime library, which is the same for float and double."""
        speed = SANITIZE_FLAGS if self.sanitize else ("-O2",)
        return (*COMMON_FLAGS, *speed, *(("-DFH_UCONTEXT",) if self.ucontext else ()))


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: the words that call it, and its version line."""

    command: tuple[str, ...]
    version: str


def find_compiler() -> Compiler:
    """``$CXX``, else g++, clang++, else the one of the ziglang package. Raises DeviceError when there is none."""
    chosen = os.environ.get("CXX", "").strip()
    if chosen:
        command = tuple(shlex.split(chosen))
        if shutil.which(command[0]) is None:
            raise DeviceError(f"CXX is set to '{chosen}', which is not found; unset it or name a C++17 compiler")
        return Compiler(command, _version(command))
    for name in ("g++", "clang++"):
        if shutil.which(name):
            return Compiler((name,), _version((name,)))
    if importlib.util.find_spec("ziglang"):
        command = (sys.executable, "-m", "ziglang", "c++")
        return Compiler(command, _version(command))
    raise DeviceError(
        "the CPU device needs a C++ compiler and found none (looked for $CXX, g++, clang++, the ziglang package): "
        "install one with `apt install g++`, or `pip install foxhunt[cpu]` where you cannot"
    )


def _version(command: Sequence[str]) -> str:
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60)
    except OSError as error:
        raise DeviceError(f"the C++ compiler '{shlex.join(command)}' does not start: {error}") from error
    if done.returncode:
        raise DeviceError(f"'{shlex.join(command)} --version' failed: {done.stderr.strip()}")
    return done.stdout.splitlines()[0].strip() if done.stdout else "unknown"


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


def default_cache_dir() -> Path:
    """``$XDG_CACHE_HOME/foxhunt/cpu``, or the same under ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "foxhunt" / "cpu"


@dataclass(frozen=True)
class KernelUnit:
    """One kernel file as a translation unit. ``root`` is the ``cuda_src`` folder that includes are relative to."""

    file: Path
    root: Path
    contracts: tuple[KernelContract, ...] = field(compare=False)

    @classmethod
    def of(cls, file: Path) -> KernelUnit:
        """The unit of ``file``, with every kernel in it. Raises DeviceError, ContractError."""
        file = file.resolve()
        root = next((p for p in file.parents if p.name == "cuda_src"), file.parent)
        if "cuda_only" in file.relative_to(root).parts:
            raise DeviceError(f"{file}: files in cuda_only are not built for the CPU; the caller must leave them out")
        return cls(file, root, parse_file(file))

    @cached_property
    def body(self) -> str:
        """Text of the kernel file."""
        return self.file.read_text()

    @cached_property
    def headers(self) -> dict[Path, str]:
        """Every file this one includes, directly or not, by path. What the cache key must cover."""
        found: dict[Path, str] = {}
        waiting = [(self.file, self.body)]
        while waiting:
            origin, text = waiting.pop()
            for name in _INCLUDE.findall(text):
                for path in (origin.parent / name, self.root / name):
                    if path.is_file() and path.resolve() not in found:
                        found[path.resolve()] = content = path.read_text()
                        waiting.append((path, content))
                        break
        for path, text in found.items():
            if _DYNAMIC_SHARED.search(blank(text)):
                raise CompileError(
                    f"{path}: a header may not declare extern __shared__; declare it in the kernel and pass a pointer"
                )
        return found

    @cached_property
    def plain_kernels(self) -> frozenset[str]:
        """Kernels whose threads never meet: they run as a loop, the others on fibers."""
        return plain_kernels([self.body, *self.headers.values()], [c.name for c in self.contracts])

    def text(self) -> str:
        """The whole translation unit."""
        rewritten = self._with_index_parameters(_DYNAMIC_SHARED.sub(_dynamic_pointer, self.body))
        launchers = "".join(self._launcher(c) for c in self.contracts)
        name = str(self.file).replace("\\", "\\\\").replace('"', '\\"')
        return (
            f'#include "cuda_on_cpu.h"\n#line 1 "{name}"\n{rewritten}\n#line 1 "launchers of {self.file.name}"\n{launchers}'
        )

    def _with_index_parameters(self, text: str) -> str:
        code = blank(text)
        inserts = []
        for head in _KERNEL_HEAD.finditer(code):
            if head[1] in self.plain_kernels:
                close = matching(code, head.end() - 1)
                empty = not code[head.end() : close].strip()
                inserts.append((close, "FH_INDEX_PARAMETERS" if empty else ", FH_INDEX_PARAMETERS"))
        for position, words in reversed(inserts):
            text = text[:position] + words + text[position:]
        return text

    def _launcher(self, contract: KernelContract) -> str:
        fields = "".join(
            f" alignas(8) {'const ' if p.const else ''}{p.ctype}{'*' if p.pointer else ''} {p.name};"
            for p in contract.params
        )
        struct = f"struct fh_args_{contract.name} {{{fields} }};\n"
        unpack = f"const fh_args_{contract.name} args = *(const fh_args_{contract.name}*)raw;"
        values = [f"args.{p.name}" for p in contract.params]
        if contract.name not in self.plain_kernels:
            call = f"{contract.name}({', '.join(values)});"
            return f"{struct}FH_LAUNCHER void fh_thread_{contract.name}(const void* raw) {{ {unpack} {call} }}\n"
        call = f"{contract.name}({', '.join([*values, 'FH_INDEX_ARGUMENTS'])});"
        return (
            f"{struct}FH_LAUNCHER void fh_plain_{contract.name}(const void* raw, int first_block, int last_block, "
            f"int first_thread, int last_thread, int block_size, int grid_size) {{ {unpack} FH_FOR_EACH_THREAD {call} }}\n"
        )


def _dynamic_pointer(match: re.Match[str]) -> str:
    """A pointer declaration of as many lines as the array declaration it replaces."""
    return f"{match[1]}* const {match[2]} = ({match[1]}*)fh_dynamic_shared;" + "\n" * match[0].count("\n")


def blank(text: str) -> str:
    """``text`` with comments and string contents as spaces, every other character where it was."""
    return _COMMENT_OR_STRING.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def matching(code: str, start: int) -> int:
    """Index of the bracket that closes the one at ``start``; the end of the text when none does."""
    opening = code[start]
    closing = {"(": ")", "{": "}"}[opening]
    depth = 0
    for match in re.compile(rf"[{re.escape(opening + closing)}]").finditer(code, start):
        depth += 1 if match[0] == opening else -1
        if depth == 0:
            return match.start()
    return len(code)


def plain_kernels(texts: Iterable[str], kernels: Sequence[str]) -> frozenset[str]:
    """Those of ``kernels`` that neither meet other threads nor call, by name, anything that might.

    Goes by words alone, so it errs to the side of fibers: same-named functions count as one, and a word of
    synchronisation outside any function or macro makes every kernel suspect. Helpers that read the built-in indices
    count too: the parameters of the kernel are out of their sight.
    """
    bodies: dict[str, list[str]] = {}
    suspect = False
    for text in texts:
        found, rest = _definitions(blank(text))
        suspect = suspect or bool(_MEETS.search(rest))
        for name, body in found:
            bodies.setdefault(name, []).append(body)
    if suspect:
        return frozenset()
    return frozenset(name for name in kernels if _is_plain(name, bodies))


def _is_plain(kernel: str, bodies: dict[str, list[str]]) -> bool:
    seen = {kernel}
    waiting = [kernel]
    while waiting:
        name = waiting.pop()
        for body in bodies.get(name, []):
            words = set(_WORD.findall(body))
            if any(_MEETS.fullmatch(word) for word in words) or (name != kernel and words & _INDEX_WORDS):
                return False
            called = (words & bodies.keys()) - seen
            seen |= called
            waiting.extend(called)
    return True


def _definitions(code: str) -> tuple[list[tuple[str, str]], str]:
    """(name, body) of every macro and function of ``code``, and what remains of it without them."""
    found = [(m[1], m[2]) for m in _DEFINE.finditer(code)]
    code = _DEFINE.sub("", code)
    rest = []
    position = 0
    while match := _FUNCTION_HEAD.search(code, position):
        close = matching(code, match.end() - 1)
        after = re.compile(r"\s*(?:const|noexcept|\s)*\{").match(code, close + 1)
        if not after:
            rest.append(code[position : match.end()])
            position = match.end()
            continue
        end = matching(code, after.end() - 1)
        found.append((match[1], code[match.end() : end]))
        rest.append(code[position : match.start()])
        position = end + 1
    return found, "".join([*rest, code[position:]])


@dataclass(frozen=True)
class Target:
    """A library to build: its cached path, and how."""

    label: str
    text: str
    flags: tuple[str, ...]
    includes: tuple[Path, ...]
    path: Path


class Builder:
    """Builds libraries into a cache that processes may share. Holds no state but its choices."""

    def __init__(self, options: BuildOptions, cache_dir: Path | None = None, jobs: int | None = None) -> None:
        self.options = options
        self.cache_dir = cache_dir or default_cache_dir()
        self.jobs = jobs or len(os.sched_getaffinity(0))
        self.compiler = find_compiler()

    def runtime(self) -> Target:
        """The runtime library."""
        sources = [(RUNTIME_DIR / name).read_text() for name in RUNTIME]
        return self._target("runtime", sources[-1], sources, self.options.runtime_flags(), (RUNTIME_DIR,))

    def kernels(self, unit: KernelUnit) -> Target:
        """The library of one kernel file."""
        covered = [(RUNTIME_DIR / name).read_text() for name in SHIM]
        covered += [f"{path}\0{text}" for path, text in sorted(unit.headers.items())]
        return self._target(unit.file.stem, unit.text(), covered, self.options.kernel_flags(), (RUNTIME_DIR, unit.root))

    def _target(
        self, label: str, text: str, covered: list[str], flags: tuple[str, ...], includes: tuple[Path, ...]
    ) -> Target:
        flags = (*flags, self._native_flag())
        parts = [text, *covered, *flags, *self.compiler.command, self.compiler.version, cpu_identity()]
        key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]
        return Target(label, text, flags, includes, self.cache_dir / f"{label}-{key}.so")

    @staticmethod
    def _native_flag() -> str:
        return "-mcpu=native" if platform.machine() == "aarch64" else "-march=native"

    def build(self, targets: Sequence[Target], progress: Progress | None = None) -> None:
        """Builds what the cache lacks, in parallel. Raises one CompileError that names every file that failed."""
        missing = [t for t in targets if not t.path.exists()]
        if not missing:
            return
        try:
            self.cache_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DeviceError(f"cannot create the kernel cache {self.cache_dir}: {error}; set XDG_CACHE_HOME") from error
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

    def _compile(self, target: Target) -> None:
        """Compiles beside the target and renames: two processes may build the same one at once."""
        scratch = target.path.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
        source, library = scratch.with_suffix(scratch.suffix + ".cpp"), scratch.with_suffix(scratch.suffix + ".tmp")
        command = [*self.compiler.command, *target.flags, *(f"-I{path}" for path in target.includes)]
        try:
            source.write_text(target.text)
            done = subprocess.run([*command, str(source), "-o", str(library)], capture_output=True, text=True)
            if done.returncode:
                words = "\n".join(done.stderr.splitlines()[:60])
                raise CompileError(f"{target.label}: {self.compiler.command[0]} refused it:\n{words}")
            os.replace(library, target.path)
        except OSError as error:
            raise DeviceError(f"cannot build {target.path}: {error}; set XDG_CACHE_HOME to a writable folder") from error
        finally:
            source.unlink(missing_ok=True)
            library.unlink(missing_ok=True)


def sanitizer_environment(compiler: Compiler | None = None) -> dict[str, str]:
    """Variables a process needs from its start so that it can load sanitized kernels into Python."""
    command = (compiler or find_compiler()).command
    libraries = []
    for name in ("libasan.so", "libubsan.so"):
        done = subprocess.run([*command, f"-print-file-name={name}"], capture_output=True, text=True)
        path = Path(done.stdout.strip())
        if not path.is_absolute():
            raise DeviceError(f"{command[0]} has no {name}; the sanitized build needs GCC with its sanitizer libraries")
        libraries.append(str(path.resolve()))
    return {
        "LD_PRELOAD": " ".join(libraries),
        # Python leaks by design; fake stacks would hide which fiber an address belongs to.
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
