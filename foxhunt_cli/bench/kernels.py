"""Every stage of the real training iteration, timed by itself on the real buffers of a built engine.

A stage is all its steps of one iteration, with time, bytes, FLOPs, and the share of what this device's memory and
products allow. On CUDA a stage is a graph of its own, replayed (small stages then find their data in the cache); on the
CPU real iterations are run in order with a clock between the stages.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from foxhunt_cli.bench import timing
from foxhunt_cli.bench.setup import open_device, open_engine, open_market
from foxhunt_cli.bench.stages import stages_of
from foxhunt_cli.bench.work import Work, shape_of, work_of
from foxhunt_cli.config.run import RunConfig
from foxhunt_cli.device.base import Launch, Operation, Product
from foxhunt_cli.pipeline.build import build
from foxhunt_cli.pipeline.iteration import training
from foxhunt_cli.pipeline.stage import Step
from foxhunt_cli.pipeline.validate import describe
from foxhunt_cli.train.engine import Engine
from foxhunt_cli.train.engine import shape_of as shape_of_list

if TYPE_CHECKING:
    from foxhunt_cli.cli.console import Terminal

REPEATS = 15
_NUMBER = re.compile(r"\s\d+$")  # "cfc gates 17": one of many alike


@dataclass
class Part:
    """What is timed together: its steps of one iteration."""

    stage: str
    label: str
    shape: str = ""
    kernels: int = 0
    products: int = 0
    bytes: float = 0.0
    flops: float = 0.0
    floor_s: float = 0.0
    times: list[float] = field(default_factory=list)

    def add(self, operation: Operation, work: Work, limits: tuple[float, float]) -> None:
        """One more operation. limits: bytes/s and FLOP/s."""
        self.products += isinstance(operation, Product)
        self.kernels += isinstance(operation, Launch)
        self.bytes += work.bytes
        self.flops += work.flops
        self.floor_s += work.floor(*limits)

    def figures(self, whole: float) -> dict[str, Any]:
        """For JSON. us_low, us_high: quartiles. share: of the whole iteration. of_limit: time that bytes and products
        need / time measured."""
        low, time, high = statistics.quantiles(self.times, n=4, method="inclusive")
        return {
            "stage": self.stage,
            "label": self.label,
            "shape": self.shape,
            "us": time * 1e6,
            "us_low": low * 1e6,
            "us_high": high * 1e6,
            "share": time / whole,
            "kernels": self.kernels,
            "products": self.products,
            "MB": self.bytes / 1e6,
            "GFLOP": self.flops / 1e9,
            "GB_per_s": self.bytes / time / 1e9,
            "TFLOP_per_s": self.flops / time / 1e12,
            "of_limit": self.floor_s / time,
        }


def run(
    configs: Sequence[RunConfig], *, detail: bool, repeats: int, console: Terminal,
    copy_gbps: float | None = None, product_tflops: float | None = None,
) -> dict[str, Any]:  # fmt: skip
    """One table a configuration; they share device and data. detail: a row for each distinct operation, not stage.

    copy_gbps, product_tflops: the limits; measured where they are not given. Raises DataError, DeviceError.
    """
    device, market = open_device(configs[0]), open_market(configs[0])
    measured = timing.limits(device)
    limits = (copy_gbps * 1e9 if copy_gbps else measured[0], product_tflops * 1e12 if product_tflops else measured[1])
    tables = []
    for config in configs:
        console.note(f"bench: B = {config.batch}")
        engine = open_engine(device, config, market, console)
        sizes = {"B": config.batch, "T": config.rollout, "R": config.replay_batch, "encoder": config.encoder}
        tables.append(sizes | measure(engine, config, limits, detail=detail, repeats=repeats))
        del engine  # before the next one takes its memory
    return {
        "device": device.name,
        "precision": device.precision,
        "preset": configs[0].preset,
        "copy GB/s": limits[0] / 1e9,
        "product TFLOP/s": limits[1] / 1e12,
        "repeats": repeats,
        "tables": tables,
    }


def measure(
    engine: Engine,
    config: RunConfig,
    limits: tuple[float, float] | None,
    *,
    detail: bool = False,
    repeats: int = REPEATS,
) -> dict[str, Any]:
    """The whole iteration and its parts, longest first. limits None: parts have no share of it. The engine is spent."""
    shape = shape_of_list(config, engine.device)
    steps = training(shape)
    operations = build(steps, engine.arrays, engine.dims, engine.device)
    stages = stages_of(steps, shape)
    parts, keys = _parts(steps, operations, stages, engine.dims, limits or (float("inf"), float("inf")), detail)
    whole, times = timing.by_key(engine, list(zip(keys, operations, strict=True)), repeats)
    for key, part in parts.items():
        part.times = times[key]
    low, median, high = statistics.quantiles(whole, n=4, method="inclusive")
    rows = sorted((part.figures(median) for part in parts.values()), key=lambda row: -row["us"])
    return {
        "iteration_us": median * 1e6,
        "iteration_us_low": low * 1e6,
        "iteration_us_high": high * 1e6,
        "sum_us": sum(row["us"] for row in rows),
        "floor_us": sum(part.floor_s for part in parts.values()) * 1e6,
        "operations": len(operations),
        "rows": rows,
    }


def _parts(
    steps: Sequence[Step], operations: Sequence[Operation], stages: Sequence[str], dims: Mapping[str, int | float],
    limits: tuple[float, float], detail: bool,
) -> tuple[dict[str, Part], list[str]]:  # fmt: skip
    """Parts by key, and the key of each operation."""
    parts: dict[str, Part] = {}
    keys = []
    for step, operation, stage in zip(steps, operations, stages, strict=True):
        label = _NUMBER.sub("", describe(step)) if detail else stage
        shape = shape_of(operation) if detail else ""
        keys.append(f"{stage}|{label}|{shape}")
        part = parts.setdefault(keys[-1], Part(stage, label, shape))
        part.add(operation, work_of(step, operation, dims), limits)
    return parts, keys
