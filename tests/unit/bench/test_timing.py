"""Stages are timed on a real engine: in place on the CPU, alone as on a GPU, and neither leaves bad numbers behind."""

from __future__ import annotations

import numpy as np
import pytest

from foxhunt_cli.bench import kernels, timing
from foxhunt_cli.bench.setup import open_device, open_engine, open_market
from foxhunt_cli.cli.console import Terminal
from foxhunt_cli.config.load import load_config
from foxhunt_cli.config.run import RunConfig
from foxhunt_cli.train.engine import Engine

SMALL = ["device=cpu", "batch=4", "rollout=4", "synthetic.snapshots=12000", "replay_batch=32", "updates=2"]


def built(*sets: str) -> tuple[RunConfig, Engine]:
    config = load_config(sets=[*SMALL, *sets])
    return config, open_engine(open_device(config), config, open_market(config), Terminal(quiet=True))


@pytest.mark.parametrize("detail", [False, True])
def test_parts_add_up_to_the_iteration(detail: bool) -> None:
    config, engine = built("encoder=mlp")
    found = kernels.measure(engine, config, (1e10, 1e11), detail=detail, repeats=3)
    assert sum(r["kernels"] + r["products"] for r in found["rows"]) <= found["operations"] == engine.operations
    assert found["floor_us"] > 0
    assert all(r["us"] > 0 and r["MB"] >= 0 and np.isfinite(r["of_limit"]) for r in found["rows"])
    assert abs(sum(r["share"] for r in found["rows"]) - found["sum_us"] / found["iteration_us"]) < 1e-9
    assert np.isfinite(engine.device.download(engine.arrays["params"])).all()


@pytest.mark.parametrize("sets", [("encoder=mlp",), ("encoder=full",), ("preset=seed", "rollout=1", "episode_len=64")])
def test_each_stage_alone_starts_from_good_numbers(sets: tuple[str, ...]) -> None:
    """The way of a GPU, on a CPU that calls itself one: state put back, stages repeated, milliseconds by the device."""
    config, engine = built(*sets, "fused=false")
    device = engine.device
    device.kind = "cuda"
    device.time = lambda plan, repeats: [plan.run() or 100.0 for _ in range(repeats)]
    found = kernels.measure(engine, config, (1e10, 1e11), repeats=2)
    assert len(found["rows"]) > 15 and found["iteration_us"] == 1e5
    assert all(0.0 < r["us"] <= 1e5 / 100 * (r["kernels"] + r["products"] + 1) for r in found["rows"])
    assert np.isfinite(engine.device.download(engine.arrays["isv"])).all()
    assert np.isfinite(engine.device.download(engine.arrays["params"])).all()


def test_limits_are_plausible() -> None:
    copy, product = timing.limits(open_device(load_config(sets=SMALL)), repeats=2)
    assert 1e8 < copy < 1e13 and 1e8 < product < 1e15
