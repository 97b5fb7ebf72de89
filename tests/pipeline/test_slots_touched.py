"""``kernels/slots.py`` against the kernels themselves: no launch of an iteration feels or changes a slot beyond those.

Every launch that takes the internal state vector runs three times from the same memory: as it is, with all other slots
not a number, and with all other slots moved. Whatever it writes must be the same bits, and those slots as they were.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from engines import FUSIONS, learning

from foxhunt_cli.device.base import Device, Launch
from foxhunt_cli.isv.table import ISV_SIZE
from foxhunt_cli.kernels.slots import touched
from foxhunt_cli.pipeline.stage import Fusion

N_FALLS = "isv.n_step_anneal_steps=40"
PRESETS = {
    "foxhunt": ("rollout=4", "replay_batch=32"),
    "seed": ("preset=seed", "entry_gates=true"),
    "all": ("rollout=2", "replay_batch=32", "critic_grad=true", "replay_encoding=fresh", "entry_gates=true", N_FALLS),
}
POISONS = {"not a number": lambda slots: np.full_like(slots, np.nan), "moved": lambda slots: 1.5 * slots + 1.0}


def _arguments(launch: Launch) -> dict[str, Any]:
    return dict(zip((param.name for param in launch.contract.params), launch.args, strict=True))


def _run(device: Device, launch: Launch) -> dict[str, np.ndarray]:
    """The launch from what memory holds, and what it left in every array that it may write; the vector too."""
    device.plan([launch], use_graph=False).run_eager()
    given = _arguments(launch)
    return {name: np.array(device.download(given[name])) for name in {*launch.contract.writes, "isv"}}


def _felt(device: Device, launch: Launch) -> list[str]:
    """Where the launch feels a slot beyond those it is said to touch; memory is then as it should be behind it."""
    given = _arguments(launch)
    reads, writes = touched(launch.contract).numbers(given)
    others = np.array([slot not in reads for slot in range(ISV_SIZE)])
    before = {name: np.array(device.download(given[name])) for name in {*launch.contract.writes, "isv"}}
    want = _run(device, launch)
    changed = np.flatnonzero(want["isv"].view(np.uint32) != before["isv"].view(np.uint32))
    found = [f"{launch.contract.name} writes slot {slot}" for slot in changed if slot not in writes]
    for poison, change in POISONS.items():
        start = np.where(others, change(before["isv"]), before["isv"]).astype(np.float32)
        for name, host in (before | {"isv": start}).items():
            device.write(given[name], host)
        got = _run(device, launch)
        left = np.where(others, start, want["isv"])
        for name, host in (want | {"isv": left}).items():
            if got[name].tobytes() != host.tobytes():
                found.append(f"{launch.contract.name}: {name} differs, other slots {poison}")
    for name, host in want.items():
        device.write(given[name], host)
    return found


@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_a_launch_touches_no_slot_beyond_those_found(preset: str, fusion: Fusion) -> None:
    e, operations = learning(PRESETS[preset], fusion)
    found, seen = [], set()
    for operation in operations:
        if isinstance(operation, Launch) and "isv" in _arguments(operation):
            seen.add(operation.contract.name)
            found += _felt(e.device, replace(operation, when=None))
        else:
            e.device.plan([operation], use_graph=False).run_eager()
    assert found == []
    assert len(seen) > 10
