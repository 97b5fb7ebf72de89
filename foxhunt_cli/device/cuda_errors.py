"""What a GPU can refuse, in our words: is there one at all, and what to do when it runs out of memory or faults.

Owns the translation of CuPy's errors. It opens no device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from foxhunt_cli.device.base import DeviceError, KernelFault

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
    except OSError as error:  # it makes its cache folder as it is loaded, by default in the home directory
        return 0, f"CuPy cannot be loaded ({error.filename}: {error.strerror}); set CUPY_CACHE_DIR to a writable folder"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        # The documented meaning of this error here, and of no other: there is no usable GPU or driver.
        return 0, f"no NVIDIA GPU or driver ({str(error).split(':')[0]})"
    return count, "" if count else "no NVIDIA GPU is visible"


@contextmanager
def explained(doing: str) -> Iterator[None]:
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
