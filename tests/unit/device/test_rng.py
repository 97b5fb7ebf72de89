"""Seeding of random numbers: golden values, no zero, independence of streams, and the numpy twin of rng.cuh."""

import numpy as np
import pytest

from foxhunt_cli.device import rng


def test_golden_states():
    """A change of these numbers changes every run and every checkpoint: it needs an entry in the changelog."""
    assert rng.seed_states(0, "policy", 4).tolist() == [3249676124, 672919816, 3908174861, 2298040206]
    assert rng.seed_states(1, "policy", 2).tolist() == [2148730464, 2611521664]


def test_a_longer_stream_begins_with_the_shorter_one():
    assert np.array_equal(rng.seed_states(7, "noise", 100)[:10], rng.seed_states(7, "noise", 10))


def test_states_are_distinct_and_never_zero():
    states = rng.seed_states(3, "tau", 4096)
    assert states.dtype == np.uint32 and (states != 0).all()
    assert len(np.unique(states)) == 4096


def test_zero_is_replaced(monkeypatch):
    monkeypatch.setattr(rng, "stream_bits", lambda seed, stream, n: np.zeros(n, np.uint64))
    assert (rng.seed_states(0, "x", 3) == 0x9E3779B9).all()


@pytest.mark.parametrize("other", [(0, "b"), (1, "a"), (0, "a ")])
def test_streams_share_nothing(other):
    mine, theirs = rng.seed_states(0, "a", 2048), rng.seed_states(*other, 2048)
    assert len(np.intersect1d(mine, theirs)) <= 1  # chance alone gives 0.001 on average
    # Correlation of independent uniforms over 2048 pairs: standard deviation 0.022.
    assert abs(np.corrcoef(rng.uniforms(0, "a", 2048), rng.uniforms(*other, 2048))[0, 1]) < 0.11


@pytest.mark.parametrize("seed", [-1, 1 << 64])
def test_seed_out_of_range(seed):
    with pytest.raises(ValueError, match="expected an integer in"):
        rng.seed_states(seed, "a", 1)


def test_uniforms_fill_the_interval_evenly():
    u = rng.uniforms(5, "weights", 20000)
    assert u.min() >= 0 and u.max() < 1
    counts = np.histogram(u, 20, (0, 1))[0]
    assert ((counts - 1000) ** 2 / 1000).sum() < 43.8  # chi-square, 19 degrees of freedom, p = 0.001


def test_xorshift32_twin_matches_the_definition():
    def reference(x):
        x ^= (x << 13) & 0xFFFFFFFF
        x ^= x >> 17
        return x ^ (x << 5) & 0xFFFFFFFF

    states = rng.seed_states(11, "twin", 64)
    assert rng.xorshift32(states).tolist() == [reference(int(s)) for s in states]
    assert rng.xorshift32(np.zeros(1, np.uint32))[0] == reference(0x9E3779B9)


def test_uniform01_twin_is_uniform_and_below_one():
    states = rng.seed_states(2, "uniform", 256)
    draws = []
    for _ in range(100):
        u, states = rng.uniform01(states)
        draws.append(u)
    draws = np.concatenate(draws)
    assert draws.dtype == np.float32 and draws.min() >= 0 and draws.max() < 1
    assert abs(draws.mean() - 0.5) < 5 * np.sqrt(1 / 12 / draws.size)
