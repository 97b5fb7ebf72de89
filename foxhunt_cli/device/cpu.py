"""The CPU device: the same kernels without a GPU.

Owns arrays, loading and recorded plans on the host. The compiler is cpu_build.py's matter, threads and barriers the
runtime library's. Only this module and cpu_build.py know that a host compiler exists.
"""

from __future__ import annotations

import ctypes
import os
import struct
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from foxhunt_cli.device.base import (
    Array,
    CopyArray,
    DeviceError,
    Fill,
    KernelFault,
    Launch,
    Operation,
    Product,
    Progress,
)
from foxhunt_cli.device.cpu_build import Builder, BuildOptions, KernelUnit, cpu_model
from foxhunt_cli.kernels.contract import KernelContract, Param

ALIGNMENT = 64  # bytes: a cache line, and the widest vector register
MAX_BLOCK = 1024

_ORDERS = {"forward": 0, "reverse": 1, "random": 2}
_SLOT = {
    "float32": "<f4x",
    "float64": "<d",
    "int32": "<i4x",
    "uint32": "<I4x",
    "int64": "<q",
    "uint64": "<Q",
}


class _Op(ctypes.Structure):
    """fh_op of abi.h."""

    _fields_ = [
        ("kind", ctypes.c_int),
        ("grid", ctypes.c_int),
        ("block", ctypes.c_int),
        ("shared_bytes", ctypes.c_int),
        ("plain", ctypes.c_void_p),
        ("thread", ctypes.c_void_p),
        ("args", ctypes.c_void_p),
        ("dst", ctypes.c_void_p),
        ("src", ctypes.c_void_p),
        ("bytes", ctypes.c_ulonglong),
        ("name", ctypes.c_char_p),
        ("file", ctypes.c_char_p),
        ("cost_ns", ctypes.c_double),
    ]


class _Settings(ctypes.Structure):
    """fh_settings of abi.h."""

    _fields_ = [
        ("threads", ctypes.c_int),
        ("order", ctypes.c_int),
        ("seed", ctypes.c_ulonglong),
        ("poison", ctypes.c_int),
    ]


_LAUNCH, _FILL, _COPY = 0, 1, 2


class CpuDevice:
    """Runs kernels on the host's cores.

    ``order`` is the schedule of threads and blocks: "forward", "reverse" or "random:<seed>"; a kernel without races
    gives the same bits under each. ``sanitize`` compiles with AddressSanitizer and UndefinedBehaviorSanitizer (the
    process must have been started with cpu_build.sanitizer_environment()). ``double`` compiles the kernels with
    ``float`` meaning double; float32 arrays are then float64. ``poison`` fills shared memory with NaN before each
    block. ``ucontext`` switches stacks by the C library instead of assembly.
    """

    kind = "cpu"

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
        self.order = order
        self.double = double
        self.sanitize = sanitize
        kind, seed = _parse_order(order)
        self._settings = _Settings(self.threads, kind, seed, int(poison))
        if sanitize:
            _require_sanitizer()
        self._builder = Builder(BuildOptions(sanitize, double, ucontext), cache_dir)
        self._runtime: ctypes.CDLL | None = None
        self._kernels: dict[tuple[Path, str], tuple[int | None, int | None]] = {}
        self.name = f"{cpu_model()} ({self.threads} thread{'s' if self.threads > 1 else ''})"

    # Arrays ----------------------------------------------------------------------------------------------------

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
                f"write: the array is {array.dtype}{array.shape}, the host data {host.dtype}{host.shape}; they must agree"
            )
        array[...] = host

    def download(self, array: Array) -> np.ndarray:
        """A copy that later launches do not change."""
        return np.array(array)

    def _dtype(self, dtype: Any) -> np.dtype:
        kind = np.dtype(dtype)
        return np.dtype(np.float64) if self.double and kind == np.float32 else kind

    # Kernels ---------------------------------------------------------------------------------------------------

    def compile(self, contracts: Sequence[KernelContract], progress: Progress | None = None) -> None:
        """Builds and loads every file that holds one of ``contracts``; what is loaded already is left alone."""
        files = dict.fromkeys(c.file.resolve() for c in contracts if (c.file.resolve(), c.name) not in self._kernels)
        units = [KernelUnit.of(file) for file in files]
        runtime = self._builder.runtime()
        targets = [self._builder.kernels(unit) for unit in units]
        self._builder.build([runtime, *targets], progress)
        if self._runtime is None:
            self._runtime = _load_runtime(runtime.path)
        for unit, target in zip(units, targets, strict=True):
            library = ctypes.CDLL(str(target.path))
            for contract in unit.contracts:
                plain = contract.name in unit.plain_kernels
                symbol = getattr(library, f"fh_{'plain' if plain else 'thread'}_{contract.name}")
                address = ctypes.cast(symbol, ctypes.c_void_p).value
                self._kernels[unit.file, contract.name] = (address, None) if plain else (None, address)

    # Plans -----------------------------------------------------------------------------------------------------

    def plan(self, operations: Sequence[Operation], *, use_graph: bool = True) -> CpuPlan:
        """Records ``operations``; kernels not compiled yet are compiled now. ``use_graph`` has no meaning here."""
        wanted = [op.contract for op in operations if isinstance(op, Launch)]
        self.compile(wanted)
        return CpuPlan(self, operations)

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


