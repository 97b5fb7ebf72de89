"""The smoke test: both presets for 200 steps at one and at sixteen rows, and what must be true of any of them.

Owns the runs and the gates. A gate is a statement about a run with the numbers that decide it; nothing here prints.
Gates carry the names that the recipe of the seeds gave them (G1, G3, G4, G6) or plain words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from foxhunt_cli.buffers.arena import allocate
from foxhunt_cli.config.load import load_config
from foxhunt_cli.config.run import RunConfig
from foxhunt_cli.data.market_data import MarketData
from foxhunt_cli.data.source import load_market_data
from foxhunt_cli.device.base import Device, Progress
from foxhunt_cli.isv.table import number, slots
from foxhunt_cli.kernels.registry import kernel
from foxhunt_cli.market.prepare import PreparedData
from foxhunt_cli.pipeline import control
from foxhunt_cli.pipeline.build import build, kernels_of, names_of
from foxhunt_cli.pipeline.stage import Step
from foxhunt_cli.pipeline.tables import buffers
from foxhunt_cli.replay import constants, per
from foxhunt_cli.train.checkpoint import state_names
from foxhunt_cli.train.engine import Engine, build_engine, compile_run, start_isv
from foxhunt_cli.train.prepare import prepare_training
from foxhunt_cli.train.shapes import shape_of

STEPS = 200
BATCHES = (1, 16)
PRESETS = ("foxhunt", "seed")
# Small and busy: a replay that fills, gates that open and close, trades that end within a few steps.
_SETTINGS = (
    "synthetic.snapshots=20000",
    f"steps={STEPS}",
    "replay_batch=16",
    "replay_capacity=2048",
    "isv.gate_warmup_steps=20",
    "isv.hindsight_forward_lookahead=10",
    "isv.p_min=0.03",
    "isv.lr_warmup_steps=20",
)
_BOOTSTRAP = slice(number("GAMMA"), number("REWARD_SCALE") + 1)  # slots 400 to 406
# Controllers whose rule has no dead band: with a live input they must have moved.
_ALWAYS_MOVE = {"reward_scale", "gamma", "per_alpha", "per_beta", "distill_temperature", "loss_balance",
                "learning_rate"}  # fmt: skip
_SOFT_UPDATE_TOLERANCE = 1e-6  # float32 weights of order 1
_TWIN_ITERATIONS = 3  # behind the first learning of the critic


@dataclass(frozen=True)
class Gate:
    """One statement about one run: held or not, and the figures behind it."""

    run: str
    name: str
    passed: bool
    detail: str


@dataclass
class _Run:
    """One run of the smoke test, with every state vector it published."""

    label: str
    config: RunConfig
    data: PreparedData
    engine: Engine
    isv: np.ndarray

    def slot(self, name: str) -> np.ndarray:
        """A slot's value after every iteration."""
        return self.isv[:, number(name)]

    def array(self, name: str) -> np.ndarray:
        """Host copy of a device array."""
        return np.array(self.engine.device.download(self.engine.arrays[name]))


def smoke(device: Device, device_name: str, compiling: Progress | None = None) -> Iterator[Gate]:
    """Every gate of every run, as it is decided. device_name: what ``--device`` said, for the configs."""
    configs = {(p, b): _config(p, b, device_name) for p in PRESETS for b in BATCHES}
    for preset in PRESETS:
        compile_run(device, configs[preset, 1], compiling)
    first = configs[PRESETS[0], BATCHES[0]]
    market = load_market_data(None, first.data, first.synthetic)
    for (preset, batch), config in configs.items():
        yield from _gates_of_run(device, f"{preset}, B = {batch}", config, market)
    yield _replay_capacity(device)


def _config(preset: str, batch: int, device: str) -> RunConfig:
    return load_config(sets=[f"preset={preset}", f"batch={batch}", f"device={device}", *_SETTINGS])


