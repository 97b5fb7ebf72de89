"""Oracles of the random numbers: the device draws what the host's twin says, evenly, and streams differ."""

from __future__ import annotations

import numpy as np

from foxhunt_cli.device.rng import seed_states, uniform01, xorshift32
from foxhunt_cli.oracles.base import Trial, oracle

N = 4096


def drawn_taus(trial: Trial, states: np.ndarray) -> dict[str, np.ndarray]:
    """One draw from each state by the kernel that draws quantile fractions."""
    return trial.run("rl_sample_tau", {"rng_tau": states, "iqn_tau": np.zeros(len(states), np.float32)}, n=len(states))


@oracle("rng")
def states_advance_as_on_the_host(trial: Trial) -> None:
    """xorshift32 on the device and its numpy twin leave the same states, bit for bit, and never a zero."""
    states = seed_states(5, "tau", N)
    out = drawn_taus(trial, states)
    trial.equal("states", xorshift32(states), out["rng_tau"])
    trial.true("no zero state", bool((out["rng_tau"] != 0).all()))


@oracle("rng")
def draws_are_even(trial: Trial) -> None:
    """4,096 draws over 32 cells: chi squared below the 99.9 % quantile of 31 degrees of freedom, 61.1."""
    values = drawn_taus(trial, seed_states(6, "tau", N))["iqn_tau"].astype(np.float64)
    counts = np.bincount((values * 32).astype(int), minlength=32)
    trial.true("inside [0, 1]", bool((values >= 0).all() and (values <= 1).all()))
    statistic = float(((counts - N / 32) ** 2 / (N / 32)).sum())
    trial.true("chi squared below 61.1", statistic < 61.1, f"{statistic:.1f}")


@oracle("rng")
def streams_and_seeds_do_not_overlap(trial: Trial) -> None:
    """States of two streams, and of two seeds, share no value; uniforms of neighbours do not correlate."""
    a, b, c = seed_states(1, "episode", N), seed_states(1, "action", N), seed_states(2, "episode", N)
    trial.equal("shared states, streams", 0, len(np.intersect1d(a, b)))
    trial.equal("shared states, seeds", 0, len(np.intersect1d(a, c)))
    u = uniform01(a)[0].astype(np.float64)
    # 4 standard errors of a correlation of 4,095 independent pairs.
    trial.close("correlation of neighbours", 0.0, float(np.corrcoef(u[:-1], u[1:])[0, 1]), 4.0 / np.sqrt(N))
