"""Oracles of whole iterations: a recorded list equals the same list step by step, and a seed decides everything."""

from __future__ import annotations

import numpy as np

from foxhunt_cli.config.run import RunConfig
from foxhunt_cli.data.source import load_market_data
from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.train.checkpoint import state_names
from foxhunt_cli.train.engine import Engine, build_engine
from foxhunt_cli.train.prepare import prepare_training

ITERATIONS = 14  # the critic learns from the eleventh on


def engine(trial: Trial, seed: int = 0, encoder: str = "mlp") -> Engine:
    """A small run with every part of the default one."""
    config = RunConfig.model_validate(
        {"batch": 4, "rollout": 4, "seed": seed, "encoder": encoder, "replay_batch": 32, "updates": 2}
        | {"synthetic": {"snapshots": 12_000}, "replay_capacity": 1024, "isv": {"p_min": 0.05}}
    )
    market = load_market_data(None, config.data, config.synthetic)
    return build_engine(trial.device, config, prepare_training(trial.device, market, config))


def differing(a: Engine, b: Engine) -> list[str]:
    """State arrays that are not the same bits."""
    pairs = ((n, a.device.download(a.arrays[n]), b.device.download(b.arrays[n])) for n in state_names(a))
    return [name for name, x, y in pairs if np.array(x).tobytes() != np.array(y).tobytes()]


@oracle("rollout")
def recorded_iterations_equal_eager_ones(trial: Trial) -> None:
    """Parameters, optimiser, replay, accounts, random states and the ISV after 14 iterations, bit for bit."""
    for encoder in ("mlp", "full"):
        recorded, eager = engine(trial, encoder=encoder), engine(trial, encoder=encoder)
        for _ in range(ITERATIONS):
            recorded.iterate()
            eager.current_plan().run_eager()
            eager.done += 1
        trial.true(f"{encoder}: the critic has learned", recorded.done > recorded.prefill_iterations)
        trial.equal(f"{encoder}: arrays that differ", 0, len(differing(recorded, eager)))


@oracle("rollout")
def a_seed_decides_a_run(trial: Trial) -> None:
    """Two runs of one seed are the same bits; another seed is another run; everything stays finite."""
    first, second, other = engine(trial), engine(trial), engine(trial, seed=1)
    for _ in range(ITERATIONS):
        for run in (first, second, other):
            run.iterate()
    trial.equal("arrays that differ, one seed", 0, len(differing(first, second)))
    trial.true("another seed differs", "params" in differing(first, other))
    isv = first.drain()
    trial.true("finite", bool(np.isfinite(isv).all()))
    trial.equal("steps counted", np.arange(1, ITERATIONS + 1) * 4.0, isv[:, 608])
