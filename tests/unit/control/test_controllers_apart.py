"""Controllers that one kernel runs by several warps do not meet: no slot that one writes concerns another warp."""

from __future__ import annotations

import re
from itertools import product

from foxhunt_cli.kernels.registry import cuda_root, kernel
from foxhunt_cli.kernels.slots import touched
from foxhunt_cli.pipeline.control import CONTROLLERS


def warps() -> dict[str, list[str]]:
    """Controllers of ``rl_rollout_end`` by the thread that runs them, in order."""
    source = (cuda_root() / "fused" / "rollout_end.cu").read_text()
    body = source[source.index("void run_controllers(") :]
    parts = re.split(r"threadIdx\.x == (\d+)\) {", body[: body.index("\n}\n")])
    return {
        thread: [name.lower() for name in re.findall(r"running & RUN_(\w+)", part)]
        for thread, part in zip(parts[1::2], parts[2::2], strict=True)
    }


def test_every_warp_has_controllers_of_its_own() -> None:
    found = warps()
    listed = [name for names in found.values() for name in names]
    assert set(found) == {"0", "32", "64", "96"}
    assert len(listed) == len(set(listed)) > 10
    assert set(listed) <= set(CONTROLLERS)


def test_warps_share_no_slot_that_one_of_them_writes() -> None:
    found = warps()
    slots = {}
    for name in (name for names in found.values() for name in names):
        contract = kernel(CONTROLLERS[name])
        slots[name] = touched(contract).numbers({p.name: 0 for p in contract.params if not p.pointer})
    for one, other in product(found, found):
        for a, b in product(found[one], found[other]):
            met = slots[a][1] & (slots[b][0] | slots[b][1])
            assert one == other or not met, (a, b, met)
