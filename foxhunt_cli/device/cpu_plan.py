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

from foxhunt_cli.device.base import (
    MAX_BLOCK,
    CopyArray,
    DeviceError,
    Fill,
    KernelFault,
    Launch,
    Operation,
    Product,
)
from foxhunt_cli.kernels.contract import KernelContract, Param

_SLOT = {
    "float32": "<f4x",
    "float64": "<d",
    "int32": "<i4x",
    "uint32": "<I4x",
    "int64": "<q",
    "uint64": "<Q",
}
_LAUNCH, _FILL, _COPY, _PRODUCT = range(4)  # fh_op_kind of abi.h


class _Product(ctypes.Structure):
    """fh_product of abi.h."""

    _fields_ = [
        ("out", ctypes.c_void_p),
        ("a", ctypes.c_void_p),
        ("b", ctypes.c_void_p),
        ("m", ctypes.c_long),
        ("n", ctypes.c_long),
        ("k", ctypes.c_long),
        ("out_row", ctypes.c_long),
        ("out_column", ctypes.c_long),
        ("a_row", ctypes.c_long),
        ("a_column", ctypes.c_long),
        ("b_row", ctypes.c_long),
        ("b_column", ctypes.c_long),
        ("accumulate", ctypes.c_int),
        ("is_double", ctypes.c_int),
    ]


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
        ("when", ctypes.c_void_p),
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
    """A recorded list, which runs in one native call."""

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
        self._keep: list[Any] = []  # packed arguments and strings that the native list points to
        records = [record for operation in operations for record in self._records(operation)]
        self._count = len(records)
        self._ops = (_Op * max(1, self._count))(*records)

    def run(self) -> None:
        """Runs the list. Raises KernelFault when a kernel breaks a rule; the operations after it do not run."""
        self._native(0, self._count)

    def run_eager(self) -> None:
        """The same, one operation a call, or one of its parts."""
        for index in range(self._count):
            self._native(index, 1)

    def _native(self, first: int, count: int) -> None:
        ops = ctypes.addressof(self._ops) + first * ctypes.sizeof(_Op)
        report = self._native_run(ops, count, ctypes.addressof(self._settings))
        if report is not None:
            raise KernelFault(report.decode(errors="replace"))

    def _records(self, operation: Operation) -> list[_Op]:
        records = self._product(operation) if isinstance(operation, Product) else [self._unconditional(operation)]
        flag = getattr(operation, "when", None)  # a copy has none
        if flag is not None:
            if flag.dtype != np.int32 or flag.size != 1:
                raise DeviceError(f"a condition is one int32, got {_describe(flag)}")
            for record in records:
                record.when = address(flag)
        return records

    def _unconditional(self, operation: Operation) -> _Op:
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

    def _product(self, product: Product) -> list[_Op]:
        """One record, or a copy of the addend before it and the sums of columns behind it."""
        a = product.a.T if product.trans_a else product.a
        b = product.b.T if product.trans_b else product.b
        out = product.out
        _check_product(a, b, product)
        record = self._packed(out, a, b, product.accumulate or product.addend is not None)
        if product.column_sums is None and product.addend is None:
            return [record]
        records = [record]
        if product.addend is not None:
            for name, array in (("addend", product.addend), ("out", out)):
                _require_contiguous("Product", name, array)
            records.insert(0, _Op(kind=_COPY, dst=address(out), src=address(product.addend), bytes=out.nbytes))
        if product.column_sums is not None:
            ones = np.ones((1, product.b.shape[0]), out.dtype)
            self._keep.append(ones)
            records.append(self._packed(product.column_sums, ones, product.b, False))
        return records

    def _packed(self, out: np.ndarray, a: np.ndarray, b: np.ndarray, accumulate: bool) -> _Op:
        distances = (stride // out.itemsize for array in (out, a, b) for stride in array.strides)
        where = (address(array) for array in (out, a, b))
        packed = _Product(*where, *out.shape, a.shape[1], *distances, accumulate, out.dtype == np.float64)
        self._keep.append(packed)
        return _Op(kind=_PRODUCT, args=ctypes.addressof(packed))


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
    if 0 in (*out.shape, a.shape[1]):
        raise DeviceError(f"Product: op(a) is {a.shape}, op(b) {b.shape}; expected one element or more")
    if not a.dtype == b.dtype == out.dtype or out.dtype not in (np.float32, np.float64):
        raise DeviceError(f"Product: dtypes {a.dtype}, {b.dtype}, {out.dtype}; expected one floating type")
    for name, array in (("a", product.a), ("b", product.b), ("out", out)):
        if array.shape[1] > 1 and array.strides[1] != array.itemsize:
            raise DeviceError(
                f"Product: elements of a row of {name} are {array.strides[1]} bytes apart, must be adjacent"
            )
    if np.shares_memory(a, out) or np.shares_memory(b, out):
        raise DeviceError("Product: out shares memory with an operand; give it an array of its own")