class CpuPlan:
    """A recorded list: runs of launches, fills and copies are one native call each, products are numpy's."""

    def __init__(self, device: CpuDevice, operations: Sequence[Operation]) -> None:
        self._device = device  # keeps libraries and settings alive
        self._operations = tuple(operations)  # and the arrays
        self._keep: list[Any] = []  # packed arguments, strings and scratch that the native list points to
        self._scratch: dict[tuple[Any, ...], np.ndarray] = {}
        self._ops = (_Op * max(1, len(operations)))()
        self._eager: list[Callable[[], None]] = []
        self._steps: list[Callable[[], None]] = []
        first = 0
        for index, operation in enumerate(operations):
            if isinstance(operation, Product):
                self._end_run(first, index)
                step = self._product(operation)
                self._steps.append(step)
                self._eager.append(step)
                first = index + 1
            else:
                self._ops[index] = self._record(operation)
                self._eager.append(self._native(index, 1))
        self._end_run(first, len(operations))

    def run(self) -> None:
        """Runs the list. Raises KernelFault when a kernel breaks a rule; the operations after it do not run."""
        for step in self._steps:
            step()

    def run_eager(self) -> None:
        """The same, one operation a call."""
        for step in self._eager:
            step()

    def _end_run(self, first: int, end: int) -> None:
        if end > first:
            self._steps.append(self._native(first, end - first))

    def _native(self, first: int, count: int) -> Callable[[], None]:
        run = self._device._runtime.fh_run
        ops = ctypes.addressof(self._ops) + first * ctypes.sizeof(_Op)
        settings = ctypes.addressof(self._device._settings)

        def step() -> None:
            report = run(ops, count, settings)
            if report is not None:
                raise KernelFault(report.decode(errors="replace"))

        return step

    def _record(self, operation: Operation) -> _Op:
        if isinstance(operation, Launch):
            return self._launch(operation)
        if isinstance(operation, Fill):
            _require_contiguous("Fill", "array", operation.array)
            return _Op(kind=_FILL, dst=_address(operation.array), bytes=operation.array.nbytes)
        if isinstance(operation, CopyArray):
            src, dst = operation.src, operation.dst
            _require_contiguous("CopyArray", "src", src)
            _require_contiguous("CopyArray", "dst", dst)
            if src.shape != dst.shape or src.dtype != dst.dtype:
                raise DeviceError(f"CopyArray: src is {src.dtype}{src.shape}, dst {dst.dtype}{dst.shape}; they must agree")
            return _Op(kind=_COPY, dst=_address(dst), src=_address(src), bytes=src.nbytes)
        raise DeviceError(f"an operation is a Launch, Product, Fill or CopyArray, got {type(operation).__name__}")

    def _launch(self, launch: Launch) -> _Op:
        contract = launch.contract
        where = f"{contract.file}:{contract.line}: kernel {contract.name}"
        if not 1 <= launch.block <= MAX_BLOCK or not 1 <= launch.grid < 2**31:
            raise DeviceError(
                f"{where}: grid {launch.grid} and block {launch.block}; a grid has 1 to 2^31 - 1 blocks of 1 to {MAX_BLOCK} threads"
            )
        if len(launch.args) != len(contract.params):
            raise DeviceError(f"{where}: takes {len(contract.params)} arguments, got {len(launch.args)}")
        double = self._device.double
        slots = b"".join(_slot(p, a, double, where) for p, a in zip(contract.params, launch.args, strict=True))
        args = ctypes.create_string_buffer(slots, len(slots) + 8)
        name, file = contract.name.encode(), str(contract.file).encode()
        self._keep += [args, name, file]
        plain, thread = self._device._kernels[contract.file.resolve(), contract.name]
        return _Op(
            kind=_LAUNCH,
            grid=launch.grid,
            block=launch.block,
            shared_bytes=launch.shared_bytes * (2 if double else 1),
            plain=plain,
            thread=thread,
            args=ctypes.addressof(args),
            name=name,
            file=file,
        )

    def _product(self, product: Product) -> Callable[[], None]:
        a = product.a.T if product.trans_a else product.a
        b = product.b.T if product.trans_b else product.b
        out = product.out
        _check_product(a, b, product)
        if not product.accumulate:
            return lambda: np.matmul(a, b, out=out)
        key = (out.shape, out.dtype)
        partial = self._scratch.setdefault(key, np.empty(out.shape, out.dtype))

        def accumulate() -> None:
            np.matmul(a, b, out=partial)
            np.add(out, partial, out=out)

        return accumulate


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


