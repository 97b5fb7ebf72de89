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
    """``rows``: a row for each capacity and buffer, microseconds a round, medians of repeats with their spread.

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
    present = [name for name in peers if name not in absent]
    share = seconds / (len(capacities) * (1 + len(present)))
    measured = []
    for capacity in capacities:
        ours = _ours(selected, capacity, rows)
        measured.append({"capacity": capacity, "buffer": "foxhunt", **_measure(ours, share)})
        for name in present:
            try:
                peer = replay_peers.make(name, capacity, rows)
            except (ImportError, RuntimeError) as error:  # its own build does not fit what is installed beside it
                absent[name] = f"cannot be used here: {error}"
                continue
            measured.append({"capacity": capacity, "buffer": name, **_measure(peer, share)})
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
    rig.set(h_bar=rng.standard_normal((2, rows, 128)), reward=rng.standard_normal((1, rows)))
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


def _measure(round_: Callable[[], None], seconds: float) -> dict[str, float]:
    for _ in range(_WARM_UP):
        round_()
    started = time.perf_counter()
    round_()
    once = time.perf_counter() - started
    count = max(1, int(seconds / _REPEATS / once))
    measured = []
    for _ in range(_REPEATS):
        started = time.perf_counter()
        for _ in range(count):
            round_()
        measured.append((time.perf_counter() - started) / count * 1e6)
    return {"us": statistics.median(measured), "us_low": min(measured), "us_high": max(measured)}
