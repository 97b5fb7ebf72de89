"""The CPU device: the same kernels without a GPU.

Owns arrays on the host and the loading of kernels. Compiling is cpu_build.py's matter, recorded plans cpu_plan.py's,
threads and barriers the runtime library's (cpu_runtime). Only these modules know that a host compiler exists.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl

from foxhunt_cli.device.base import Array, DeviceError, Launch, Operation, Progress
from foxhunt_cli.device.cpu_build import Builder, BuildOptions, Target
from foxhunt_cli.device.cpu_plan import CpuPlan, Entry, address
from foxhunt_cli.device.cpu_source import KernelUnit
from foxhunt_cli.device.host import cpu_model
from foxhunt_cli.kernels.contract import KernelContract
from foxhunt_cli.kernels.text import resolved

ALIGNMENT = 64  # bytes: a cache line, and the widest vector register

_ORDERS = {"forward": 0, "reverse": 1, "random": 2}


class _Settings(ctypes.Structure):
    """fh_settings of abi.h."""

    _fields_ = [
        ("threads", ctypes.c_int),
        ("order", ctypes.c_int),
        ("seed", ctypes.c_ulonglong),
        ("poison", ctypes.c_int),
    ]


def _pin_blas() -> None:
    """One BLAS thread in this process: what the host multiplies beside the device is small, and BLAS threads that spin
    for one another would take the cores that the device's own threads run on."""
    threadpoolctl.threadpool_limits(limits=1, user_api="blas")


class CpuDevice:
    """Runs kernels on the host's cores.

    ``order`` is the schedule of threads and blocks: "forward", "reverse" or "random:<seed>"; a kernel without races
    gives the same bits under each. ``sanitize`` compiles with AddressSanitizer and UndefinedBehaviorSanitizer (the
    process must have been started with cpu_build.sanitizer_environment()). ``double`` compiles the kernels with
    ``float`` meaning double; float32 arrays are then float64. ``poison`` fills shared memory with NaN before each
    block. ``ucontext`` switches stacks by the C library instead of assembly.
    """

    kind = "cpu"
    precision = "fp32"
    tensor_cores = False

    def __init__(
        self,
        threads: int | None = None,
        order: str = "forward",
        sanitize: bool = False,
        double: bool = False,
        poison: bool = False,
        cache_dir: Path | None = None,
        ucontext: bool = False,
    ) -> None:
        available = len(os.sched_getaffinity(0))
        if threads is not None and threads < 1:
            raise DeviceError(f"threads must be at least 1, got {threads}")
        self.threads = threads or available
        _pin_blas()
        self.order = order
        self.double = double
        self.sanitize = sanitize
        kind, seed = _parse_order(order)
        self._settings = _Settings(self.threads, kind, seed, int(poison))
        if sanitize:
            _require_sanitizer()
        self._builder = Builder(BuildOptions(sanitize, double, ucontext), cache_dir)
        self._runtime: ctypes.CDLL | None = None
        self._kernels: dict[tuple[Path, str], Entry] = {}
        self.name = f"{cpu_model()} ({self.threads} thread{'s' if self.threads > 1 else ''})"

    # Arrays

    def zeros(self, shape: tuple[int, ...] | int, dtype: Any) -> Array:
        """An aligned array of zeros. float32 becomes float64 on a double device."""
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        kind = self._dtype(dtype)
        count = int(np.prod(shape, dtype=np.int64))
        return _aligned_bytes(count * kind.itemsize, exact=self.sanitize).view(kind).reshape(shape)

    def upload(self, host: np.ndarray) -> Array:
        """An aligned copy of ``host``."""
        host = np.asarray(host)
        array = self.zeros(host.shape, host.dtype)
        array[...] = host
        return array

    def write(self, array: Array, host: np.ndarray) -> None:
        """Overwrites ``array`` with ``host``, which must have its shape and dtype."""
        host = np.asarray(host)
        if host.shape != array.shape or self._dtype(host.dtype) != array.dtype:
            raise DeviceError(
                f"write: the array is {array.dtype}{array.shape}, the host data {host.dtype}{host.shape}; must agree"
            )
        array[...] = host

    def download(self, array: Array) -> np.ndarray:
        """A copy that later launches do not change."""
        return np.array(array)

    def _dtype(self, dtype: Any) -> np.dtype:
        kind = np.dtype(dtype)
        return np.dtype(np.float64) if self.double and kind == np.float32 else kind

    # Kernels

    def compile(
        self,
        contracts: Sequence[KernelContract],
        progress: Progress | None = None,
        conditional: Sequence[KernelContract] = (),
    ) -> None:
        """Builds and loads every file that holds one of ``contracts``; what is loaded already is left alone.

        A flag is looked at before a kernel is called, so kernels under a condition are the same ones.
        """
        contracts = [*contracts, *conditional]
        files = dict.fromkeys(resolved(c.file) for c in contracts if (resolved(c.file), c.name) not in self._kernels)
        units = [KernelUnit.of(file) for file in files]
        runtime = self._builder.runtime()
        targets = [self._builder.kernels(unit) for unit in units]
        self._builder.build([runtime, *targets], progress)
        if self._runtime is None:
            self._runtime = _load_runtime(runtime)
        for unit, target in zip(units, targets, strict=True):
            library = ctypes.CDLL(str(target.path))
            for contract in unit.contracts:
                plain = contract.name in unit.plain_kernels
                symbol = getattr(library, f"fh_{'plain' if plain else 'thread'}_{contract.name}")
                where = ctypes.cast(symbol, ctypes.c_void_p).value
                self._kernels[unit.file, contract.name] = Entry(*((where, None) if plain else (None, where)))

    # Plans

    def plan(self, operations: Sequence[Operation], *, use_graph: bool = True, branches: int = 1) -> CpuPlan:
        """Records ``operations``; kernels not compiled yet are compiled now. The options have no meaning here."""
        contracts = {id(op.contract): op.contract for op in operations if isinstance(op, Launch)}.values()
        self.compile(list(contracts))
        entries = {c: self._kernels[resolved(c.file), c.name] for c in contracts}
        return CpuPlan(operations, entries, self._runtime.fh_run, self._settings, double=self.double)

    def synchronize(self) -> None:
        """Nothing to wait for: a plan has run when ``run`` returns."""

    def memory(self) -> tuple[int, int]:
        """(bytes available, bytes in all) of the machine."""
        page = os.sysconf("SC_PAGE_SIZE")
        total = page * os.sysconf("SC_PHYS_PAGES")
        try:
            for line in Path("/proc/meminfo").read_text().splitlines():
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024, total
        except OSError:
            pass
        return page * os.sysconf("SC_AVPHYS_PAGES"), total

    def describe(self) -> dict[str, Any]:
        """What the manifest records."""
        return {
            "kind": self.kind,
            "name": self.name,
            "threads": self.threads,
            "order": self.order,
            "compiler": self._builder.compiler.version,
            "flags": " ".join(self._builder.options.kernel_flags()),
            "double": self.double,
            "sanitize": self.sanitize,
            "numpy": np.__version__,
        }


