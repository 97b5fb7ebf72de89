"""A run on a device: sizes, arrays, the compiled list. Runs iterations; knows nothing of files or people.

The training loop, evaluation and the benchmarks are all made of engines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foxhunt_cli.buffers.arena import allocate
from foxhunt_cli.config.run import RunConfig
from foxhunt_cli.device.base import Device, Plan, Progress
from foxhunt_cli.device.rng import seed_states
from foxhunt_cli.isv.seeds import seed_values
from foxhunt_cli.isv.table import number
from foxhunt_cli.kernels.registry import kernel
from foxhunt_cli.market.prepare import PREPARE_KERNELS, PreparedData
from foxhunt_cli.nets.params import CHUNK, Layout, initial_values, lay_out
from foxhunt_cli.pipeline import learn
from foxhunt_cli.pipeline.build import build, kernels_of
from foxhunt_cli.pipeline.iteration import following, playing, training
from foxhunt_cli.pipeline.shape import Shape
from foxhunt_cli.pipeline.stage import Matmul, Stage, Step, Zero
from foxhunt_cli.pipeline.tables import buffers

RING = 64  # copies of the ISV the device keeps; the host drains at least that often
_RANDOM_STREAMS = {"rng_episode": "episode", "rng_action": "action"}


@dataclass
class Engine:
    """Everything a recorded iteration touches. ``arrays`` holds device arrays by buffer or tensor name."""

    device: Device
    dims: dict[str, int | float]
    arrays: dict[str, Any]
    layout: Layout
    kernels: tuple[str, ...]
    plan: Plan
    operations: int
    drained: int = 0

    def iterate(self) -> None:
        """Enqueue one iteration. Nothing is allocated and nothing crosses the bus."""
        self.plan.run()

    def drain(self) -> np.ndarray:
        """ISV copies since the last drain, oldest first, float32 [n, ISV_SIZE]. Waits for the device."""
        ring = self.device.download(self.arrays["diag_ring"])
        head = int(self.device.download(self.arrays["diag_head"])[0])
        fresh = [ring[i % RING] for i in range(max(self.drained, head - RING), head)]
        self.drained = head
        return np.array(fresh, np.float32).reshape(len(fresh), ring.shape[1])


def shape_of(config: RunConfig) -> Shape:
    """What of the config decides the ordered list."""
    return Shape(config.rollout, config.encoder)


def dimensions(config: RunConfig, data: PreparedData) -> dict[str, int | float]:
    """Every name a kernel or a buffer shape may use, apart from parameter counts."""
    instrument = data.instrument
    lot_limit = config.lot_limit or instrument.lot_limit
    return {
        "B": config.batch,
        "T": config.rollout,
        "K": learn.window(config.encoder),
        "W": learn.window(config.encoder) + config.rollout,
        "P": 2 * lot_limit + 1,
        "RING": RING,
        "N_SNAP": data.n_snapshots,
        "N_SPANS": data.n_spans,
        "episode_len": data.episode_len,
        "lot_limit": lot_limit,
        "latency": config.latency_steps,
        "tick_value_usd": instrument.tick_value_usd,
        "fee_usd": instrument.fee_usd,
        "realised_reward": int(config.reward == "realised"),
        "ratchet": int(config.trail_ratchet),
        "mask_overridden": int(config.mask_overridden),
        "since_close": 0,
    }


def build_engine(
    device: Device,
    config: RunConfig,
    data: PreparedData,
    steps: Callable[[Shape], Sequence[Step]] = training,
    *,
    extra: Mapping[str, Any] | None = None,
) -> Engine:
    """Allocate, seed and record. ``extra`` adds device arrays by name (a baseline's signal column)."""
    dims = dimensions(config, data)
    layout = lay_out(learn.parameters(shape_of(config)), dims)
    dims["N_CHUNKS"] = layout.size // CHUNK
    listed = steps(shape_of(config))
    names = tuple(kernels_of(listed))
    device.compile([kernel(name) for name in names])

    arrays: dict[str, Any] = {**_parameters(device, layout, config.seed), **data.arrays, **(extra or {})}
    table = buffers()
    wanted = _names(listed) - set(arrays)
    arrays.update(allocate(device, [table[n] for n in table if n in wanted], dims))
    _seed(device, arrays, config, data)
    operations = build(listed, arrays, dims, device)
    plan = device.plan(operations, use_graph=config.graph)
    return Engine(device, dims, arrays, layout, names, plan, len(operations))


def compile_run(device: Device, config: RunConfig, progress: Progress | None = None) -> None:
    """Compile every kernel of a training run in one go: preparation, training, evaluation."""
    shape = shape_of(config)
    names = [*PREPARE_KERNELS, *(n for steps in (training, playing, following) for n in kernels_of(steps(shape)))]
    device.compile([kernel(name) for name in dict.fromkeys(names)], progress)


def _parameters(device: Device, layout: Layout, seed: int) -> dict[str, Any]:
    """The flat vectors, the code tables and a named view of every tensor and its gradient."""
    arrays = {name: device.zeros(layout.size, np.float32) for name in ("grads", "adam_m", "adam_v")}
    arrays["params"] = device.upload(initial_values(layout, seed))
    for name, codes in zip(("group_code", "branch_code", "encoder_code"), layout.chunk_codes(), strict=True):
        arrays[name] = device.upload(codes)
    for name in layout.offsets:
        arrays[name] = layout.view(arrays["params"], name)
        arrays[f"grad_{name}"] = layout.view(arrays["grads"], name)
    return arrays


def _names(steps: Sequence[Step]) -> set[str]:
    """Every buffer or tensor the list touches."""
    names: set[str] = set()
    for step in steps:
        if isinstance(step, Stage):
            names.update(step.remap.get(p.name, p.name) for p in kernel(step.kernel).params if p.pointer)
        elif isinstance(step, Matmul):
            names.update(view.name for view in (step.a, step.b, step.out))
        elif isinstance(step, Zero):
            names.add(step.name)
    return names


def _seed(device: Device, arrays: dict[str, Any], config: RunConfig, data: PreparedData) -> None:
    """Start-up values: the ISV, random states, the row of ones."""
    device.write(arrays["isv"], start_isv(config, data))
    for name, stream in _RANDOM_STREAMS.items():
        if name in arrays:
            device.write(arrays[name], seed_states(config.seed, stream, arrays[name].size))
    if "ones" in arrays:
        device.write(arrays["ones"], np.ones(arrays["ones"].shape, np.float32))


def start_isv(config: RunConfig, data: PreparedData) -> np.ndarray:
    """The ISV before the first iteration: seeds, run length, the data's sigmas and the reward unit they imply."""
    isv = seed_values(config.isv)
    isv[number("RUN_STEPS")] = config.steps
    isv[number("FRD_SIGMA_SHORT") : number("FRD_SIGMA_LONG") + 1] = data.sigmas
    if config.reward == "mark_to_market" and "reward_scale" not in config.isv:
        isv[number("REWARD_SCALE")] = 1.0 / (data.sigmas[1] * data.instrument.tick_value_usd)
    return isv
