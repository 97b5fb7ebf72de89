"""Environment steps a second of whole training iterations.

One environment step moves one row one snapshot on. The figure counts everything an iteration does (rollout, learning,
diagnostics) and nothing outside it (data, compilation, evaluation, files).
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

from foxhunt_cli.config.run import RunConfig
from foxhunt_cli.data.source import load_market_data
from foxhunt_cli.device.select import select
from foxhunt_cli.train.compile_bar import compile_bar
from foxhunt_cli.train.engine import Engine, build_engine, compile_run
from foxhunt_cli.train.prepare import prepare_training
from foxhunt_cli.train.split import split

if TYPE_CHECKING:
    from foxhunt_cli.cli.console import Terminal

_REPEATS = 7
_WARM_UP = 3


def run(config: RunConfig, *, seconds: float, console: Terminal) -> dict[str, Any]:
    """Measure for about ``seconds``; figures by label, medians over repeats with their spread."""
    device = select(config.device, precision=config.precision, threads=config.cpu_threads).device
    market = load_market_data(config.paths or None, config.data, config.synthetic)
    with compile_bar(console) as progress:
        compile_run(device, config, progress)
    data = prepare_training(device, split(market, config.holdout).train, config)
    engine = build_engine(device, config, data)
    per_iteration = _measure(engine, seconds)
    moments = config.batch * config.rollout
    median = statistics.median(per_iteration)
    return {
        "device": device.name,
        "market": market.source,
        "B, T, encoder": f"{config.batch}, {config.rollout}, {config.encoder}",
        "one step": "one row moved one snapshot on, learning included",
        "ms an iteration": round(median * 1e3, 4),
        "spread, ms": f"{min(per_iteration) * 1e3:.4f} to {max(per_iteration) * 1e3:.4f} ({len(per_iteration)} repeats)",
        "env steps/s": round(moments / median),
        "us a step of all rows": round(median / config.rollout * 1e6, 2),
        "kernels and products": engine.operations,
    }


def _measure(engine: Engine, seconds: float) -> list[float]:
    """Seconds an iteration, by repeat."""
    for _ in range(_WARM_UP):
        engine.iterate()
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
