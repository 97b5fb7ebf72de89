"""The sample kernels of the CPU device's tests, and launches of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from foxhunt_cli.device.base import Array, Launch
from foxhunt_cli.device.cpu import CpuDevice
from foxhunt_cli.kernels.contract import KernelContract, parse_file

CUDA_SRC = Path(__file__).parent / "kernels" / "cuda_src"
SAMPLE = CUDA_SRC / "sample" / "sample.cu"


def kernels(file: Path = SAMPLE) -> dict[str, KernelContract]:
    return {c.name: c for c in parse_file(file)}


def scale(x: Array, y: Array, file: Path = SAMPLE) -> Launch:
    """y = 2 x + 1."""
    return Launch(kernels(file)["scale_rows"], -(-x.size // 64), 64, 0, (x, y, x.size))


def softmax(x: Array, y: Array) -> Launch:
    """y = softmax of each row of x; at most 128 columns."""
    return Launch(kernels()["row_softmax"], x.shape[0], 128, 4 * 128, (x, y, *x.shape))


def normal(device: CpuDevice, *shape: int, seed: int = 0) -> Array:
    return device.upload(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))
