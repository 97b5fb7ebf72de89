"""Small engines for the tests of whole iterations: how they are built and driven, what their memory holds.

``FOXHUNT_TEST_DEVICE=cuda`` runs the same tests on a GPU, with the kernels that only it has; there "recorded" is a
captured graph.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from foxhunt_cli.config.load import load_config
from foxhunt_cli.config.run import RunConfig
from foxhunt_cli.data.source import load_market_data
from foxhunt_cli.device.base import Operation
from foxhunt_cli.device.select import select
from foxhunt_cli.isv.table import number
from foxhunt_cli.pipeline.build import build
from foxhunt_cli.pipeline.iteration import training
from foxhunt_cli.pipeline.shape import Shape
from foxhunt_cli.pipeline.stage import Fusion, Step
from foxhunt_cli.train.checkpoint import state_names
from foxhunt_cli.train.engine import Engine, build_engine, compile_run
from foxhunt_cli.train.prepare import prepare_training
from foxhunt_cli.train.shapes import shape_of

DEVICE = os.environ.get("FOXHUNT_TEST_DEVICE", "cpu")
FUSIONS: list[Fusion] = ["none", "float32"] if DEVICE == "cpu" else ["tf32"]
MARKET = "synthetic.snapshots=12000"
FOUR = ("batch=4", "rollout=4", "replay_batch=32", "updates=2")


def built(
    config: RunConfig, steps: Callable[[Shape], Sequence[Step]] = training, fusion: Fusion | None = None
) -> Engine:
    """One that runs the list ``steps``, with every kernel of a run compiled in one go.

    fusion: which fused kernels run; None leaves that to configuration and device.
    """
    device = select(DEVICE, precision=config.precision).device
    market = load_market_data(None, config.data, config.synthetic)
    compile_run(device, config)
    return build_engine(device, config, prepare_training(device, market, config), steps, fusion=fusion)


def engine(*sets: str) -> Engine:
    """One that trains: four rows of four steps, two updates of the critic, and what ``sets`` say otherwise."""
    return built(load_config(sets=[MARKET, *FOUR, *sets]))


def learning(sets: Iterable[str], fusion: Fusion) -> tuple[Engine, list[Operation]]:
    """One of three rows whose critic has begun to learn, and the operations of its iterations from now on."""
    config = load_config(sets=[MARKET, "batch=3", "updates=2", "isv.p_min=0.05", "graph=false", *sets])
    e = built(config, fusion=fusion)
    operations = build(training(replace(shape_of(config, e.device), fusion=fusion)), e.arrays, e.dims, e.device)
    return iterate(fill(e), 1), operations


def iterate(e: Engine, iterations: int) -> Engine:
    for _ in range(iterations):
        e.iterate()
    return e


def iterate_eagerly(e: Engine, iterations: int) -> Engine:
    """The same iterations operation by operation, nothing recorded."""
    for _ in range(iterations):
        e.current_plan().run_eager()
        e.done += 1
    return e


def fill(e: Engine) -> Engine:
    """Iterations up to the first in which the critic learns."""
    return iterate(e, e.prefill_iterations - e.done)


def read(e: Engine, name: str) -> np.ndarray:
    return np.array(e.device.download(e.arrays[name]))


def slot(e: Engine, name: str) -> float:
    return float(read(e, "isv")[number(name)])


def contents(e: Engine) -> dict[str, np.ndarray]:
    """Everything in memory."""
    return {name: read(e, name) for name in e.arrays}


def state(e: Engine) -> dict[str, np.ndarray]:
    """What a checkpoint holds."""
    return {name: read(e, name) for name in state_names(e)}


def put(e: Engine, held: dict[str, np.ndarray]) -> None:
    for name, host in held.items():
        e.device.write(e.arrays[name], host)


def differing(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> list[str]:
    """Names of arrays that are not the same bits."""
    return [name for name in a if a[name].tobytes() != b[name].tobytes()]


def still(e: Engine, before: np.ndarray) -> list[str]:
    """Tensors of the flat vector ``params`` of which no element has left its value in ``before``."""
    after = read(e, "params")
    spans = {name: slice(start, start + int(np.prod(shape))) for name, (start, shape) in e.layout.offsets.items()}
    return [name for name, span in spans.items() if (before[span] == after[span]).all()]
