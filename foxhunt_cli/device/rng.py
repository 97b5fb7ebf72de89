"""Seeds of every random number: the host's half of ``cuda_src/include/rng.cuh``.

Owns the map (seed, stream name, index) -> state, and the numpy twin of xorshift32 that oracles compare with. The
map is splitmix64 (Steele, Lea, Flood 2014) over a key of the seed and the name, so that a new stream leaves every
other stream's numbers alone. Nothing here depends on numpy's own generators, whose output may change by version.
"""

from __future__ import annotations

import hashlib

import numpy as np

_GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_ZERO_STATE_SUBSTITUTE = np.uint32(0x9E3779B9)  # the same number as in rng.cuh


def _mix64(z: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64: a bijection of 64-bit words."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def stream_bits(seed: int, stream: str, n: int) -> np.ndarray:
    """n independent 64-bit words of one named stream (uint64[n]).

    Raises ValueError for a seed outside [0, 2**64).
    """
    if not 0 <= seed < 1 << 64:
        raise ValueError(f"seed: expected an integer in [0, 2**64), got {seed}")
    name = int.from_bytes(hashlib.blake2b(stream.encode(), digest_size=8).digest(), "little")
    with np.errstate(over="ignore"):
        key = _mix64(_mix64(np.array([seed], dtype=np.uint64) + _GOLDEN_GAMMA) ^ np.uint64(name))
        return _mix64(key + np.arange(1, n + 1, dtype=np.uint64) * _GOLDEN_GAMMA)


def seed_states(seed: int, stream: str, n: int) -> np.ndarray:
    """First states of n xorshift32 generators (uint32[n]); none is zero."""
    states = (stream_bits(seed, stream, n) >> np.uint64(32)).astype(np.uint32)
    states[states == 0] = _ZERO_STATE_SUBSTITUTE
    return states


def uniforms(seed: int, stream: str, n: int) -> np.ndarray:
    """n numbers in [0, 1) on a grid of 2**-53 (float64[n]): initial weights and other draws of the host."""
    return (stream_bits(seed, stream, n) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def xorshift32(states: np.ndarray) -> np.ndarray:
    """The next state of each generator (uint32), which is also its output; as in rng.cuh."""
    x = np.where(states == 0, _ZERO_STATE_SUBSTITUTE, states).astype(np.uint32)
    x ^= x << np.uint32(13)
    x ^= x >> np.uint32(17)
    x ^= x << np.uint32(5)
    return x


def uniform01(states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(float32 in [0, 1) per generator, next states): the twin of ``uniform01`` in rng.cuh, bit for bit."""
    states = xorshift32(states)
    return (states >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24), states
