"""What an iteration does at the same time: every order that the dependencies allow leaves the same bits.

Orders are drawn at random and run one operation after the other, so that a missing dependency shows on a CPU too.
"""

from __future__ import annotations

import random

import pytest
from engines import FUSIONS, contents, differing, learning, put

from foxhunt_cli.device.base import Operation
from foxhunt_cli.device.branches import assign, dependencies, schedule
from foxhunt_cli.pipeline.stage import Fusion
from foxhunt_cli.train.engine import Engine

ORDERS = 3
N_FALLS = "isv.n_step_anneal_steps=60"
PRESETS = {
    "foxhunt": ("rollout=4", "replay_batch=32"),
    "seed": ("preset=seed",),
    "passes": ("rollout=4", "replay_batch=32", "encoder=mlp", "controllers.rollout_steps=on", "isv.rollout_steps=6144"),
    "all": ("rollout=4", "replay_batch=32", "entry_gates=true", "critic_grad=true", "replay_encoding=fresh", N_FALLS),
}


def run(e: Engine, operations: list[Operation]) -> None:
    e.device.plan(operations, use_graph=False).run_eager()


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
    e, operations = learning(PRESETS[preset], fusion)
    start = contents(e)
    run(e, operations)
    want = contents(e)
    before = dependencies(operations)
    assert any(len(needs) > 1 for needs in before)
    moved = 0
    for seed in range(ORDERS):
        order = random_order(before, random.Random(seed))
        moved += order != sorted(order)
        put(e, start)
        run(e, [operations[index] for index in order])
        assert differing(want, contents(e)) == []
    assert moved == ORDERS, "the list has one order only"


def test_an_order_that_breaks_one_dependency_shows() -> None:
    """The proof above can fail: with the operation that most others wait for moved behind them, bits differ."""
    e, operations = learning(PRESETS["foxhunt"], "none")
    start = contents(e)
    run(e, operations)
    want = contents(e)
    waited = [need for needs in dependencies(operations) for need in needs]
    chain = list(range(len(operations)))
    chain.append(chain.pop(max(chain, key=waited.count)))
    put(e, start)
    run(e, [operations[index] for index in chain])
    assert differing(want, contents(e)) != []


@pytest.mark.parametrize("branches", [1, 2, 4])
def test_schedules_keep_dependencies_and_use_what_they_may(branches: int) -> None:
    _, operations = learning(PRESETS["foxhunt"], "float32")
    before, found = dependencies(operations), schedule(operations, branches)
    place = {index: at for at, index in enumerate(found.order)}
    assert sorted(found.order) == list(range(len(operations)))
    assert all(place[need] < place[index] for index, needs in enumerate(before) for need in needs)
    assert found.branches == branches
    assert found == schedule(operations, branches)
    alone, _ = assign(before, [1.0] * len(before), 1)
    assert len(alone) == len(before)
