"""Matrix products of the CPU device: of slices, and the same bits however many threads share them."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_samples import normal

from foxhunt_cli.device.base import Product
from foxhunt_cli.device.cpu import CpuDevice


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("accumulate", [False, True])
def test_products_of_column_slices(trans_a: bool, trans_b: bool, accumulate: bool) -> None:
    device = CpuDevice()
    m, k, n = 13, 7, 5
    a = normal(device, *((k, m) if trans_a else (m, k)))
    wide_b = normal(device, *((n, k + 4) if trans_b else (k, n + 4)), seed=1)
    b = wide_b[:, 2 : 2 + (k if trans_b else n)]
    wide_out = normal(device, m, n + 6, seed=2)
    out, before = wide_out[:, 3 : 3 + n], device.download(wide_out)
    expected = (a.T if trans_a else a).astype(np.float64) @ (b.T if trans_b else b)
    if accumulate:
        expected = expected + before[:, 3 : 3 + n]
    device.plan([Product(a, b, out, trans_a, trans_b, accumulate)]).run()
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(wide_out[:, :3], before[:, :3])
    np.testing.assert_array_equal(wide_out[:, 3 + n :], before[:, 3 + n :])


def chain(a: np.ndarray, b: np.ndarray, start: np.ndarray) -> np.ndarray:
    """start + a @ b as the device defines it: fused multiply-adds, k ascending, in pieces of 256 that add up. float64
    holds every product and sum of operands of 12 bits, so each step rounds once."""
    out = start
    for first in range(0, a.shape[1], 256):
        piece = np.zeros_like(start)
        for p in range(first, min(first + 256, a.shape[1])):
            piece = (a[:, p, None].astype(np.float64) * b[None, p, :] + piece).astype(np.float32)
        out = out + piece
    return out


@pytest.mark.parametrize("m, n, k", [(1, 70, 40), (16, 50, 300), (67, 99, 31), (130, 300, 257), (9, 5, 1)])
@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
def test_products_have_the_same_bits_on_any_number_of_threads(
    m: int, n: int, k: int, trans_a: bool, trans_b: bool
) -> None:
    rng = np.random.default_rng(m)
    a, b, start = (np.round(rng.uniform(-1, 1, s) * 2048).astype(np.float32) / 2048 for s in ((m, k), (k, n), (m, n)))
    for accumulate in (False, True):
        want = chain(a, b, start if accumulate else np.zeros_like(start))
        for threads in (1, 3):
            device = CpuDevice(threads=threads)
            held = [device.upload(x) for x in (a.T if trans_a else a, b.T if trans_b else b, start)]
            plan = device.plan([Product(*held, trans_a, trans_b, accumulate)])
            for _ in range(3):  # from the second on a product knows what it costs, and is shared
                device.write(held[2], start)
                plan.run()
                np.testing.assert_array_equal(held[2], want)
