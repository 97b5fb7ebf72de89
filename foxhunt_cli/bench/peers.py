"""Our training iteration beside the same iteration in PyTorch, in one run on one machine.

Owns how the contestants are made ready, timed in turn and compared; the PyTorch side is in the modules ``peer_*``,
which only this one imports, once it knows that PyTorch is there.
"""

from __future__ import annotations

import gc
import importlib.util
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foxhunt_cli.bench.compile_ahead import compile_ahead
from foxhunt_cli.bench.setup import open_device, open_engine, open_market
from foxhunt_cli.config.load import ConfigError
from foxhunt_cli.config.run import RunConfig
from foxhunt_cli.data.market_data import MarketData
from foxhunt_cli.device.base import Device, DeviceError
from foxhunt_cli.diag.extras import MissingExtra
from foxhunt_cli.train.engine import Engine, prefill_iterations

if TYPE_CHECKING:
    import torch

    from foxhunt_cli.cli.console import Terminal

OURS = "foxhunt"
EAGER, COMPILED = VARIANTS = ("eager", "compiled")
REPEATS = 7
_WARM_UP = 3
_MB = 1e6


@dataclass(frozen=True)
class Contestant:
    """An iteration that can be enqueued, what waits for it, its memory without the data set, seconds until ready."""

    iterate: Callable[[], None]
    wait: Callable[[], None]
    bytes: int | None
    ready_s: float


def run(
    configs: Sequence[RunConfig], *, variants: Sequence[str] = VARIANTS, seconds: float, repeats: int = REPEATS,
    console: Terminal,
) -> dict[str, Any]:  # fmt: skip
    """``rows``: one for each configuration and contestant; medians over ``repeats`` with their range.

    The contestants of a configuration take turns in every repeat. ``missing``: variants that cannot be made here, with
    the reason. Raises MissingExtra without a usable PyTorch, ConfigError for what the peer does not do.
    """
    if importlib.util.find_spec("torch") is None:
        raise MissingExtra("bench peers needs PyTorch, which is not installed; pip install torch")
    for config in configs:
        check(config)
    device, market = open_device(configs[0]), open_market(configs[0])
    place = torch_place(device)
    rows: list[dict[str, Any]] = []
    missing: dict[str, str] = {}
    with _like_our_cpu(place):
        if COMPILED in variants and place.type == "cuda" and len(configs) > 1:
            compile_ahead(configs, console)
        for config in configs:
            rows += _compare(device, market, config, place, variants, missing, seconds / len(configs), repeats, console)
    from foxhunt_cli.bench.peer_base import LEFT_OUT

    return _heading(device, place) | {"repeats": repeats, "left_out": list(LEFT_OUT), "missing": missing, "rows": rows}


def make_ready(config: RunConfig, variant: str) -> None:
    """Compiles and warms up one variant of the peer, and measures nothing. Raises as ``run`` does, and RuntimeError."""
    device = open_device(config)
    engine = open_engine(device, config, open_market(config), None)
    _peer(engine, config, torch_place(device), variant)


def check(config: RunConfig) -> None:
    """Raises ConfigError where ``config`` asks for an iteration that the peer does not have."""
    path = config.context == "heads"
    wanted: dict[str, tuple[Any, ...]] = {
        "encoder": ("full",),
        "hindsight": ("path",) if path else ("none", "close", "peak"),
        "distillation": ("classes",) if path else ("own",),
        "latency_steps": (1,),
        "updates": tuple(range(1, 65)),
        "reward": ("mark_to_market",) if path else ("realised",),
    }
    for field, values in wanted.items():
        got = getattr(config, field)
        if got not in values:
            words = "at least 1" if field == "updates" else " or ".join(map(str, values))
            raise ConfigError(f"bench peers: with context = {config.context} the peer has {field} = {words}, got {got}")
    if steps := config.isv.get("n_step_anneal_steps"):
        raise ConfigError(f"bench peers: n of the peer is constant, got isv.n_step_anneal_steps = {steps:g}")


def torch_place(device: Device) -> torch.device:
    """Where the peer's tensors live: beside ours. Raises MissingExtra where this PyTorch cannot."""
    import torch

    if device.kind != "cuda":
        torch.set_num_threads(getattr(device, "threads", 1))
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise MissingExtra(
            f"bench peers: the PyTorch installed here ({torch.__version__}) cannot use the GPU; install a build for "
            "CUDA or use --device cpu"
        )
    torch.backends.cuda.matmul.allow_tf32 = device.precision == "tf32"
    return torch.device("cuda", getattr(device, "index", 0))


@contextmanager
def _like_our_cpu(place: torch.device) -> Iterator[None]:
    """Denormals become zero on a CPU, as they do in our plans; afterwards this thread counts with them again."""
    import torch

    torch.set_flush_denormal(place.type == "cpu")
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def _heading(device: Device, place: torch.device) -> dict[str, Any]:
    import torch

    tf32 = place.type == "cuda" and torch.backends.cuda.matmul.allow_tf32
    products = "TF32" if tf32 else "float32"
    return {"device": device.name, "torch": torch.__version__, "products": products, "threads": torch.get_num_threads()}


def _compare(
    device: Device, market: MarketData, config: RunConfig, place: torch.device, variants: Sequence[str],
    missing: dict[str, str], seconds: float, repeats: int, console: Terminal,
) -> list[dict[str, Any]]:  # fmt: skip
    """Rows of one configuration."""
    engine, ours = _ours(device, market, config, console)
    contestants = {OURS: ours}
    for variant in variants:
        console.note(f"B = {config.batch:,}: PyTorch, {variant}: making ready")
        try:
            contestants[_label(variant, place)] = _peer(engine, config, place, variant)
        except DeviceError:
            raise
        except RuntimeError as error:  # no compiler for torch.compile, an unsupported driver, no memory
            missing[f"{_label(variant, place)}, B = {config.batch}"] = str(error).strip().split("\n")[0]
    rows = _measure(contestants, config, seconds, repeats)
    contestants.clear()
    _forget(place)
    return rows


