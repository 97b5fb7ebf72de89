"""The CUDA device: kernels compiled by NVRTC, launched one by one or as a captured graph.

Owns one non-blocking stream and every array on the GPU. Everything is checked and allocated when a plan is built
(``cuda_operations.py``); running a plan (``cuda_graph.py``) allocates nothing and waits for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from foxhunt_cli.device import nvrtc
from foxhunt_cli.device.base import HOPPER, Array, DeviceError, Launch, Operation, Progress
from foxhunt_cli.device.branches import schedule
from foxhunt_cli.device.cuda_errors import explained, usable_gpus
from foxhunt_cli.device.cuda_graph import CudaPlan
from foxhunt_cli.device.cuda_operations import Resolver
from foxhunt_cli.kernels.contract import KernelContract
from foxhunt_cli.kernels.registry import cuda_root
from foxhunt_cli.kernels.text import resolved

PRECISIONS = ("tf32", "fp32")
TF32_CAPABILITY = 80


class CudaDevice:
    """One NVIDIA GPU. ``precision`` of matrix products: "tf32" (tensor cores), "fp32", or None for the best it has."""

    kind = "cuda"
    double = False

    def __init__(self, index: int = 0, precision: str | None = None):
        import cupy

        count, reason = usable_gpus()
        if not 0 <= index < count:
            raise DeviceError(
                reason or f"there is no GPU {index}: this machine has {count} (0 to {count - 1}); see nvidia-smi"
            )
        self._cupy = cupy
        self._gpu = cupy.cuda.Device(index)
        with explained("opening it"), self._gpu:
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
        self._resolver = Resolver(self, cupy.ndarray)

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

    @property
    def tensor_cores(self) -> bool:
        """Whether it runs the kernels of cuda_only, which are written for Hopper."""
        return self.capability >= HOPPER

    @contextmanager
    def active(self, doing: str) -> Iterator[None]:
        """This GPU and its stream are current, errors are ours. doing: for the message, "uploading a table"."""
        with explained(doing), self._gpu, self.stream:
            yield

    # Arrays

    def zeros(self, shape: tuple[int, ...] | int, dtype: Any) -> Array:
        """A new array, every byte zero."""
        with self.active(f"allocating {shape} {np.dtype(dtype)}"):
            array = self._cupy.empty(shape, dtype)
            array.data.memset_async(0, array.nbytes, self.stream)
            return array

    def upload(self, host: np.ndarray) -> Array:
        """A new array with the contents of ``host``."""
        with self.active(f"uploading {host.shape} {host.dtype}"):
            array = self._cupy.empty(host.shape, host.dtype)
            array.set(np.ascontiguousarray(host), stream=self.stream)
            return array

    def write(self, array: Array, host: np.ndarray) -> None:
        """Overwrites ``array``. Raises DeviceError on another shape or dtype."""
        if array.shape != host.shape or array.dtype != host.dtype:
            raise DeviceError(f"write: the array is {array.shape} {array.dtype}, the data {host.shape} {host.dtype}")
        with self.active("writing an array"):
            if array.flags.c_contiguous:
                array.set(np.ascontiguousarray(host), stream=self.stream)
            else:
                array[...] = self._cupy.asarray(host)

    def download(self, array: Array) -> np.ndarray:
        """A host copy; waits for everything enqueued before."""
        with self.active("downloading an array"):
            host = array.get(stream=self.stream)
            self.stream.synchronize()
            return host

    def synchronize(self) -> None:
        """Waits for everything enqueued. Raises KernelFault where a kernel faulted."""
        with self.active("waiting for it"):
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
        wanted = {(resolved(c.file), flag) for own, flag in ((contracts, False), (conditional, True)) for c in own}
        files = sorted(wanted - set(self._modules))
        root = cuda_root()
        arch = nvrtc.arch_for(self.capability)
        tasks = [nvrtc.CompileTask(file, arch, (root, file.parent), flag) for file, flag in files]
        for key, binary in zip(files, nvrtc.compile_cached(tasks, progress=progress), strict=True):
            with self.active(f"loading {key[0].name}"):
                self._modules[key] = self._cupy.RawModule(path=str(binary))

    def function(self, contract: KernelContract, shared_bytes: int, block: int, conditional: bool = False) -> Any:
        """The loaded kernel, compiled now if it was not. Raises DeviceError where this GPU cannot launch it so.

        conditional: the one that takes a flag as its last parameter.
        """
        module = (resolved(contract.file), conditional)
        if module not in self._modules:
            self.compile(*(([], None, [contract]) if conditional else ([contract],)))
        key = (*module, contract.name)
        if key not in self._functions:
            with self.active(f"loading kernel {contract.name}"):
                self._functions[key] = self._modules[module].get_function(contract.name)
        function = self._functions[key]
        where = f"kernel {contract.name} ({contract.file}:{contract.line})"
        with self.active(f"loading kernel {contract.name}"):
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

    def plan(self, operations: Sequence[Operation], *, use_graph: bool = True, branches: int = 1) -> CudaPlan:
        """Checks, compiles and resolves every operation; allocates what products need between two passes.

        branches: of the graph, at most; operations on different ones run at the same time where none needs another.
        """
        launches = [op for op in operations if isinstance(op, Launch)]
        self.compile(
            [op.contract for op in launches if op.when is None],
            conditional=[op.contract for op in launches if op.when is not None],
        )
        enqueued = [self._resolver.enqueued(operation) for operation in operations]
        return CudaPlan(self, enqueued, schedule(operations, branches) if use_graph else None)

    # Figures

    def time(self, plan: CudaPlan, repeats: int = 20) -> list[float]:
        """Milliseconds of each of ``repeats`` runs, by events on the device; one run before them warms up."""
        plan.run()
        with self.active("timing a plan"):
            events = [self._cupy.cuda.Event() for _ in range(repeats + 1)]
            events[0].record(self.stream)
            for event in events[1:]:
                plan.run()
                event.record(self.stream)
            events[-1].synchronize()
            return [self._cupy.cuda.get_elapsed_time(a, b) for a, b in zip(events, events[1:], strict=False)]

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes of the GPU's memory."""
        with self.active("asking for its memory"):
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


def _dotted(version: int) -> str:
    """12090 -> "12.9"."""
    return f"{version // 1000}.{version % 1000 // 10}"
