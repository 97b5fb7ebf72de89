"""How a list of operations is timed on either device.

CUDA: the list is captured as one graph that is replayed, timed by events on the device. CPU: wall time.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby

import numpy as np

from foxhunt_cli.device.base import CopyArray, Device, Operation, Plan, Product
from foxhunt_cli.train.checkpoint import state_names
from foxhunt_cli.train.engine import Engine

_GRAPH_OPERATIONS = 100  # of a CUDA graph at least: launching a graph must not weigh on what is in it
_COPY_FLOATS = {"cuda": 1 << 28, "cpu": 1 << 25}
_PRODUCT_SIZE = {"cuda": 4096, "cpu": 1024}

Times = list[float]
"""Seconds of one iteration, by repeat."""


def seconds(device: Device, plan: Plan, repeats: int) -> Times:
    """Seconds of each of ``repeats`` runs; one before them warms up."""
    if device.kind == "cuda":
        return [ms / 1e3 for ms in device.time(plan, repeats)]
    plan.run()
    return [_wall(plan) for _ in range(repeats)]


def limits(device: Device, repeats: int = 9) -> tuple[float, float]:
    """(bytes/s of a large copy, read and write counted; FLOP/s of a large square product), medians, measured now."""
    src, dst = (device.zeros(_COPY_FLOATS[device.kind], np.float32) for _ in range(2))
    copy = statistics.median(seconds(device, device.plan([CopyArray(src, dst)]), repeats))
    n = _PRODUCT_SIZE[device.kind]
    host = np.random.default_rng(0).standard_normal((n, n), np.float32)
    a, b, out = device.upload(host), device.upload(host), device.zeros((n, n), np.float32)
    product = statistics.median(seconds(device, device.plan([Product(a, b, out)]), repeats))
    return 2 * src.nbytes / copy, 2 * n**3 / product


def by_key(engine: Engine, keyed: Sequence[tuple[str, Operation]], repeats: int) -> tuple[Times, dict[str, Times]]:
    """Seconds of whole iterations, and of the operations of each key in an iteration.

    The engine's numbers afterwards are those of no run.
    """
    if engine.device.kind == "cuda":
        return seconds(engine.device, engine.plan, repeats), _alone(engine, keyed, repeats)
    return _in_place(engine, keyed, repeats)


def _in_place(engine: Engine, keyed: Sequence[tuple[str, Operation]], repeats: int) -> tuple[Times, dict[str, Times]]:
    """Real iterations, cut where the key changes, with a clock at each cut; each beside a whole one, not cut."""
    cuts = [
        (key, engine.device.plan([operation for _, operation in part]))
        for key, part in groupby(keyed, key=lambda pair: pair[0])
    ]
    whole: Times = []
    found: dict[str, Times] = {key: [] for key, _ in cuts}
    for _ in range(repeats):
        whole.append(_wall(engine.plan))
        spent: dict[str, float] = defaultdict(float)
        for key, plan in cuts:
            spent[key] += _wall(plan)
        for key, value in spent.items():
            found[key].append(value)
    return whole, found


def _alone(engine: Engine, keyed: Sequence[tuple[str, Operation]], repeats: int) -> dict[str, Times]:
    """Each key's operations as a graph of their own, replayed.

    Before each the engine's state is put back and one whole iteration run, so that no key works on what another left
    behind: repeating a stage that works in place (a backward, an optimiser) turns its numbers into noise.
    """
    device = engine.device
    start = {name: device.download(engine.arrays[name]) for name in state_names(engine)}
    operations: dict[str, list[Operation]] = defaultdict(list)
    for key, operation in keyed:
        operations[key].append(operation)
    found: dict[str, Times] = {}
    for key, own in operations.items():
        for name, host in start.items():
            device.write(engine.arrays[name], host)
        engine.plan.run()
        copies = -(-_GRAPH_OPERATIONS // len(own))
        found[key] = [value / copies for value in seconds(device, device.plan(own * copies), repeats)]
    return found


def _wall(plan: Plan) -> float:
    started = time.perf_counter()
    plan.run()
    return time.perf_counter() - started
