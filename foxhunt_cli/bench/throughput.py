"""Environment steps a second of whole training iterations.

One environment step moves one row one snapshot on. The figure counts everything an iteration does (rollout, learning,
diagnostics) and nothing outside it (data, compilation, evaluation, files).
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

from foxhunt_cli.bench import kernels
from foxhunt_cli.bench.setup import open_device, open_engine, open_market
from foxhunt_cli.config.run import RunConfig
from foxhunt_cli.train.engine import Engine

if TYPE_CHECKING:
    from foxhunt_cli.cli.console import Terminal

_REPEATS = 7


def run(config: RunConfig, *, seconds: float, console: Terminal, stages: bool = False) -> dict[str, Any]:
    """Measure for about ``seconds``; figures by label, medians over repeats with their spread.

    stages: also ``stages``, a row for each stage of the iteration with time and share (``kernels.measure``).
    """
    device, market = open_device(config), open_market(config)
    engine = open_engine(device, config, market, console)
    per_iteration = _measure(engine, seconds)
    moments = config.batch * config.rollout
    median = statistics.median(per_iteration)
    spread = f"{min(per_iteration) * 1e3:.4f} to {max(per_iteration) * 1e3:.4f} ({len(per_iteration)} repeats)"
    figures = {
        "device": device.name,
        "market": market.source,
        "B, T, encoder": f"{config.batch}, {config.rollout}, {config.encoder}",
        "one step": "one row moved one snapshot on, learning included",
        "ms an iteration": round(median * 1e3, 4),
        "spread, ms": spread,
        "env steps/s": round(moments / median),
        "us a step of all rows": round(median / config.rollout * 1e6, 2),
        "kernels and products": engine.operations,
    }
    return figures | {"stages": kernels.measure(engine, config, None)} if stages else figures


def _measure(engine: Engine, seconds: float) -> list[float]:
    """Seconds an iteration, by repeat."""
    engine.device.synchronize()
    started = time.perf_counter()
    engine.iterate()
    engine.device.synchronize()
    once = time.perf_counter() - started
    count = max(1, int(seconds / _REPEATS / once))
    measured = []
    for _ in range(_REPEATS):
        started = time.perf_counter()
        for _ in range(count):
            engine.iterate()
        engine.device.synchronize()
        measured.append((time.perf_counter() - started) / count)
    return measured
