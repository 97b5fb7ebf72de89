"""Turns ``--device`` into a device, and says in one line which one it is and why.

Owns the grammar ``auto | cuda | cuda:N | cpu`` and nothing else. ``auto`` takes a GPU where one is usable and the
CPU otherwise; an explicit request is never replaced by something else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from foxhunt_cli.device import cuda_errors
from foxhunt_cli.device.base import Device, DeviceError, UnknownDevice

_GRAMMAR = re.compile(r"^(?:auto|cpu|cuda(?::(\d+))?)$")


@dataclass(frozen=True)
class Selection:
    """The device, and the sentence for the log and the terminal."""

    device: Device
    line: str


def select(request: str = "auto", *, precision: str | None = None, threads: int | None = None) -> Selection:
    """The device that ``request`` names.

    precision: "tf32", "fp32" or None (the best the GPU has); the CPU always computes in float32. threads: of the CPU
    device; None for all cores. Raises DeviceError with the remedy.
    """
    match = _GRAMMAR.match(request)
    if not match:
        raise UnknownDevice(f"--device: expected auto, cpu, cuda or cuda:N, got '{request}'")
    if request == "cpu":
        return _cpu(threads, "")
    count, reason = cuda_errors.usable_gpus()
    if request == "auto" and not count:
        return _cpu(threads, f"; {reason}")
    if not count:
        raise DeviceError(f"--device {request}: {reason}. Check that nvidia-smi lists a GPU, or use --device cpu")
    return _cuda(int(match[1] or 0), precision)


def _cuda(index: int, precision: str | None) -> Selection:
    from foxhunt_cli.device.cuda import CudaDevice

    device = CudaDevice(index, precision=precision)
    gib = device.memory()[1] / 2**30
    return Selection(
        device, f"device: {device.name} (cuda:{index}, {gib:.0f} GiB, matrix products in {device.precision})"
    )


def _cpu(threads: int | None, why: str) -> Selection:
    from foxhunt_cli.device.cpu import CpuDevice

    device = CpuDevice(threads=threads)
    return Selection(device, f"device: {device.name}{why}")
