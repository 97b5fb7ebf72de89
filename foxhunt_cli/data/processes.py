"""Random processes that the synthetic market is made of, and the scan that lets a price follow another with hysteresis.

Vectorised: well above a million values a second a core. They know no market; the same generator gives the same bits.
"""

from __future__ import annotations

import numpy as np

from foxhunt_cli.data.regime import decayed_sum


def stationary(rng: np.random.Generator, n: int, length: float, sigma: float) -> np.ndarray:
    """Stationary AR(1) with correlation length `length` snapshots and standard deviation `sigma`, float64 [n]."""
    x = rng.standard_normal(n, np.float32) * (sigma * np.sqrt(-np.expm1(-2 / length)))
    x[0] = sigma * rng.standard_normal()
    return decayed_sum(x, np.arange(n, dtype=np.float64), length)


def clamp_scan(low: np.ndarray, high: np.ndarray, first: int) -> np.ndarray:
    """m_i = min(high_i, max(low_i, m_{i-1})), m_{-1} = first; int64 [n]; low <= high.

    Clamps compose into clamps, so about sqrt(n) chunks run side by side: once to compose each chunk's
    clamp, then, from each chunk's now known start, once for the values.
    """
    n = len(low)
    width = max(1, int(np.sqrt(n)))
    rows = -(-n // width)
    lo, hi = np.full(rows * width, np.iinfo(np.int64).min), np.full(rows * width, np.iinfo(np.int64).max)
    lo[:n], hi[:n] = low, high
    lo, hi = np.ascontiguousarray(lo.reshape(rows, width).T), np.ascontiguousarray(hi.reshape(rows, width).T)
    total_lo, total_hi = lo[0].copy(), hi[0].copy()
    for j in range(1, width):
        np.minimum(np.maximum(total_lo, lo[j]), hi[j], out=total_lo)
        np.minimum(np.maximum(total_hi, lo[j]), hi[j], out=total_hi)
    start = np.empty(rows, np.int64)
    value = first
    for r, (a, b) in enumerate(zip(total_lo.tolist(), total_hi.tolist(), strict=True)):
        start[r] = value
        value = min(b, max(a, value))
    out = np.empty((width, rows), np.int64)
    previous = start
    for j in range(width):
        previous = np.minimum(np.maximum(previous, lo[j], out=out[j]), hi[j], out=out[j])
    return np.ascontiguousarray(out.T).ravel()[:n]


def spells(rng: np.random.Generator, n: int, chance: float, length: int) -> np.ndarray:
    """0/1, int64 [n]: spells of 1..length that start with `chance` a snapshot."""
    start = np.flatnonzero(rng.random(n, np.float32) < chance)
    edges = np.zeros(n + length + 2, np.int32)
    np.add.at(edges, start, 1)
    np.add.at(edges, start + rng.integers(1, length + 1, len(start)), -1)
    return (np.cumsum(edges[:n]) > 0).astype(np.int64)


def change_points(rng: np.random.Generator, n: int, chance: float) -> np.ndarray:
    """Ascending indices in [0, n), the first 0, each other one there with `chance`."""
    points = np.zeros(1, np.int64)
    while points[-1] < n:
        more = rng.geometric(chance, int((n - points[-1]) * chance * 1.05) + 16)
        points = np.concatenate([points, points[-1] + np.cumsum(more)])
    return points[: np.searchsorted(points, n)]