def _load_runtime(path: Path) -> ctypes.CDLL:
    """Loads the runtime so that kernels find its symbols. One build of it fits in a process."""
    everything = ctypes.CDLL(None)
    before = None
    if hasattr(everything, "fh_variant"):
        everything.fh_variant.restype = ctypes.c_char_p
        before = everything.fh_variant()
    library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    library.fh_variant.restype = ctypes.c_char_p
    if before is not None and before != library.fh_variant():
        raise DeviceError(
            f"this process runs kernels with the '{before.decode()}' runtime and cannot hold "
            f"'{library.fh_variant().decode()}' too; use a process of its own"
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
        start = -_address(room) % ALIGNMENT
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


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def _require_contiguous(where: str, name: str, array: Any) -> None:
    if not isinstance(array, np.ndarray) or not array.flags.c_contiguous:
        raise DeviceError(f"{where}: {name} must be a C-contiguous numpy array, got {_describe(array)}")


def _slot(param: Param, value: Any, double: bool, where: str) -> bytes:
    """The 8 bytes that stand for one argument."""
    dtype = "float64" if double and param.dtype == "float32" else param.dtype
    if param.pointer:
        _require_contiguous(where, f"parameter {param.name}", value)
        if value.dtype != dtype:
            raise DeviceError(f"{where}: parameter {param.name}: expected {dtype}, got {_describe(value)}")
        return struct.pack("<Q", _address(value))
    try:
        return struct.pack(_SLOT[dtype], value)
    except struct.error as error:
        raise DeviceError(f"{where}: parameter {param.name}: {value!r} is no {param.ctype}: {error}") from error


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}{'' if value.flags.c_contiguous else ' with strides'}"
    return f"{type(value).__name__} {value!r}"


def _check_product(a: np.ndarray, b: np.ndarray, product: Product) -> None:
    out = product.out
    if not (a.ndim == b.ndim == out.ndim == 2) or a.shape[1] != b.shape[0] or out.shape != (a.shape[0], b.shape[1]):
        raise DeviceError(f"Product: op(a) is {a.shape}, op(b) {b.shape}, out {out.shape}; expected (m, k), (k, n), (m, n)")
    if not a.dtype == b.dtype == out.dtype or out.dtype not in (np.float32, np.float64):
        raise DeviceError(f"Product: dtypes {a.dtype}, {b.dtype}, {out.dtype}; expected one floating type")
    for name, array in (("a", product.a), ("b", product.b), ("out", out)):
        if array.shape[1] > 1 and array.strides[1] != array.itemsize:
            raise DeviceError(f"Product: elements of a row of {name} are {array.strides[1]} bytes apart, must be adjacent")
    if np.shares_memory(a, out) or np.shares_memory(b, out):
        raise DeviceError("Product: out shares memory with an operand; give it an array of its own")
