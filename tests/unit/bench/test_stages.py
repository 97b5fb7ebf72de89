"""Every step of every kind of iteration has a stage, and what an operation moves is counted as the contract says."""

from __future__ import annotations

import numpy as np
import pytest

from foxhunt_cli.bench.stages import OTHER, stages_of
from foxhunt_cli.bench.work import Work, shape_of, work_of
from foxhunt_cli.config.load import load_config
from foxhunt_cli.device.base import Fill, Launch, Product
from foxhunt_cli.kernels.registry import kernel
from foxhunt_cli.pipeline.iteration import training
from foxhunt_cli.pipeline.stage import Matmul, Stage, View, Zero
from foxhunt_cli.pipeline.validate import describe
from foxhunt_cli.train.engine import shape_of as list_shape

PRODUCT = Matmul("p", View("a", "4", "8"), View("b", "8", "16"), View("o", "4", "16"))


@pytest.mark.parametrize("encoder", ["mlp", "full"])
@pytest.mark.parametrize(
    "sets", [(), ("preset=seed",), ("hindsight=none",), ("hindsight=close",), ("updates=0",), ("entry_gates=true",)]
)
def test_every_step_has_a_stage(encoder: str, sets: tuple[str, ...]) -> None:
    shape = list_shape(load_config(sets=[f"encoder={encoder}", *sets]))
    steps = training(shape)
    stages = stages_of(steps, shape)
    unknown = [describe(step) for step, stage in zip(steps, stages, strict=True) if stage == OTHER]
    assert not unknown, "name these in foxhunt_cli/bench/stages.py"
    assert "encoder backward" in stages and "rollout" in stages
    assert ("encoder, next window" if shape.sees_position else "target encoder") in stages or not shape.critic
    assert ("critic: C51 backward" in stages) == shape.critic


def test_a_product_counts_its_operands_exactly() -> None:
    a, b, out = (np.zeros(shape, np.float32) for shape in ((4, 8), (8, 16), (4, 16)))
    assert work_of(PRODUCT, Product(a, b, out), {}) == Work(4.0 * (32 + 128 + 64), 2.0 * 4 * 16 * 8)
    again = work_of(PRODUCT, Product(a, b, out, accumulate=True), {})
    assert again.bytes == 4.0 * (32 + 128 + 128)
    turned = work_of(PRODUCT, Product(np.zeros((8, 4), np.float32), b, out, trans_a=True), {})
    assert turned.flops == 2.0 * 4 * 16 * 8
    assert shape_of(Product(a, b, out)) == "4 x 16 x 8"


def test_a_fill_counts_what_it_writes() -> None:
    assert work_of(Zero("x"), Fill(np.zeros(10, np.float32)), {}) == Work(40.0)


def test_a_kernel_of_one_step_touches_one_slice_and_a_gather_one_row_a_thread() -> None:
    contract = kernel("lobsim_fill")
    t, b, snapshots = 8, 4, 100_000
    sizes = {"bid_px": (snapshots, 10), "bid_sz": (snapshots, 10), "ask_px": (snapshots, 10), "ask_sz": (snapshots, 10)}
    args = tuple(np.zeros(sizes.get(p.name, (t, b)), p.dtype) if p.pointer else 0 for p in contract.params)
    moved = work_of(Stage("lobsim_fill"), Launch(contract, 1, b, 0, args), {}).bytes
    assert 4 * b * 10 * 4 <= moved < 4 * b * 10 * 4 + 2 * 8 * len(args) * t * b


def test_floor_is_the_slower_of_memory_and_arithmetic() -> None:
    assert Work(100.0, 10.0).floor(10.0, 10.0) == 10.0
    assert Work(10.0, 100.0).floor(10.0, 10.0) == 10.0