def _label(variant: str, place: torch.device) -> str:
    graph = " + graph" if variant == COMPILED and place.type == "cuda" else ""
    return f"torch, {variant}{graph}"


def _ours(device: Device, market: MarketData, config: RunConfig, console: Terminal) -> tuple[Engine, Contestant]:
    started, before = time.perf_counter(), _used(device)
    engine = open_engine(device, config, market, console)
    after = _used(device)
    held = after - before - _data_bytes(engine) if after is not None and before is not None else None
    return engine, Contestant(engine.iterate, device.synchronize, held, time.perf_counter() - started)


def _used(device: Device) -> int | None:
    """Bytes in use on the device by us; None where nobody counts them."""
    return device.pool_usage()[0] if device.kind == "cuda" else None


def _data_bytes(engine: Engine) -> int:
    from foxhunt_cli.buffers.data import ROWS

    names = [row.name for row in ROWS if row.lifetime == "data" and row.name in engine.arrays]
    return sum(engine.arrays[name].nbytes for name in names)


def _peer(engine: Engine, config: RunConfig, place: torch.device, variant: str) -> Contestant:
    """The peer with the engine's weights and data, warmed up; on a GPU ``compiled`` is one CUDA graph."""
    import torch

    from foxhunt_cli.bench.peer_path import PathIteration
    from foxhunt_cli.bench.peer_step import StepIteration

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        return torch.compile(function, dynamic=False) if variant == COMPILED else function

    form = StepIteration if config.context == "encoder" else PathIteration
    isv = engine.device.download(engine.arrays["isv"])
    started = time.perf_counter()
    if place.type != "cuda":
        peer = _warm(form(engine, isv, config.updates, place, compiled), config)
        return Contestant(peer.iterate, lambda: None, None, time.perf_counter() - started)
    graph = variant == COMPILED
    with _own_stream(place) as stream:
        torch.cuda.reset_peak_memory_stats(place)
        before = torch.cuda.memory_reserved(place) if graph else torch.cuda.memory_allocated(place)
        peer = _warm(form(engine, isv, config.updates, place, compiled), config)
        iterate = _captured(peer.iterate, stream) if graph else _on(stream, peer.iterate)
        peak = torch.cuda.memory_reserved(place) if graph else torch.cuda.max_memory_allocated(place)
    held = peak - before - peer.market.nbytes
    return Contestant(iterate, lambda: torch.cuda.synchronize(place), held, time.perf_counter() - started)


def _warm(peer: Any, config: RunConfig) -> Any:
    """Past the iterations that only fill the replay, and everything compiled."""
    for _ in range(prefill_iterations(config)):
        peer.iterate(critic=False)
    for _ in range(_WARM_UP):
        peer.iterate()
    return peer


@contextmanager
def _own_stream(place: torch.device) -> Iterator[Any]:
    """A stream of its own: a graph cannot be captured on the default one, nor with autograd nodes made there."""
    import torch

    torch.cuda.empty_cache()
    stream = torch.cuda.Stream(place)
    with torch.cuda.stream(stream):
        yield stream
        stream.synchronize()


def _on(stream: Any, iterate: Callable[[], None]) -> Callable[[], None]:
    import torch

    def on_stream() -> None:
        with torch.cuda.stream(stream):
            iterate()

    return on_stream


def _captured(iterate: Callable[[], None], stream: Any) -> Callable[[], None]:
    """The whole of ``iterate`` as one graph's replay; what the warm-up left in the allocator's cache is given back."""
    import torch

    stream.synchronize()
    gc.collect()
    torch.cuda.empty_cache()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        iterate()
    return graph.replay


def _forget(place: torch.device) -> None:
    """Memory and compiled code of a configuration: the next one's sizes compile anew."""
    import torch

    gc.collect()
    torch.compiler.reset()
    if place.type == "cuda":
        torch.cuda.empty_cache()


def _measure(
    contestants: dict[str, Contestant], config: RunConfig, seconds: float, repeats: int
) -> list[dict[str, Any]]:
    """The contestants in turn, so that what else the machine does meets them alike; each run ends with one wait."""
    share = seconds / len(contestants) / repeats
    counts = {name: max(1, int(share / _seconds(c, 1))) for name, c in contestants.items()}
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(repeats):
        for name, contestant in contestants.items():
            times[name].append(_seconds(contestant, counts[name]))
    return [_row(name, c, times[name], times[OURS], config) for name, c in contestants.items()]


def _seconds(contestant: Contestant, count: int) -> float:
    """Seconds an iteration, over ``count`` of them."""
    started = time.perf_counter()
    for _ in range(count):
        contestant.iterate()
    contestant.wait()
    return (time.perf_counter() - started) / count


def _row(name: str, contestant: Contestant, own: list[float], ours: list[float], config: RunConfig) -> dict[str, Any]:
    median = statistics.median(own)
    return {
        "preset": config.preset, "B": config.batch, "T": config.rollout, "R": config.replay_batch, "U": config.updates,
        "iteration": name,
        "ms": median * 1e3, "ms_low": min(own) * 1e3, "ms_high": max(own) * 1e3,
        "env_steps_per_s": config.batch * config.rollout / median,
        "ratio": statistics.median(a / b for a, b in zip(own, ours, strict=True)),
        "MB": float("nan") if contestant.bytes is None else contestant.bytes / _MB,
        "ready_s": contestant.ready_s,
    }  # fmt: skip
