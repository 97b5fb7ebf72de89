"""The CUDA device: kernels compiled by NVRTC, launched one by one or as a captured graph.

Owns the only import of ``cupy``, one non-blocking stream, and every array on the GPU. Everything is checked and
allocated when a plan is built; running a plan allocates nothing and waits for nothing. Streams, events and graphs
do not leave this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from foxhunt_cli.device import cuda_matmul, nvrtc
from foxhunt_cli.device.base import (
    Array,
    CompileError,
    CopyArray,
    DeviceError,
    Fill,
    KernelFault,
    Launch,
    Operation,
    Product,
    Progress,
)
from foxhunt_cli.kernels.contract import KernelContract, Param, parse_file
from foxhunt_cli.kernels.registry import cuda_root

PRECISIONS = ("tf32", "fp32")
TF32_CAPABILITY = 80
_KERNEL_FAULTS = (
    "cudaErrorIllegalAddress",
    "cudaErrorLaunchFailure",
    "cudaErrorMisalignedAddress",
    "cudaErrorAssert",
    "cudaErrorIllegalInstruction",
    "cudaErrorInvalidAddressSpace",
    "cudaErrorHardwareStackError",
)
_NO_MEMORY = ("cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY")


def usable_gpus() -> tuple[int, str]:
    """(number of GPUs, why there is none). Never raises; the reason is empty where there is a GPU."""
    try:
        import cupy
    except ImportError as error:
        return 0, f"CuPy is not installed ({error})"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        # The documented meaning of this error here, and of no other: there is no usable GPU or driver.
        return 0, f"no NVIDIA GPU or driver ({str(error).split(':')[0]})"
    return count, "" if count else "no NVIDIA GPU is visible"


@contextmanager
def _explained(doing: str) -> Iterator[None]:
    """Turns CuPy's errors into ours, each with what to do."""
    import cupy

    try:
        yield
    except cupy.cuda.memory.OutOfMemoryError as error:
        raise _no_memory(doing, error) from error
    except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError) as error:
        text = str(error)
        if any(name in text for name in _NO_MEMORY):
            raise _no_memory(doing, error) from error
        if any(name in text for name in _KERNEL_FAULTS) or "CUDA_ERROR_ILLEGAL" in text or "LAUNCH_FAILED" in text:
            raise KernelFault(
                f"a kernel faulted, noticed while {doing}: {text}. Run the same with --no-graph under "
                "compute-sanitizer, or with --device cpu, to find the kernel"
            ) from error
        raise DeviceError(
            f"the GPU failed while {doing}: {text}. If nvidia-smi no longer lists it, restart the machine; "
            "then continue with --resume from the last checkpoint"
        ) from error


def _no_memory(doing: str, error: Exception) -> DeviceError:
    """What fills the GPU may be this run or another program; the figures say which."""
    import cupy

    try:
        free, total = cupy.cuda.runtime.memGetInfo()
        left = f"{free >> 20:,} MiB of {total >> 20:,} MiB are free"
    except cupy.cuda.runtime.CUDARuntimeError:  # not even a context fits
        left = "nothing is free"
    return DeviceError(
        f"out of GPU memory while {doing}: {str(error).rstrip('.')}; {left}. Lower --batch, or end the other "
        "programs that nvidia-smi lists"
    )


@dataclass(frozen=True)
class _Step:
    """One launch or memory operation, everything resolved; ``enqueue`` puts it on the device's stream."""

    label: str
    enqueue: Callable[[], None]
    keep_alive: tuple[Any, ...] = ()


class CudaPlan:
    """A recorded list of operations. The first ``run`` is eager and records the graph that later ones replay."""

    def __init__(self, device: CudaDevice, steps: Sequence[_Step], use_graph: bool):
        self._device = device
        self._steps = tuple(steps)
        self._use_graph = use_graph
        self._graph: Any = None

    def run(self) -> None:
        """Enqueues the whole list; does not wait."""
        if self._graph is not None:
            with _explained("replaying a graph"):
                self._graph.launch(self._device.stream)
            return
        self.run_eager()
        if self._use_graph and self._steps:
            self._graph = self._device._capture(self._enqueue)

    def run_eager(self) -> None:
        """The same list, one operation at a time."""
        with self._device._active("running a plan"):
            self._enqueue()

    def _enqueue(self) -> None:
        for step in self._steps:
            step.enqueue()


