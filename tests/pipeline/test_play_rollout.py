"""The rollout of a play changes nothing that the mlp encoder's agent does."""

from __future__ import annotations

import numpy as np
import pytest

from foxhunt_cli.bench.setup import open_device, open_market
from foxhunt_cli.config.load import load_config
from foxhunt_cli.config.run import RunConfig
from foxhunt_cli.market import evaluate
from foxhunt_cli.market.evaluate import AGENT, CRITIC, Evaluator
from foxhunt_cli.train.engine import build_engine
from foxhunt_cli.train.prepare import prepare_training
from foxhunt_cli.train.split import split

SETS = ("device=cpu", "encoder=mlp", "batch=4", "rollout=4", "replay_batch=32", "synthetic.snapshots=12000")


def test_the_mlp_plays_the_same_in_long_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config(sets=SETS)
    device = open_device(config)
    parts = split(open_market(config), config.holdout)
    data = prepare_training(device, parts.train, config)
    engine = build_engine(device, config, data)
    weights = device.download(engine.arrays["params"])
    device.write(engine.arrays["params"], weights + np.random.default_rng(0).normal(0, 0.1, weights.shape).astype("f4"))
    device.write(engine.arrays["b_pi"], np.zeros(engine.arrays["b_pi"].shape, np.float32))  # no prior of Hold

    def plays() -> dict[str, evaluate.Play]:
        return Evaluator(config, engine, parts.held_out, data.sigmas).all_policies().plays

    long = plays()
    monkeypatch.setattr(evaluate, "MLP_ROLLOUT", 4)
    short = plays()
    assert np.any(long[AGENT].position) and np.any(long[CRITIC].position)
    for name in (AGENT, CRITIC, "flow"):
        np.testing.assert_array_equal(long[name].position, short[name].position)
        np.testing.assert_array_equal(long[name].pnl, short[name].pnl)


def test_a_play_of_any_length_is_cut_into_whole_iterations() -> None:
    def chosen(steps: int, *sets: str) -> int:
        config: RunConfig = load_config(sets=[*SETS, *sets])
        return evaluate._play_rollout(config, steps)

    assert [chosen(steps) for steps in (2048, 2044, 36, 4)] == [32, 28, 12, 4]
    assert chosen(2048, "rollout=64") == 64
    assert chosen(2048, "encoder=full") == 4
