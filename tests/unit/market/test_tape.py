"""A tape holds what buffers held in each iteration."""

from __future__ import annotations

import numpy as np

from foxhunt_cli.device.cpu import CpuDevice
from foxhunt_cli.market.tape import Tape


def test_every_iteration_is_kept_in_order_and_a_second_play_replaces_the_first() -> None:
    device = CpuDevice(threads=1)
    arrays = {"pnl": device.zeros((2, 3), np.float32), "closed": device.zeros((2, 3), np.uint8)}
    tape = Tape(device, arrays, 3)
    for play in range(2):
        rng = np.random.default_rng(play)
        pnl = rng.normal(size=(3, 2, 3)).astype(np.float32)
        closed = rng.integers(0, 2, (3, 2, 3)).astype(np.uint8)
        for i in range(3):
            device.write(arrays["pnl"], pnl[i])
            device.write(arrays["closed"], closed[i])
            tape.record(i)
        kept = tape.read()
        np.testing.assert_array_equal(kept["pnl"], pnl.reshape(6, 3))
        np.testing.assert_array_equal(kept["closed"], closed.reshape(6, 3))
