"""A run on a device: sizes, arrays, the compiled list. Runs iterations; knows nothing of files or people.

The training loop, evaluation and the benchmarks are all made of engines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from foxhunt_cli.buffers.arena import allocate
from foxhunt_cli.config.run import RunConfig
from foxhunt_cli.data.errors import DataError
from foxhunt_cli.device.base import Device, Plan, Progress
from foxhunt_cli.device.rng import seed_states
from foxhunt_cli.isv.seeds import seed_values
from foxhunt_cli.isv.table import number
from foxhunt_cli.kernels.registry import kernel
from foxhunt_cli.market.prepare import PREPARE_KERNELS, PreparedData
from foxhunt_cli.nets import target
from foxhunt_cli.nets.params import CHUNK, GROUPS, Layout, initial_values, lay_out
from foxhunt_cli.pipeline import critic, fresh, learn
from foxhunt_cli.pipeline.build import build, kernels_of, names_of, slots_of
from foxhunt_cli.pipeline.iteration import following, playing, playing_by_value, training
from foxhunt_cli.pipeline.judging import judging
from foxhunt_cli.pipeline.shape import Shape
from foxhunt_cli.pipeline.stage import Fusion, Step
from foxhunt_cli.pipeline.tables import buffers
from foxhunt_cli.replay import hindsight
from foxhunt_cli.train.shapes import n_step_of, shape_of, taus_of

RING = 64  # copies of the ISV the device keeps; the host drains at least that often
DRIFT_EVERY = 64  # iterations between two measurements of the drift of stored encodings
PREFILL_BATCHES = 4  # replay batches the store must hold before the critic learns

# Buffers that the host fills once: random states by stream, and rows of ones.
_RANDOM_STREAMS = {
    "rng_episode": "episode",
    "rng_action": "action",
    "rng_gate": "gate",
    "rng_replay": "replay",
    "rng_c51_noise": "noise/c51",
    "rng_c51_target_noise": "noise/target_c51",
    "rng_tau": "tau",
    "rng_tau_next": "tau/next",
    "rng_drift": "drift",
}
_ONES = ("ones", "ones_replay")
_SPANS = ("policy", "critic")  # one optimiser each
_VECTORS = ("params", "grads", "adam_m", "adam_v")
_CODES = ("group_code", "branch_code", "encoder_code")


@dataclass
class Engine:
    """Everything a recorded iteration touches. ``arrays`` holds device arrays by buffer or tensor name.

    kernels: those whose work an iteration does, launched on their own or within a fused one. slots: what those write
    that take the number of their slot.
    operations: how many the plan has.
    prefill: the plan of the first ``prefill_iterations`` iterations, in which the critic does not learn yet.
    drift: measures how old stored encodings are, before every DRIFT_EVERY-th iteration from then on.
    """

    device: Device
    dims: dict[str, int | float]
    arrays: dict[str, Any]
    layout: Layout
    kernels: tuple[str, ...]
    slots: dict[str, set[int]]
    plan: Plan
    operations: int
    prefill: Plan | None
    prefill_iterations: int
    drift: Plan | None
    done: int = 0
    drained: int = 0

    def iterate(self) -> None:
        """Enqueue one iteration. Nothing is allocated and nothing crosses the bus."""
        if self.drift is not None and self.done >= self.prefill_iterations and self.done % DRIFT_EVERY == 0:
            self.drift.run()
        self.current_plan().run()
        self.done += 1

    def current_plan(self) -> Plan:
        """The plan of the next iteration."""
        return self.prefill if self.prefill is not None and self.done < self.prefill_iterations else self.plan

    def drain(self) -> np.ndarray:
        """ISV copies since the last drain, oldest first, float32 [n, ISV_SIZE]. Waits for the device."""
        ring = self.device.download(self.arrays["diag_ring"])
        head = int(self.device.download(self.arrays["diag_head"])[0])
        lines = [ring[i % RING] for i in range(max(self.drained, head - RING), head)]
        self.drained = head
        return np.array(lines, np.float32).reshape(len(lines), ring.shape[1])

    def another(
        self, config: RunConfig, data: PreparedData, steps: Callable[[Shape], Sequence[Step]], extra: Mapping[str, Any]
    ) -> Engine:
        """An engine of another list or other data on this device; ``extra`` as in ``build_engine``."""
        return build_engine(self.device, config, data, steps, extra=extra)

    def faulted(self) -> bool:
        """Whether the sticky flag of either span is set: three updates in a row were refused."""
        faults = (self.arrays[n] for n in ("fault_policy", "fault_critic") if n in self.arrays)
        return any(int(self.device.download(fault)[1]) for fault in faults)


def dimensions(config: RunConfig, data: PreparedData) -> dict[str, int | float]:
    """Every name a kernel or a buffer shape may use, apart from parameter counts."""
    instrument, shape = data.instrument, shape_of(config)
    lot_limit = config.lot_limit or instrument.lot_limit
    return {
        **learn.sizes(shape, lot_limit),
        "N_TAU": taus_of(config),
        **fresh.sizes(shape),
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
        "since_close": int(config.hold_since_close),
    }


def build_engine(
    device: Device,
    config: RunConfig,
    data: PreparedData,
    steps: Callable[[Shape], Sequence[Step]] = training,
    *,
    extra: Mapping[str, Any] | None = None,
    fusion: Fusion | None = None,
) -> Engine:
    """Allocate, seed and record. ``extra`` adds device arrays by name (shared weights, a baseline's signal column).

    fusion: which fused kernels run, where it is not for config and device to say. Raises DataError where the data are
    too short for the configuration, DeviceError, ConfigError.
    """
    shape, dims = shape_of(config, device), dimensions(config, data)
    shape = replace(shape, fusion=fusion) if fusion else shape
    if shape.fresh and data.n_snapshots < dims["FW"]:
        raise DataError(
            f"the training range has {data.n_snapshots:,} snapshots, replay_encoding = fresh encodes {dims['FW']} of "
            "them for a sample; use more data, a smaller --rollout or --replay-encoding stored"
        )
    layout, parameters = _parameters(device, config, shape, dims)
    drifts = steps is training and shape.drifts
    listed, drift = steps(shape), fresh.drift(shape) if drifts else []

    arrays: dict[str, Any] = {**parameters, **data.arrays, **(extra or {})}
    table = buffers()
    wanted = names_of([*listed, *drift]) - set(arrays)
    arrays.update(allocate(device, [table[n] for n in table if n in wanted], dims))
    _seed(device, arrays, config, data)

    def recorded(steps: Sequence[Step]) -> Plan:
        operations = build(steps, arrays, dims, device)
        return device.plan(operations, use_graph=config.graph, branches=config.branches)

    fills = steps is training and shape.critic
    return Engine(
        device=device,
        dims=dims,
        arrays=arrays,
        layout=layout,
        kernels=_kernels_done([steps, *([fresh.drift] if drifts else [])], shape),
        slots=slots_of(steps(replace(shape, fusion="none"))),
        plan=recorded(listed),
        operations=len(listed),
        prefill=recorded(training(shape, learn_critic=False)) if fills else None,
        prefill_iterations=prefill_iterations(config) if fills else 0,
        drift=recorded(drift) if drift else None,
    )


def _kernels_done(lists: Sequence[Callable[[Shape], Sequence[Step]]], shape: Shape) -> tuple[str, ...]:
    """Kernels that ``lists`` launch, and those whose work these do: the same lists with nothing fused have them."""
    both = (shape, replace(shape, fusion="none"))
    return tuple(dict.fromkeys(name for choice in both for own in lists for name in kernels_of(own(choice))))


def prefill_iterations(config: RunConfig) -> int:
    """Iterations until the replay surely holds PREFILL_BATCHES batches: a row's first N_STEP steps push nothing."""
    moments = PREFILL_BATCHES * config.replay_batch + n_step_of(config) * config.batch
    return -(-moments // (config.batch * config.rollout))


def compile_run(device: Device, config: RunConfig, progress: Progress | None = None) -> None:
    """Compile every kernel of a training run in one go: preparation, training, evaluation. Raises DeviceError."""
    shape = shape_of(config, device)
    lists = [training, playing, following, judging, *([playing_by_value] if shape.critic else [])]
    lists += [fresh.drift] if shape.drifts else []
    names = [*PREPARE_KERNELS, *(name for steps in lists for name in kernels_of(steps(shape)))]
    conditional = kernels_of(training(shape), conditional=True)
    device.compile([kernel(n) for n in dict.fromkeys(names)], progress, [kernel(n) for n in conditional])


def _parameters(
    device: Device, config: RunConfig, shape: Shape, dims: dict[str, int | float]
) -> tuple[Layout, dict[str, Any]]:
    """The flat vectors, their two spans, the code tables, and a view of every tensor, gradient and target copy.

    The on-policy tensors come first, the critic's after them, so that each update owns a contiguous span. Their chunks
    are counted in ``dims``.
    """
    sigma0 = float(seed_values(config.isv, config.preset)[number("NOISY_SIGMA0")])
    policy = learn.parameters(shape)
    learned = critic.parameters(quantiles=shape.quantiles, sigma0=sigma0) if shape.critic else ()
    layout = lay_out((*policy, *learned), dims)
    border = lay_out(policy, dims).size
    start = initial_values(layout, config.seed)
    arrays = {name: device.zeros(layout.size, np.float32) for name in _VECTORS}
    device.write(arrays["params"], start)
    arrays |= dict(zip(_CODES, map(device.upload, layout.chunk_codes()), strict=True))
    for name in layout.offsets:
        arrays[name] = layout.view(arrays["params"], name)
        arrays[f"grad_{name}"] = layout.view(arrays["grads"], name)
    dims["N_POLICY_CHUNKS"], dims["N_CRITIC_CHUNKS"] = border // CHUNK, (layout.size - border) // CHUNK
    for names, edge in ((_VECTORS, border), (_CODES, border // CHUNK)):
        for name in names:
            arrays[f"{name}_policy"], arrays[f"{name}_critic"] = arrays[name][:edge], arrays[name][edge:]
    arrays["adam_step"] = device.zeros((len(_SPANS), len(GROUPS)), np.uint32)
    arrays |= {f"adam_step_{span}": row for span, row in zip(_SPANS, arrays["adam_step"], strict=True)}
    if shape.critic:
        arrays |= _targets(device, layout, start, dims)
    return layout, arrays


def _targets(device: Device, layout: Layout, start: np.ndarray, dims: dict[str, int | float]) -> dict[str, Any]:
    """The target vector, equal to the online tensors at the start, and its views; counts its chunks in ``dims``."""
    copies = target.target_layout(layout, dims)
    chunks = target.target_chunks(layout, copies)
    dims["N_TARGET_CHUNKS"] = len(chunks)
    values = start.reshape(-1, CHUNK)[chunks].reshape(-1)
    arrays = {"target_params": device.upload(values), "target_chunk": device.upload(chunks)}
    arrays |= target.split(arrays, dims["N_CRITIC_CHUNKS"])
    return arrays | {f"target_{name}": copies.view(arrays["target_params"], name) for name in copies.offsets}


def _seed(device: Device, arrays: dict[str, Any], config: RunConfig, data: PreparedData) -> None:
    """Start-up values: the ISV, random states, rows of ones."""
    isv = start_isv(config, data)
    for name in arrays.keys() & {"isv", "isv_seed"}:
        device.write(arrays[name], isv)
    for name, stream in _RANDOM_STREAMS.items():
        if name in arrays:
            device.write(arrays[name], seed_states(config.seed, stream, arrays[name].size))
    for name in _ONES:
        if name in arrays:
            device.write(arrays[name], np.ones(arrays[name].shape, np.float32))
    if "spectral_q_u" in arrays:
        for head in ("q", "pi"):
            u = arrays[f"spectral_{head}_u"]
            device.write(u, np.full(u.shape, u.size**-0.5, np.float32))


def start_isv(config: RunConfig, data: PreparedData) -> np.ndarray:
    """The ISV before the first iteration: seeds, run length, the data's sigmas, reward unit and atom span."""
    isv = seed_values(config.isv, config.preset)
    isv[number("RUN_STEPS")] = config.steps
    isv[number("FRD_SIGMA_SHORT") : number("FRD_SIGMA_LONG") + 1] = data.sigmas
    if config.reward == "mark_to_market" and "reward_scale" not in config.isv:
        isv[number("REWARD_SCALE")] = 1.0 / (data.sigmas[1] * data.instrument.tick_value_usd)
    if not config.iqn:
        isv[number("ENSEMBLE_ALPHA")] = 1.0
    if not config.reference_kl:
        isv[number("KL_REF_BETA")] = 0.0
    isv[number("HINDSIGHT_LABEL")] = hindsight.LABELS.get(config.hindsight, 0)
    span = 4.0 * (config.lot_limit or data.instrument.lot_limit)
    for name, value in (("C51_V_MAX", span), ("C51_V_MIN", -span)):
        if config.reward == "mark_to_market" and name.lower() not in config.isv:
            isv[number(name)] = value
    return isv
