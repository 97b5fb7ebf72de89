"""Prioritised replay against other buffers: microseconds a round of push, sample and priority update.

A round adds ``rows`` transitions, draws ``rows`` of them with all fields and importance weights, and updates their
priorities and the sum tree. Peers run in the same process, one after another, where their packages are installed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from foxhunt_cli.bench import replay_peers
from foxhunt_cli.config.load import ConfigError
from foxhunt_cli.device.base import Device
from foxhunt_cli.device.select import select
from foxhunt_cli.oracles.replay_rig import ReplayRig
from foxhunt_cli.replay import per
from foxhunt_cli.replay.capacity import check_capacity

CAPACITIES = (1 << 15, 1 << 17, 1 << 20)
_REPEATS = 9
_WARM_UP = 5


def run(
    device: str = "auto", *, rows: int = 256, capacities: Sequence[int] = CAPACITIES, seconds: float = 10.0,
    peers: Sequence[str] = replay_peers.PACKAGES,
) -> dict[str, Any]:  # fmt: skip
    """``rows``: a row for each capacity and buffer, microseconds a round, medians of repeats with their spread,
    and the ratio to ours.

    A peer that cannot be used here has no row; ``missing`` says why.

    Raises ConfigError for a capacity that is no power of two or too small for ``rows``.
    """
    for capacity in capacities:
        try:
            check_capacity(capacity, rows, 1)
        except ValueError as error:
            raise ConfigError(f"--capacity: {error}") from None
    selected = select(device).device
    absent = {name: "not installed" for name in peers if replay_peers.missing(name)}
    measured = []
    for capacity in capacities:
        rounds = {"foxhunt": _ours(selected, capacity, rows)}
        for name in peers:
            if name not in absent:
                try:
                    rounds[name] = replay_peers.make(name, capacity, rows)
                except (ImportError, RuntimeError) as error:  # its own build does not fit what is installed beside it
                    absent[name] = f"cannot be used here: {error}"
        measured += [{"capacity": capacity, **row} for row in _measure(rounds, seconds / len(capacities))]
    return {
        "device": selected.name,
        "one round": f"push {rows}, sample {rows} with all fields and weights, update {rows} priorities",
        "repeats": _REPEATS,
        "missing": absent,
        "rows": measured,
    }


def _ours(device: Device, capacity: int, rows: int) -> Callable[[], None]:
    """One environment step of ``rows`` rows with n = 1, and one update; the store is full."""
    rig = ReplayRig(device, batch=rows, rollout=1, capacity=capacity, rows=rows, isv={"N_STEP": 1.0, "PER_BETA": 0.4})
    rng = np.random.default_rng(0)
    rig.set(target_h=rng.standard_normal((2, rows, 128)), reward=rng.standard_normal((1, rows)))
    rig.set(c51_td=rng.random(rows) + 0.1)
    push = [*per.push(), *per.tree_of_pushed(capacity, rows, 1)]
    fill = rig.plan(push)
    for _ in range(-(-capacity // rows)):
        fill.run()
    plan = rig.plan([*push, *per.sample(), *per.update_priorities(capacity, rows)])

    def round_() -> None:
        plan.run()
        device.synchronize()

    return round_


def _measure(rounds: dict[str, Callable[[], None]], seconds: float) -> list[dict[str, Any]]:
    """Each buffer's share of ``seconds`` in repeats, the buffers in turn: what else the machine does meets them alike.

    ratio: to the first buffer, median over repeats.
    """
    counts = {}
    for name, round_ in rounds.items():
        for _ in range(_WARM_UP):
            round_()
        counts[name] = max(1, int(seconds / len(rounds) / _REPEATS / _once(round_, 1)))
    times = {name: [] for name in rounds}
    for _ in range(_REPEATS):
        for name, round_ in rounds.items():
            times[name].append(_once(round_, counts[name]) * 1e6)
    first = next(iter(times.values()))
    return [
        {"buffer": name, "us": statistics.median(own), "us_low": min(own), "us_high": max(own)}
        | {"ratio": statistics.median(a / b for a, b in zip(own, first, strict=True))}
        for name, own in times.items()
    ]


def _once(round_: Callable[[], None], count: int) -> float:
    """Seconds a round, over ``count`` of them."""
    started = time.perf_counter()
    for _ in range(count):
        round_()
    return (time.perf_counter() - started) / count