def _parse_order(order: str) -> tuple[int, int]:
    name, _, seed = order.partition(":")
    if name in ("forward", "reverse") and not seed:
        return _ORDERS[name], 0
    if name == "random" and seed.isdecimal():
        return _ORDERS[name], int(seed)
    raise DeviceError(f"order must be 'forward', 'reverse' or 'random:<seed>', got '{order}'")


def _require_sanitizer() -> None:
    """Loading a sanitized library without its runtime ends the process: refuse before."""
    if "libasan" not in Path("/proc/self/maps").read_text():
        raise DeviceError(
            "sanitize=True needs AddressSanitizer in the process from its start: "
            "start Python with the variables of foxhunt_cli.device.cpu_build.sanitizer_environment()"
        )


def _load_runtime(target: Target) -> ctypes.CDLL:
    """The runtime, visible to the kernels loaded after it; the one already there if some device has loaded it.

    Two in a process would tear apart what belongs together: kernels would call one and blocks run in the other.
    """
    library = ctypes.CDLL(None)
    if not hasattr(library, "fh_key"):
        library = ctypes.CDLL(str(target.path), mode=ctypes.RTLD_GLOBAL)
    library.fh_key.restype = ctypes.c_char_p
    if library.fh_key().decode() != target.key:
        raise DeviceError(
            "this process already runs kernels with another build of the CPU runtime (sanitize or ucontext differ, "
            "or its sources were edited); use a process of its own"
        )
    library.fh_run.argtypes = [ctypes.c_void_p, ctypes.c_longlong, ctypes.c_void_p]
    library.fh_run.restype = ctypes.c_char_p
    return library


def _aligned_bytes(count: int, *, exact: bool) -> np.ndarray:
    """``count`` zero bytes at a multiple of ALIGNMENT.

    ``exact``: an allocation of just this size, so that a sanitizer sees an access beyond the end. Otherwise pages
    that nobody touches cost nothing.
    """
    if not exact:
        room = np.zeros(count + ALIGNMENT, np.uint8)
        start = -address(room) % ALIGNMENT
        return room[start : start + count]
    libc = ctypes.CDLL(None)
    pointer = ctypes.c_void_p()
    if libc.posix_memalign(ctypes.byref(pointer), ctypes.c_size_t(ALIGNMENT), ctypes.c_size_t(max(1, count))):
        raise DeviceError(f"no memory for an array of {count} bytes")
    memory = (ctypes.c_uint8 * count).from_address(pointer.value)
    weakref.finalize(memory, libc.free, ctypes.c_void_p(pointer.value))
    array = np.frombuffer(memory, np.uint8)
    array[...] = 0
    return array