def _gates_of_run(device: Device, label: str, config: RunConfig, market: MarketData) -> Iterator[Gate]:
    data = prepare_training(device, market, config)
    engine = build_engine(device, config, data)
    run = _Run(label, config, data, engine, np.zeros((0, 0)))
    yield _bootstrap(run)
    drained = []
    for _ in range(config.iterations - 1):
        engine.iterate()
        drained.append(engine.drain())
    before = _parameters(run)
    engine.iterate()
    drained.append(engine.drain())
    run.isv = np.concatenate(drained)
    yield _soft_update(run, before)
    for gate in (_controllers_emit, _replay_wiring, _finite, _hindsight_fires):
        yield gate(run)
    yield _recorded_equals_eager(run)


def _bootstrap(run: _Run) -> Gate:
    """G1: at the start the controlled slots hold their seeds, and the controllers leave a cold vector alone."""
    device, seeds = run.engine.device, start_isv(run.config, run.data)
    after = (*control.after_rollout_controllers(), *control.atom_span(reproject=False))
    steps = [*control.before_reward_controllers(), *after]
    arrays = _scratch(device, steps, run.engine.dims)
    for name in ("isv", "isv_seed"):
        device.write(arrays[name], seeds)
    _run_eager(device, steps, arrays, run.engine.dims)
    held = np.array(device.download(arrays["isv"]))[_BOOTSTRAP]
    started = run.array("isv")[_BOOTSTRAP]
    table = np.array([s.seed for s in slots() if 400 <= s.number <= 406], np.float32)
    same = np.array_equal(held, seeds[_BOOTSTRAP]) and np.array_equal(started, seeds[_BOOTSTRAP])
    whole = run.config.preset != "seed" or np.array_equal(started, table)
    return Gate(run.label, "G1 ISV bootstrap", same and whole, "400-406 = " + " ".join(f"{v:.4g}" for v in started))


def _soft_update(run: _Run, before: dict[str, np.ndarray]) -> Gate:
    """G4: one update moves the target by tau of its distance to the online weights; several move it closer."""
    name = "G4 target soft update"
    after, tau = _parameters(run), float(run.slot("TARGET_TAU")[-1])
    old, new, online = before["target_w_c51"], after["target_w_c51"], after["w_c51"]
    if run.config.updates == 1:
        error = float(np.abs(old + tau * (online - old) - new).max())
        return Gate(run.label, name, error < _SOFT_UPDATE_TOLERANCE, f"tau {tau:.4g}, error {error:.1e}")
    then, now = (float(np.linalg.norm(online - w)) for w in (old, new))
    return Gate(run.label, name, 0 < now < then, f"distance {then:.4g} -> {now:.4g}")


def _controllers_emit(run: _Run) -> Gate:
    """G3: every controller that is on keeps its bounds, and those without a dead band have moved."""
    shape, moved, still, outside = shape_of(run.config), [], [], []
    seeds = start_isv(run.config, run.data)
    for name, owner in control.CONTROLLERS.items():
        if name in shape.frozen or (name == "gates" and not shape.entry_gates):
            continue
        owned = [s for s in slots() if s.owner == owner and s.kind == "control"]
        values = [run.isv[:, s.number] for s in owned]
        (moved if any((v != seeds[s.number]).any() for s, v in zip(owned, values, strict=True)) else still).append(name)
        outside += [s.name for s, v in zip(owned, values, strict=True) if not ((s.lower <= v) & (v <= s.upper)).all()]
    idle = sorted(_ALWAYS_MOVE & set(still))
    detail = f"{len(moved)} of {len(moved) + len(still)} moved"
    detail += f"; must have moved: {', '.join(idle)}" if idle else f"; still: {', '.join(still)}" if still else ""
    detail += f"; out of bounds: {', '.join(outside)}" if outside else ""
    return Gate(run.label, "G3 controllers emit", not idle and not outside, detail)


