"""What an iteration does at the same time: every order that the dependencies allow leaves the same bits.

Orders are drawn at random and run one operation after the other, so that a missing dependency shows on a CPU too.
``FOXHUNT_TEST_DEVICE=cuda`` runs the same on a GPU, with the kernels that only it has.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace

import numpy as np
import pytest

from foxhunt_cli.config.load import load_config
from foxhunt_cli.data.source import load_market_data
from foxhunt_cli.device.base import Operation
from foxhunt_cli.device.branches import assign, dependencies, schedule
from foxhunt_cli.device.select import select
from foxhunt_cli.pipeline.build import build
from foxhunt_cli.pipeline.iteration import training
from foxhunt_cli.pipeline.stage import Fusion
from foxhunt_cli.train.engine import Engine, build_engine
from foxhunt_cli.train.prepare import prepare_training
from foxhunt_cli.train.shapes import shape_of

DEVICE = os.environ.get("FOXHUNT_TEST_DEVICE", "cpu")
ORDERS = 3
FUSIONS = ["none", "float32"] if DEVICE == "cpu" else ["tf32"]
SMALL = ("batch=3", "synthetic.snapshots=12000", "updates=2", "isv.p_min=0.05")
N_FALLS = "isv.n_step_anneal_steps=60"
PRESETS = {
    "foxhunt": ("rollout=4", "replay_batch=32"),
    "seed": ("preset=seed",),
    "passes": ("rollout=4", "replay_batch=32", "encoder=mlp", "controllers.rollout_steps=on", "isv.rollout_steps=6144"),
    "all": ("rollout=4", "replay_batch=32", "entry_gates=true", "critic_grad=true", "replay_encoding=fresh", N_FALLS),
}


def engine_and_list(sets: tuple[str, ...], fusion: Fusion) -> tuple[Engine, list[Operation]]:
    """An engine whose critic has begun to learn, and the operations of its iterations."""
    config = load_config(sets=[*SMALL, *sets, "graph=false"])
    device = select(DEVICE, precision=config.precision).device
    market = load_market_data(None, config.data, config.synthetic)
    e = build_engine(device, config, prepare_training(device, market, config), fusion=fusion)
    operations = build(training(replace(shape_of(config, device), fusion=fusion)), e.arrays, e.dims, device)
    while e.done <= e.prefill_iterations:
        e.iterate()
    return e, operations


def contents(e: Engine) -> dict[str, np.ndarray]:
    return {name: np.array(e.device.download(array)) for name, array in e.arrays.items()}


def restore(e: Engine, held: dict[str, np.ndarray]) -> None:
    for name, host in held.items():
        e.device.write(e.arrays[name], host)


def random_order(before: tuple[tuple[int, ...], ...], chance: random.Random) -> list[int]:
    """Any order that keeps every operation behind those it depends on."""
    waiting = {index: set(needs) for index, needs in enumerate(before)}
    order: list[int] = []
    while waiting:
        order.append(chance.choice([index for index, needs in waiting.items() if not needs]))
        del waiting[order[-1]]
        for needs in waiting.values():
            needs.discard(order[-1])
    return order


@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_every_order_that_dependencies_allow_leaves_the_same_bits(preset: str, fusion: Fusion) -> None:
    e, operations = engine_and_list(PRESETS[preset], fusion)
    start = contents(e)
    e.device.plan(operations, use_graph=False).run_eager()
    want = contents(e)
    before = dependencies(operations)
    assert any(len(needs) > 1 for needs in before)
    moved = 0
    for seed in range(ORDERS):
        order = random_order(before, random.Random(seed))
        moved += order != sorted(order)
        restore(e, start)
        e.device.plan([operations[index] for index in order], use_graph=False).run_eager()
        got = contents(e)
        assert [name for name in want if want[name].tobytes() != got[name].tobytes()] == []
    assert moved == ORDERS, "the list has one order only"


def test_an_order_that_breaks_one_dependency_shows() -> None:
    """The proof above can fail: with the operation that most others wait for moved behind them, bits differ."""
    e, operations = engine_and_list(PRESETS["foxhunt"], "none")
    start = contents(e)
    e.device.plan(operations, use_graph=False).run_eager()
    want = contents(e)
    waited = [need for needs in dependencies(operations) for need in needs]
    chain = list(range(len(operations)))
    chain.append(chain.pop(max(chain, key=waited.count)))
    restore(e, start)
    e.device.plan([operations[index] for index in chain], use_graph=False).run_eager()
    got = contents(e)
    assert any(want[name].tobytes() != got[name].tobytes() for name in want)


@pytest.mark.parametrize("branches", [1, 2, 4])
def test_schedules_keep_dependencies_and_use_what_they_may(branches: int) -> None:
    _, operations = engine_and_list(PRESETS["foxhunt"], "float32")
    before, found = dependencies(operations), schedule(operations, branches)
    place = {index: at for at, index in enumerate(found.order)}
    assert sorted(found.order) == list(range(len(operations)))
    assert all(place[need] < place[index] for index, needs in enumerate(before) for need in needs)
    assert found.branches == branches
    assert found == schedule(operations, branches)
    alone, _ = assign(before, [1.0] * len(before), 1)
    assert len(alone) == len(before)