class CudaDevice:
    """One NVIDIA GPU. ``precision`` of matrix products: "tf32" (tensor cores), "fp32", or None for the best it has."""

    kind = "cuda"

    def __init__(self, index: int = 0, precision: str | None = None):
        import cupy

        count, reason = usable_gpus()
        if not 0 <= index < count:
            raise DeviceError(
                reason or f"there is no GPU {index}: this machine has {count} (0 to {count - 1}); see nvidia-smi"
            )
        self._cupy = cupy
        self._gpu = cupy.cuda.Device(index)
        with _explained("opening it"), self._gpu:
            cupy.cuda.runtime.memGetInfo()  # makes the context; a stream that cannot be made prints from its destructor
            self.stream = cupy.cuda.Stream(non_blocking=True)
            properties = cupy.cuda.runtime.getDeviceProperties(index)
        self.name = properties["name"].decode()
        self.index = index
        self.capability = properties["major"] * 10 + properties["minor"]
        self._shared_limit = properties["sharedMemPerBlockOptin"]
        self.precision = self._precision(precision)
        self._modules: dict[tuple[Path, bool], Any] = {}  # by file, and whether its kernels take a flag
        self._functions: dict[tuple[Path, bool, str], Any] = {}

    def _precision(self, asked: str | None) -> str:
        has_tf32 = self.capability >= TF32_CAPABILITY
        if asked is None:
            return "tf32" if has_tf32 else "fp32"
        if asked not in PRECISIONS:
            raise DeviceError(f"precision: expected one of {', '.join(PRECISIONS)}, got '{asked}'")
        if asked == "tf32" and not has_tf32:
            raise DeviceError(
                f"{self.name} (compute capability {self.capability / 10}) has no TF32; use --precision fp32"
            )
        return asked

    @contextmanager
    def _active(self, doing: str) -> Iterator[None]:
        with _explained(doing), self._gpu, self.stream:
            yield

    # Arrays

    def zeros(self, shape: tuple[int, ...] | int, dtype: Any) -> Array:
        """A new array, every byte zero."""
        with self._active(f"allocating {shape} {np.dtype(dtype)}"):
            array = self._cupy.empty(shape, dtype)
            array.data.memset_async(0, array.nbytes, self.stream)
            return array

    def upload(self, host: np.ndarray) -> Array:
        """A new array with the contents of ``host``."""
        with self._active(f"uploading {host.shape} {host.dtype}"):
            array = self._cupy.empty(host.shape, host.dtype)
            array.set(np.ascontiguousarray(host), stream=self.stream)
            return array

    def write(self, array: Array, host: np.ndarray) -> None:
        """Overwrites ``array``. Raises DeviceError on another shape or dtype."""
        if array.shape != host.shape or array.dtype != host.dtype:
            raise DeviceError(f"write: the array is {array.shape} {array.dtype}, the data {host.shape} {host.dtype}")
        with self._active("writing an array"):
            if array.flags.c_contiguous:
                array.set(np.ascontiguousarray(host), stream=self.stream)
            else:
                array[...] = self._cupy.asarray(host)

    def download(self, array: Array) -> np.ndarray:
        """A host copy; waits for everything enqueued before."""
        with self._active("downloading an array"):
            host = array.get(stream=self.stream)
            self.stream.synchronize()
            return host

    def synchronize(self) -> None:
        """Waits for everything enqueued. Raises KernelFault where a kernel faulted."""
        with self._active("waiting for it"):
            self.stream.synchronize()

    # Kernels

    def compile(
        self,
        contracts: Sequence[KernelContract],
        progress: Progress | None = None,
        conditional: Sequence[KernelContract] = (),
    ) -> None:
        """Compiles and loads the files of these kernels, in parallel; CompileError names file and line.

        Kernels that run under a flag are compiled once more, with the flag as a parameter.
        """
        wanted = {(c.file.resolve(), flag) for own, flag in ((contracts, False), (conditional, True)) for c in own}
        files = sorted(wanted - set(self._modules))
        root = cuda_root()
        arch = nvrtc.arch_for(self.capability)
        tasks = [nvrtc.CompileTask(file, arch, (root, file.parent), flag) for file, flag in files]
        for key, binary in zip(files, nvrtc.compile_cached(tasks, progress=progress), strict=True):
            with self._active(f"loading {key[0].name}"):
                self._modules[key] = self._cupy.RawModule(path=str(binary))

    def _function(self, contract: KernelContract, shared_bytes: int, block: int, conditional: bool = False) -> Any:
        module = (contract.file.resolve(), conditional)
        if module not in self._modules:
            self.compile(*(([], None, [contract]) if conditional else ([contract],)))
        key = (*module, contract.name)
        if key not in self._functions:
            with self._active(f"loading kernel {contract.name}"):
                self._functions[key] = self._modules[module].get_function(contract.name)
        function = self._functions[key]
        where = f"kernel {contract.name} ({contract.file}:{contract.line})"
        with self._active(f"loading kernel {contract.name}"):
            if block > function.max_threads_per_block:
                raise DeviceError(
                    f"{where}: a block of {block} threads; on {self.name} it may have {function.max_threads_per_block}"
                )
            if shared_bytes + function.shared_size_bytes > self._shared_limit:
                raise DeviceError(
                    f"{where}: {shared_bytes} bytes of shared memory; {self.name} has {self._shared_limit} a block"
                )
            if shared_bytes > function.max_dynamic_shared_size_bytes:
                function.max_dynamic_shared_size_bytes = shared_bytes
        return function

    # Plans

    def plan(self, operations: Sequence[Operation], *, use_graph: bool = True) -> CudaPlan:
        """Checks, compiles and resolves every operation; allocates what products need between two passes."""
        launches = [op for op in operations if isinstance(op, Launch)]
        self.compile(
            [op.contract for op in launches if op.when is None],
            conditional=[op.contract for op in launches if op.when is not None],
        )
        resolvers = {Launch: self._launch, Product: self._product, Fill: self._fill, CopyArray: self._copy}
        steps: list[_Step] = []
        for op in operations:
            if type(op) not in resolvers:
                raise DeviceError(f"plan: {type(op).__name__} is not an operation")
            steps.extend(resolvers[type(op)](op))
        return CudaPlan(self, steps, use_graph)

    def _launch(self, op: Launch) -> list[_Step]:
        contract = op.contract
        if len(op.args) != len(contract.params):
            raise DeviceError(f"kernel {contract.name}: {len(contract.params)} arguments expected, got {len(op.args)}")
        args = tuple(self._pack(contract, p, a) for p, a in zip(contract.params, op.args, strict=True))
        return [self._kernel_step(contract, op.grid, op.block, op.shared_bytes, args, op.when)]

    def _kernel_step(
        self, contract: KernelContract, grid: int, block: int, shared: int, args: tuple[Any, ...], when: Any = None
    ) -> _Step:
        """when: the flag that a conditional kernel takes as its last argument."""
        if not 1 <= grid < 1 << 31:
            raise DeviceError(f"kernel {contract.name}: a grid of {grid} blocks; expected 1 to {(1 << 31) - 1}")
        if when is not None:
            self._check_array(f"kernel {contract.name}: its condition", when)
            if when.dtype != np.int32 or when.size != 1:
                raise DeviceError(f"kernel {contract.name}: a condition is one int32, got {when.dtype}{when.shape}")
            args = (*args, when)
        function = self._function(contract, shared, block, when is not None)
        return _Step(contract.name, lambda: function((grid,), (block,), args, shared_mem=shared), args)

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
        if not isinstance(value, self._cupy.ndarray):
            raise DeviceError(f"{where}: expected an array of this device, got {type(value).__name__}")
        if value.device.id != self.index:
            raise DeviceError(f"{where}: the array is on GPU {value.device.id}, this device is GPU {self.index}")

    def _fill(self, op: Fill) -> list[_Step]:
        self._check_array("fill", op.array)
        if not op.array.flags.c_contiguous:
            raise DeviceError(f"fill: expected a contiguous array, got strides {op.array.strides}")
        memory, size, stream = op.array.data, op.array.nbytes, self.stream
        if op.when is not None and size:
            contract = _contracts("clear.cu")["clear_words"]
            if size % 4:
                raise DeviceError(f"fill: {size} bytes under a condition; expected a multiple of 4")
            block = int(contract.launch.block)
            args = (op.array, np.int64(size // 4))
            return [self._kernel_step(contract, -(-size // 4 // block), block, 0, args, op.when)]
        return [_Step("fill", lambda: memory.memset_async(0, size, stream), (op.array,))] if size else []

    def _copy(self, op: CopyArray) -> list[_Step]:
        src, dst = op.src, op.dst
        for array in (src, dst):
            self._check_array("copy", array)
        if src.shape != dst.shape or src.dtype != dst.dtype or not (src.flags.c_contiguous and dst.flags.c_contiguous):
            raise DeviceError(
                f"copy: expected equal contiguous arrays, got {src.shape} {src.dtype} to {dst.shape} {dst.dtype}"
            )
        size, stream = src.nbytes, self.stream
        return (
            [_Step("copy", lambda: dst.data.copy_from_device_async(src.data, size, stream), (src, dst))] if size else []
        )

    def _product(self, op: Product) -> list[_Step]:
        for name, array in (("a", op.a), ("b", op.b), ("out", op.out)):
            self._check_array(f"product: {name}", array)
        shape = cuda_matmul.shape_of(op)
        start, stop = _span(op.out)
        for name, (first, last) in (("a", _span(op.a)), ("b", _span(op.b))):
            if first < stop and start < last:
                raise DeviceError(f"product: out overlaps {name} in memory; the product needs an output of its own")
        return self._product_steps(op, shape, cuda_matmul.cut(shape, op.trans_a, op.trans_b, self.precision))

    def _product_steps(self, op: Product, shape: cuda_matmul.Shape, cut: cuda_matmul.Cut) -> list[_Step]:
        """One pass, or two with partial sums between them where K is split."""
        contract = _contracts(f"gemm_{cut.kernel.split('_')[1]}.cu")[cut.kernel]
        split = cut.splits > 1
        target = self.zeros(cut.workspace(shape), np.float32) if split else op.out
        strides = (shape.lda, shape.ldb, shape.n if split else shape.ldo)
        add = op.accumulate and not split
        flags = (int(op.trans_a), int(op.trans_b), int(add), cut.k_chunk)
        plane = np.int64(shape.m * shape.n if split else 0)
        numbers = tuple(map(np.int32, (shape.m, shape.n, shape.k, *strides, *flags)))
        block, shared = int(contract.launch.block), int(contract.launch.shared)
        args = (op.a, op.b, target, *numbers, plane)
        steps = [self._kernel_step(contract, cut.blocks(shape), block, shared, args, op.when)]
        if split:
            contract = _contracts("gemm_splits.cu")["gemm_sum_splits"]
            numbers = tuple(map(np.int32, (shape.m, shape.n, shape.ldo, cut.splits, int(op.accumulate))))
            grid = -(-shape.m * shape.n // 32)
            block, args = int(contract.launch.block), (target, op.out, *numbers)
            steps.append(self._kernel_step(contract, grid, block, 0, args, op.when))
        return steps

    def _capture(self, enqueue: Callable[[], None]) -> Any:
        with self._active("capturing a graph"):
            self.stream.begin_capture()
            try:
                enqueue()
            finally:
                # Also after a failure: a stream left capturing would refuse everything that follows.
                graph = self.stream.end_capture()
            graph.upload(self.stream)
            return graph

    # Figures

    def time(self, plan: CudaPlan, repeats: int = 20) -> list[float]:
        """Milliseconds of each of ``repeats`` runs, by events on the device; one run before them warms up."""
        plan.run()
        with self._active("timing a plan"):
            events = [self._cupy.cuda.Event() for _ in range(repeats + 1)]
            events[0].record(self.stream)
            for event in events[1:]:
                plan.run()
                event.record(self.stream)
            events[-1].synchronize()
            return [self._cupy.cuda.get_elapsed_time(a, b) for a, b in zip(events, events[1:], strict=False)]

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes of the GPU's memory."""
        with self._active("asking for its memory"):
            return tuple(self._cupy.cuda.runtime.memGetInfo())

    def pool_usage(self) -> tuple[int, int]:
        """(bytes in use, bytes held) of CuPy's memory pool: equal before and after a replay, or something allocated."""
        with self._gpu:
            pool = self._cupy.get_default_memory_pool()
            return pool.used_bytes(), pool.total_bytes()

    def describe(self) -> dict[str, Any]:
        """What the manifest records of this device."""
        runtime = self._cupy.cuda.runtime
        return {
            "kind": self.kind,
            "name": self.name,
            "index": self.index,
            "compute_capability": f"{self.capability // 10}.{self.capability % 10}",
            "precision": self.precision,
            "memory_bytes": self.memory()[1],
            "driver": _dotted(runtime.driverGetVersion()),
            "runtime": _dotted(runtime.runtimeGetVersion()),
            "nvrtc": ".".join(map(str, nvrtc.version())),
            "cupy": self._cupy.__version__,
        }


def _span(array: Array) -> tuple[int, int]:
    """Addresses from the first byte of a row-strided 2-D array to one past its last."""
    start = array.data.ptr
    return start, start + (array.shape[0] - 1) * array.strides[0] + array.shape[1] * array.itemsize


def _dotted(version: int) -> str:
    """12090 -> "12.9"."""
    return f"{version // 1000}.{version % 1000 // 10}"


def _contracts(file: str) -> dict[str, KernelContract]:
    path = cuda_root() / "cuda_only" / file
    contracts = {c.name: c for c in parse_file(path)}
    if not contracts:
        raise CompileError(f"{path}:1: no kernels in it")
    return contracts
