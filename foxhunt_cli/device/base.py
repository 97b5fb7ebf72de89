"""The one interface of the two devices.

Everything above this module speaks in contracts, arrays and operations; only ``cuda.py`` and ``cpu.py`` know
what runs them. An array is a C-contiguous ``numpy.ndarray`` on the CPU and a ``cupy.ndarray`` on CUDA; host code
treats it as opaque but for ``shape``, ``dtype``, ``nbytes``, basic slicing and ``reshape``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from foxhunt_cli.kernels.contract import KernelContract

Array = Any
# Called as progress(done, total, label) while kernels compile.
Progress = Callable[[int, int, str], None]


HOPPER = 90  # compute capability 9.0: what the kernels of cuda_only are written for
MAX_BLOCK = 1024  # threads of a block: every NVIDIA GPU's limit, and so the CPU device's


class DeviceError(RuntimeError):
    """No usable device, or the device failed. The message says what to do."""


class UnknownDevice(DeviceError):
    """No device has this name."""


class CacheError(DeviceError):
    """The cache of compiled kernels cannot be written, so no kernel can run."""


class CompileError(DeviceError):
    """A kernel file does not compile; the message holds the compiler's words with the kernel file's own lines."""


class KernelFault(DeviceError):
    """A kernel broke a rule at run time (divergent barrier, deadlocked shuffle, device fault)."""


@dataclass(frozen=True)
class Launch:
    """One kernel launch, everything frozen: a recorded plan replays it unchanged.

    ``args`` holds, in the order of the signature, arrays for pointers and Python ints or floats for scalars.
    ``when``, here and in the other operations: an int32 array of one element; where it is 0 as the operation's turn
    comes, nothing happens.
    """

    contract: KernelContract
    grid: int
    block: int
    shared_bytes: int
    args: tuple[Any, ...]
    when: Array | None = None


@dataclass(frozen=True)
class Product:
    """out = op(a) @ op(b), plus ``addend``, or out += ... with ``accumulate``; row-major 2-D arrays.

    Rows may be strided (a column slice of a wider matrix); elements of a row are adjacent. op transposes.
    column_sums: [1, n], becomes the sums over the rows of b, the gradient of a bias where out is that of the weights;
    b is not transposed there.
    """

    a: Array
    b: Array
    out: Array
    trans_a: bool = False
    trans_b: bool = False
    accumulate: bool = False
    when: Array | None = None
    addend: Array | None = None
    column_sums: Array | None = None

    @property
    def operands(self) -> tuple[Array, ...]:
        """What it reads, but for ``out`` where it accumulates."""
        return (self.a, self.b) if self.addend is None else (self.a, self.b, self.addend)

    @property
    def results(self) -> tuple[Array, ...]:
        """What it writes."""
        return (self.out,) if self.column_sums is None else (self.out, self.column_sums)


@dataclass(frozen=True)
class Fill:
    """Every byte of ``array`` becomes zero."""

    array: Array
    when: Array | None = None


@dataclass(frozen=True)
class CopyArray:
    """dst[...] = src, same shape, dtype and device, both contiguous."""

    src: Array
    dst: Array


Operation = Launch | Product | Fill | CopyArray


def extent(array: Array) -> tuple[int, int]:
    """Addresses of the first byte of ``array`` and of one past its last, with what lies between strided rows."""
    interface = getattr(array, "__cuda_array_interface__", None) or array.__array_interface__
    start = interface["data"][0]
    reach = sum((count - 1) * stride for count, stride in zip(array.shape, array.strides, strict=True))
    return start, start + reach + array.itemsize


class Plan(Protocol):
    """A recorded list of operations. Nothing is allocated while it runs."""

    def run(self) -> None:
        """Enqueue the whole list (a graph replay on CUDA). Does not wait for it."""

    def run_eager(self) -> None:
        """The same list, one operation at a time; bit-identical to ``run``."""


class Device(Protocol):
    """A place where kernels run."""

    kind: str  # "cpu" or "cuda"
    name: str  # for people: "AMD EPYC (2 threads)", "NVIDIA H200"
    precision: str  # of matrix products: "fp32" or "tf32"
    double: bool  # the kernels' float means double: gradient checks on the CPU; float32 arrays are float64 then
    tensor_cores: bool  # it runs the fused kernels of cuda_only

    def zeros(self, shape: tuple[int, ...] | int, dtype: Any) -> Array:
        """A new array, every byte zero."""
        ...

    def upload(self, host: np.ndarray) -> Array:
        """A new array with the contents of ``host``."""
        ...

    def write(self, array: Array, host: np.ndarray) -> None:
        """Overwrites ``array``. Raises DeviceError on another shape or dtype."""
        ...

    def download(self, array: Array) -> np.ndarray:
        """A copy on the host, once everything enqueued before is done."""
        ...

    def compile(
        self,
        contracts: Sequence[KernelContract],
        progress: Progress | None = None,
        conditional: Sequence[KernelContract] = (),
    ) -> None:
        """Compiles and loads kernels. conditional: those that also run under a flag (``Launch.when``)."""
        ...

    def plan(self, operations: Sequence[Operation], *, use_graph: bool = True, branches: int = 1) -> Plan:
        """Checks and records ``operations``.

        branches: on how many they may run at the same time, where none needs another (CUDA graphs).
        """
        ...

    def synchronize(self) -> None:
        """Waits for everything enqueued. Raises KernelFault where a kernel faulted."""
        ...

    def memory(self) -> tuple[int, int]:
        """(bytes free, bytes in all) of the memory arrays live in."""
        ...

    def describe(self) -> dict[str, Any]:
        """What the manifest records: kind, name, toolkit, compiler, threads, driver."""
        ...
