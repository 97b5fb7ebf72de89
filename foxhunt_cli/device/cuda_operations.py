"""From operations to what is put on a stream: arguments checked and packed, products cut, workspaces allocated.

Owns the checks that stand between operations and a GPU that takes everything on trust, and the choice of the kernels of
products and fills. It runs nothing. A product that needs room between two passes gets its own, so that no two products
meet there.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from foxhunt_cli.device import cuda_matmul
from foxhunt_cli.device.base import (
    HOPPER,
    CompileError,
    CopyArray,
    DeviceError,
    Fill,
    Launch,
    Operation,
    Product,
    extent,
)
from foxhunt_cli.device.cuda_graph import Enqueued
from foxhunt_cli.kernels.contract import KernelContract, Param, parse_file
from foxhunt_cli.kernels.registry import cuda_root

if TYPE_CHECKING:
    from foxhunt_cli.device.cuda import CudaDevice

_NULL = np.uint64(0)  # a pointer that a product's kernel does not follow


class Resolver:
    """Resolves operations for one device."""

    def __init__(self, device: CudaDevice, ndarray: type):
        """ndarray: the type of the device's arrays."""
        self._device = device
        self._ndarray = ndarray

    def enqueued(self, operation: Operation) -> list[Enqueued]:
        """What ``operation`` puts on a stream, in order. Raises DeviceError naming kernel, parameter, expected, got."""
        resolvers = {Launch: self._launch, Product: self._product, Fill: self._fill, CopyArray: self._copy}
        if type(operation) not in resolvers:
            raise DeviceError(f"plan: {type(operation).__name__} is not an operation")
        return resolvers[type(operation)](operation)

    def _launch(self, op: Launch) -> list[Enqueued]:
        contract = op.contract
        if len(op.args) != len(contract.params):
            raise DeviceError(f"kernel {contract.name}: {len(contract.params)} arguments expected, got {len(op.args)}")
        args = tuple(self._pack(contract, p, a) for p, a in zip(contract.params, op.args, strict=True))
        return [self._kernel_step(contract, op.grid, op.block, op.shared_bytes, args, op.when)]

    def _kernel_step(
        self, contract: KernelContract, grid: int, block: int, shared: int, args: tuple[Any, ...], when: Any = None
    ) -> Enqueued:
        """when: the flag that a conditional kernel takes as its last argument."""
        if not 1 <= grid < 1 << 31:
            raise DeviceError(f"kernel {contract.name}: a grid of {grid} blocks; expected 1 to {(1 << 31) - 1}")
        if when is not None:
            self._check_array(f"kernel {contract.name}: its condition", when)
            if when.dtype != np.int32 or when.size != 1:
                raise DeviceError(f"kernel {contract.name}: a condition is one int32, got {when.dtype}{when.shape}")
            args = (*args, when)
        function = self._device.function(contract, shared, block, when is not None)
        return Enqueued(contract.name, lambda _: function((grid,), (block,), args, shared_mem=shared), args)

    def _pack(self, contract: KernelContract, param: Param, value: Any) -> Any:
        """The argument as CuPy must get it: a checked array, or a numpy scalar of the signature's own type."""
        where = f"kernel {contract.name} ({contract.file.name}:{contract.line}), parameter {param.name}"
        if not param.pointer:
            if not isinstance(value, int | float | np.generic) or (param.ctype != "float" and int(value) != value):
                raise DeviceError(f"{where}: expected {param.ctype}, got {value!r}")
            try:
                # A Python float would go over as float64 into a float parameter, without a word.
                return np.dtype(param.dtype).type(value)
            except OverflowError:
                raise DeviceError(f"{where}: {value} does not fit {param.ctype}") from None
        self._check_array(where, value)
        if str(value.dtype) != param.dtype:
            raise DeviceError(f"{where}: expected dtype {param.dtype}, got {value.dtype}")
        if not value.flags.c_contiguous:
            raise DeviceError(
                f"{where}: expected a contiguous array, got strides {value.strides} for shape {value.shape}"
            )
        return value

    def _check_array(self, where: str, value: Any) -> None:
        if not isinstance(value, self._ndarray):
            raise DeviceError(f"{where}: expected an array of this device, got {type(value).__name__}")
        if value.device.id != self._device.index:
            raise DeviceError(
                f"{where}: the array is on GPU {value.device.id}, this device is GPU {self._device.index}"
            )

    def _fill(self, op: Fill) -> list[Enqueued]:
        self._check_array("fill", op.array)
        if not op.array.flags.c_contiguous:
            raise DeviceError(f"fill: expected a contiguous array, got strides {op.array.strides}")
        memory, size = op.array.data, op.array.nbytes
        if op.when is not None and size:
            contract = _contracts("clear.cu")["clear_words"]
            if size % 4:
                raise DeviceError(f"fill: {size} bytes under a condition; expected a multiple of 4")
            block = int(contract.launch.block)
            args = (op.array, np.int64(size // 4))
            return [self._kernel_step(contract, -(-size // 4 // block), block, 0, args, op.when)]
        return [Enqueued("fill", lambda stream: memory.memset_async(0, size, stream), (op.array,))] if size else []

    def _copy(self, op: CopyArray) -> list[Enqueued]:
        src, dst = op.src, op.dst
        for array in (src, dst):
            self._check_array("copy", array)
        if src.shape != dst.shape or src.dtype != dst.dtype or not (src.flags.c_contiguous and dst.flags.c_contiguous):
            raise DeviceError(
                f"copy: expected equal contiguous arrays, got {src.shape} {src.dtype} to {dst.shape} {dst.dtype}"
            )
        size = src.nbytes
        copy = Enqueued("copy", lambda stream: dst.data.copy_from_device_async(src.data, size, stream), (src, dst))
        return [copy] if size else []

    def _product(self, op: Product) -> list[Enqueued]:
        for name, array in (("a", op.a), ("b", op.b), ("out", op.out)):
            self._check_array(f"product: {name}", array)
        shape = cuda_matmul.shape_of(op)
        start, stop = extent(op.out)
        for name, (first, last) in (("a", extent(op.a)), ("b", extent(op.b))):
            if first < stop and start < last:
                raise DeviceError(f"product: out overlaps {name} in memory; the product needs an output of its own")
        for name, array, want in (("addend", op.addend, op.out.shape), ("column_sums", op.column_sums, (1, shape.n))):
            if array is not None:
                self._check_array(f"product: {name}", array)
                if array.shape != want or array.dtype != np.float32 or (op.trans_b and name == "column_sums"):
                    raise DeviceError(f"product: {name} must be float32{list(want)}, got {array.dtype}{array.shape}")
        aligned = all(x is None or x.data.ptr % 16 == 0 for x in (op.a, op.b, op.out, op.addend))
        hopper, precision = aligned and self._device.capability == HOPPER, self._device.precision
        return self._product_steps(op, shape, cuda_matmul.cut(shape, op.trans_a, op.trans_b, precision, hopper))

    def _product_steps(self, op: Product, shape: cuda_matmul.Shape, cut: cuda_matmul.Cut) -> list[Enqueued]:
        """One pass, or two with partial sums between them where K is split."""
        contract = _contracts(f"gemm_{cut.family}.cu")[cut.kernel]
        beside = op.column_sums is not None and cut.family == "tall"  # column sums by the same launch
        addend = op.out if op.accumulate else op.addend
        ldd = 0 if addend is None else cuda_matmul.row_stride("addend", addend)
        added, split = _NULL if addend is None else addend, cut.splits > 1
        target = self._device.zeros(cut.workspace(shape, beside), np.float32) if split else op.out
        sizes, flags = (shape.m, shape.n, shape.k, shape.lda, shape.ldb), (int(op.trans_a), int(op.trans_b))
        if cut.family == "tall":
            args = (op.a, op.b, target, *_int32(*sizes, cut.k_chunk, beside))
        elif cut.family == "rows":
            args = (op.a, op.b, added, op.out, *_int32(*sizes, shape.ldo, ldd, op.trans_b))
        else:
            numbers = _int32(*sizes, shape.n if split else shape.ldo, ldd, *flags, cut.k_chunk)
            args = (op.a, op.b, _NULL if split else added, target, *numbers, np.int64(shape.m * shape.n))
        block, shared = int(contract.launch.block), int(contract.launch.shared)
        steps = [self._kernel_step(contract, cut.blocks(shape), block, shared, args, op.when)]
        if split:
            contract = _contracts("gemm_splits.cu")["gemm_sum_splits"]
            sums, grid = op.column_sums if beside else _NULL, -(-(shape.m + beside) * shape.n // 32)
            args = (target, added, op.out, sums, *_int32(shape.m, shape.n, shape.ldo, ldd, cut.splits))
            steps.append(self._kernel_step(contract, grid, int(contract.launch.block), 0, args, op.when))
        if op.column_sums is not None and not beside:
            ones = self._device.upload(np.ones((1, shape.k), np.float32))
            steps += self._product(Product(ones, op.b, op.column_sums, when=op.when))
        return steps


def _int32(*values: int) -> tuple[np.int32, ...]:
    return tuple(map(np.int32, values))


@cache  # a plan asks once a product
def _contracts(file: str) -> dict[str, KernelContract]:
    """Contracts of a file of the device's own kernels, by name."""
    path = cuda_root() / "cuda_only" / file
    contracts = {c.name: c for c in parse_file(path)}
    if not contracts:
        raise CompileError(f"{path}:1: no kernels in it")
    return contracts