def _replay_wiring(run: _Run) -> Gate:
    """G6: every moment of the run is in the replay, or waits for its successor; nothing else is."""
    state, pending = run.array("replay_state"), int(run.array("pending_moments").sum())
    capacity, size = int(run.engine.dims["C"]), int(state[constants.SIZE])
    moments = run.config.iterations * run.config.rollout * run.config.batch
    injected = int(run.slot("HINDSIGHT_INJECT_COUNT").sum() + run.slot("HINDSIGHT_FORWARD_COUNT").sum())
    wanted = min(capacity, moments - pending + injected)
    leaves = run.array("per_tree")[capacity:]
    fits = size == wanted == int((leaves > 0).sum()) == int(run.slot("PER_SIZE")[-1])
    detail = f"{moments:,} moments - {pending} waiting + {injected} injected, capacity {capacity:,}: {size:,} held"
    return Gate(run.label, "G6 replay wiring", fits, detail)


def _finite(run: _Run) -> Gate:
    bad = [s.name for s in slots() if not np.isfinite(run.slot(s.name)).all()]
    refused = float(run.slot("NONFINITE_COUNT").sum())
    losses = " ".join(f"{n.lower()} {run.slot('LOSS_' + n)[-1]:.3g}" for n in ("Q", "IQN", "PI", "V", "FRD"))
    detail = f"not finite: {', '.join(bad)}" if bad else losses
    return Gate(run.label, "all losses finite", not bad and not refused and not run.engine.faulted(), detail)


def _hindsight_fires(run: _Run) -> Gate:
    backward, forward = (int(run.slot(f"HINDSIGHT_{n}_COUNT").sum()) for n in ("INJECT", "FORWARD"))
    trades = int(run.slot("TRADES_CLOSED").sum())
    fired = backward > 0 and forward > 0 if run.config.batch > 1 else backward + forward > 0
    return Gate(run.label, "hindsight fires", fired, f"{backward} backward, {forward} forward, {trades} trades closed")


def _recorded_equals_eager(run: _Run) -> Gate:
    """A recorded iteration (a graph, where the device has them) leaves the same bits as one kernel at a time."""
    count = run.engine.prefill_iterations + _TWIN_ITERATIONS
    recorded, eager = (build_engine(run.engine.device, run.config, run.data) for _ in range(2))
    for _ in range(count):
        recorded.iterate()
        eager.current_plan().run_eager()
        eager.done += 1
    differing = [name for name in state_names(recorded) if _bits(recorded, name) != _bits(eager, name)]
    detail = (
        f"differ: {', '.join(differing[:4])}" if differing else f"{len(state_names(eager))} arrays, {count} iterations"
    )
    return Gate(run.label, "recorded = eager", not differing, detail)


def _replay_capacity(device: Device) -> Gate:
    """G6: five rows, capacity eight: a push fills the store to 5, the next one to 8, and no further."""
    dims = {"B": 5, "T": 1, "C": 8}
    steps = [*per.push("h"), *per.tree_of_pushed(8, 5, 1)]
    arrays = _scratch(device, steps, dims)
    isv = np.zeros(arrays["isv"].shape, np.float32)
    isv[number("N_STEP")], isv[number("PER_MAX_PRIORITY")], isv[number("GAMMA")] = 1.0, 1.0, 0.99
    device.write(arrays["isv"], isv)
    sizes = [0]
    for _ in range(3):
        _run_eager(device, steps, arrays, dims)
        sizes.append(int(device.download(arrays["replay_state"])[constants.SIZE]))
    return Gate("replay alone", "G6 replay capacity", sizes == [0, 5, 8, 8], " -> ".join(map(str, sizes)))


def _bits(engine: Engine, name: str) -> bytes:
    return np.array(engine.device.download(engine.arrays[name])).tobytes()


def _parameters(run: _Run) -> dict[str, np.ndarray]:
    return {name: run.array(name) for name in ("w_c51", "target_w_c51")}


def _scratch(device: Device, steps: list[Step], dims: dict) -> dict:
    """Arrays for a list of its own, zero."""
    table, names = buffers(), names_of(steps)
    return allocate(device, [table[name] for name in table if name in names], dims)


def _run_eager(device: Device, steps: list[Step], arrays: dict, dims: dict) -> None:
    device.compile([kernel(name) for name in kernels_of(steps)])
    device.plan(build(steps, arrays, dims, device), use_graph=False).run_eager()
    device.synchronize()
