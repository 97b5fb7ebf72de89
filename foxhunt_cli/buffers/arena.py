"""Device memory of a run: one allocation a lifetime, and a named view for every buffer that the plan uses.

Nothing is allocated after this. A checkpoint is the persistent arena plus the parameter vectors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from foxhunt_cli.buffers.row import Buffer
from foxhunt_cli.buffers.table import shape

if TYPE_CHECKING:
    from foxhunt_cli.device.base import Device

_ALIGN = 256  # bytes; vector loads and cache lines never straddle two buffers


def allocate(device: Device, rows: Iterable[Buffer], dims: Mapping[str, int]) -> dict[str, Any]:
    """Zeroed arrays by name. Buffers of one lifetime lie in one allocation, each on a 256-byte boundary."""
    by_lifetime: dict[str, list[Buffer]] = {}
    for row in rows:
        by_lifetime.setdefault(row.lifetime, []).append(row)
    arrays: dict[str, Any] = {}
    for group in by_lifetime.values():
        arrays.update(_carve(device, group, dims))
    return arrays


def _carve(device: Device, rows: list[Buffer], dims: Mapping[str, int]) -> dict[str, Any]:
    spans: dict[str, tuple[int, int, np.dtype, tuple[int, ...]]] = {}
    cursor = 0
    for row in rows:
        dtype, size = np.dtype(row.dtype), shape(row, dims)
        nbytes = math.prod(size) * dtype.itemsize
        spans[row.name] = (cursor, nbytes, dtype, size)
        cursor += -(-nbytes // _ALIGN) * _ALIGN
    block = device.zeros(max(cursor, _ALIGN), np.uint8)
    return {name: block[at : at + n].view(dtype).reshape(size) for name, (at, n, dtype, size) in spans.items()}
