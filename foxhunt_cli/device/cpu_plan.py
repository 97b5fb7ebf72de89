"""Recorded lists of operations on the host.

Owns the packing of operations into the native list that the runtime library runs, and the checks that stand between
Python objects and raw addresses. It neither compiles nor allocates while a plan runs.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foxhunt_cli.device.base import CopyArray, DeviceError, Fill, KernelFault, Launch, Operation, Product
from foxhunt_cli.kernels.contract import KernelContract, Param

MAX_BLOCK = 1024

_SLOT = {
    "float32": "<f4x",
    "float64": "<d",
    "int32": "<i4x",
    "uint32": "<I4x",
    "int64": "<q",
    "uint64": "<Q",
}
_LAUNCH, _FILL, _COPY, _ADD_FLOAT, _ADD_DOUBLE = range(5)  # fh_op_kind of abi.h


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
        ("rows", ctypes.c_longlong),
        ("dst_stride", ctypes.c_longlong),
        ("name", ctypes.c_char_p),
        ("file", ctypes.c_char_p),
        ("cost_ns", ctypes.c_double),
    ]


@dataclass(frozen=True)
class Entry:
    """Where a loaded kernel starts: ``plain`` as a loop over threads, or ``thread`` on a fiber. One is None."""

    plain: int | None
    thread: int | None


class CpuPlan:
    """A recorded list: runs of launches, fills and copies are one native call each, products are numpy's."""

    def __init__(
        self,
        operations: Sequence[Operation],
        entries: Mapping[KernelContract, Entry],
        native_run: Callable[[int, int, int], bytes | None],
        settings: ctypes.Structure,
        *,
        double: bool,
    ) -> None:
        self._operations = tuple(operations)  # keeps the arrays alive
        self._entries = entries
        self._native_run = native_run
        self._settings = settings
        self._double = double
        self._keep: list[Any] = []  # packed arguments, strings and scratch that the native list points to
        self._scratch: dict[tuple[Any, ...], np.ndarray] = {}
        self._ops = (_Op * max(1, len(operations)))()
        self._eager: list[Callable[[], None]] = []
        self._steps: list[Callable[[], None]] = []
        self._now = self._steps  # where steps go: those of a condition into a list of their own
        first = 0
        flag: np.ndarray | None = None
        for index, operation in enumerate(operations):
            when = getattr(operation, "when", None)  # a copy has none
            if when is not flag:
                self._end_run(first, index)
                first, flag = index, when
                self._now = self._steps if flag is None else self._condition(flag)
            if isinstance(operation, Product):
                self._end_run(first, index)
                first = index + (0 if operation.accumulate else 1)  # the addition is native
                self._product(operation, index)
            else:
                self._ops[index] = self._record(operation)
                self._add_eager(self._native(index, 1), flag)
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
            self._now.append(self._native(first, end - first))

    def _condition(self, flag: np.ndarray) -> list[Callable[[], None]]:
        """The list of the steps that run only where ``flag`` is not 0 when their turn comes."""
        if flag.dtype != np.int32 or flag.size != 1:
            raise DeviceError(f"a condition is one int32, got {_describe(flag)}")
        own: list[Callable[[], None]] = []

        def run_all() -> None:
            if flag.flat[0]:
                for step in own:
                    step()

        self._steps.append(run_all)
        return own

    def _add_eager(self, step: Callable[[], None], flag: np.ndarray | None) -> None:
        self._eager.append(step if flag is None else lambda: step() if flag.flat[0] else None)

    def _native(self, first: int, count: int) -> Callable[[], None]:
        run = self._native_run
        ops = ctypes.addressof(self._ops) + first * ctypes.sizeof(_Op)
        settings = ctypes.addressof(self._settings)

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
            return _Op(kind=_FILL, dst=address(operation.array), bytes=operation.array.nbytes)
        if isinstance(operation, CopyArray):
            src, dst = operation.src, operation.dst
            _require_contiguous("CopyArray", "src", src)
            _require_contiguous("CopyArray", "dst", dst)
            if src.shape != dst.shape or src.dtype != dst.dtype:
                raise DeviceError(
                    f"CopyArray: src is {src.dtype}{src.shape}, dst {dst.dtype}{dst.shape}; they must agree"
                )
            return _Op(kind=_COPY, dst=address(dst), src=address(src), bytes=src.nbytes)
        raise DeviceError(f"an operation is a Launch, Product, Fill or CopyArray, got {type(operation).__name__}")

    def _launch(self, launch: Launch) -> _Op:
        contract = launch.contract
        where = f"{contract.file}:{contract.line}: kernel {contract.name}"
        if not 1 <= launch.block <= MAX_BLOCK or not 1 <= launch.grid < 2**31:
            raise DeviceError(
                f"{where}: grid {launch.grid}, block {launch.block}; expected 1 or more blocks of 1 to {MAX_BLOCK}"
            )
        if len(launch.args) != len(contract.params):
            raise DeviceError(f"{where}: takes {len(contract.params)} arguments, got {len(launch.args)}")
        double = self._double
        slots = b"".join(_slot(p, a, double, where) for p, a in zip(contract.params, launch.args, strict=True))
        args = ctypes.create_string_buffer(slots, len(slots) + 8)
        name, file = contract.name.encode(), str(contract.file).encode()
        self._keep += [args, name, file]
        entry = self._entries[contract]
        return _Op(
            kind=_LAUNCH,
            grid=launch.grid,
            block=launch.block,
            shared_bytes=launch.shared_bytes * (2 if double else 1),
            plain=entry.plain,
            thread=entry.thread,
            args=ctypes.addressof(args),
            name=name,
            file=file,
        )

    def _product(self, product: Product, index: int) -> None:
        """Adds the steps of a product: numpy's multiplication and, to accumulate, a native addition."""
        a = product.a.T if product.trans_a else product.a
        b = product.b.T if product.trans_b else product.b
        out = product.out
        _check_product(a, b, product)
        target = out
        if product.accumulate:
            target = self._scratch.setdefault((out.shape, out.dtype), np.empty(out.shape, out.dtype))
            self._ops[index] = _Op(
                kind=_ADD_FLOAT if out.dtype == np.float32 else _ADD_DOUBLE,
                dst=address(out),
                src=address(target),
                bytes=out.shape[1] * out.itemsize,
                rows=out.shape[0],
                dst_stride=out.strides[0],
            )

        def multiply() -> None:
            np.matmul(a, b, out=target)

        self._now.append(multiply)
        self._add_eager(multiply, product.when)
        if product.accumulate:
            self._add_eager(self._native(index, 1), product.when)


def address(array: np.ndarray) -> int:
    """Address of the first element."""
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
        return struct.pack("<Q", address(value))
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
        raise DeviceError(
            f"Product: op(a) is {a.shape}, op(b) {b.shape}, out {out.shape}; expected (m, k), (k, n), (m, n)"
        )
    if not a.dtype == b.dtype == out.dtype or out.dtype not in (np.float32, np.float64):
        raise DeviceError(f"Product: dtypes {a.dtype}, {b.dtype}, {out.dtype}; expected one floating type")
    for name, array in (("a", product.a), ("b", product.b), ("out", out)):
        if array.shape[1] > 1 and array.strides[1] != array.itemsize:
            raise DeviceError(
                f"Product: elements of a row of {name} are {array.strides[1]} bytes apart, must be adjacent"
            )
    if np.shares_memory(a, out) or np.shares_memory(b, out):
        raise DeviceError("Product: out shares memory with an operand; give it an array of its own")
