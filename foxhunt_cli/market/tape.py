"""What buffers held in each iteration, kept on the device until somebody asks.

Owns the copies. Were each buffer read in each iteration, the host would wait for the device thousands of times a play.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from foxhunt_cli.device.base import Array, CopyArray, Device


class Tape:
    """Room for ``iterations`` copies of each of the ``live`` buffers, which have steps first: [T, ...]."""

    def __init__(self, device: Device, live: Mapping[str, Array], iterations: int) -> None:
        self._device = device
        self._kept = {name: device.zeros((iterations, *array.shape), array.dtype) for name, array in live.items()}
        self._plans = [
            device.plan([CopyArray(array, self._kept[name][i]) for name, array in live.items()], use_graph=False)
            for i in range(iterations)
        ]

    def record(self, iteration: int) -> None:
        """Enqueues the copies of what the buffers hold now; waits for nothing."""
        self._plans[iteration].run()

    def read(self) -> dict[str, np.ndarray]:
        """[iterations * T, ...] by name."""
        return {name: self._device.download(kept).reshape(-1, *kept.shape[2:]) for name, kept in self._kept.items()}
