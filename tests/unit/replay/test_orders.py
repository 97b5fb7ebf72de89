"""Every buffer of the replay holds the same bits under each order of threads and blocks."""

import numpy as np
import pytest

from foxhunt_cli.buffers.replay import ROWS
from foxhunt_cli.device.cpu import CpuDevice
from foxhunt_cli.oracles.env_rig import random_market
from foxhunt_cli.oracles.replay_rig import ReplayRig, random_iteration
from foxhunt_cli.replay import hindsight, path_targets, per
from foxhunt_cli.replay.constants import SIZE, SYNTHETIC

CAPACITY, BATCH, ROLLOUT, SAMPLES = 1024, 9, 8, 48
EXTRA = ("closed", "closed_trade_pnl_usd")


def played(order: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(8)
    isv = {"HINDSIGHT_LABEL": 2.0, "HINDSIGHT_FORWARD_LOOKAHEAD": 12.0, "N_STEP": 6.0, "HINDSIGHT_THRESHOLD": 0.1}
    rig = ReplayRig(
        CpuDevice(order=order, poison=True), batch=BATCH, rollout=ROLLOUT, capacity=CAPACITY, rows=SAMPLES, extra=EXTRA,
        isv=isv,
    )  # fmt: skip
    market = random_market(rng, 2000)
    for name in ("bid_px", "bid_sz", "ask_px", "ask_sz"):
        rig.add(name, getattr(market, name))
    cursor, before = rng.integers(0, 1500, BATCH), np.zeros(BATCH, int)
    steps = [stage for t in range(ROLLOUT) for stage in hindsight.track(t)]
    steps += [*per.push(), *hindsight.inject(), *per.tree_of_pushed(CAPACITY, BATCH, ROLLOUT), *path_targets.table()]
    steps += [*per.sample(), *path_targets.targets(), *per.update_priorities(CAPACITY, SAMPLES)]
    for _ in range(24):
        given = random_iteration(rng, BATCH, ROLLOUT, cursor, 0.0)
        after = np.clip(np.cumsum(np.vstack([before, rng.integers(-1, 2, (ROLLOUT, BATCH))]), axis=0), -2, 2)
        old, new = after[:-1], after[1:]
        closed = (old != 0) & (np.sign(new) != np.sign(old))
        rig.set(**{**given, "position_before": old, "position_after": new})
        rig.set(closed=closed, closed_trade_pnl_usd=rng.normal(0, 20, closed.shape), c51_td=rng.random(SAMPLES))
        rig.run(steps)
        before, cursor = after[-1], cursor + ROLLOUT
        source, share = rig.get("store_source"), rig.slot("HINDSIGHT_SHARE")
        assert np.count_nonzero(source) == rig.state(SYNTHETIC) and share <= rig.slot("HINDSIGHT_MAX_SHARE")
        assert np.count_nonzero(rig.leaves()) == rig.state(SIZE)
    assert share > 0.0 and rig.state(SIZE) == CAPACITY
    return {name: rig.get(name) for name in (*(row.name for row in ROWS), "isv")}


@pytest.fixture(scope="module")
def forward():
    return played("forward")


@pytest.mark.parametrize("order", ["reverse", "random:1", "random:2"])
def test_same_bits(forward, order):
    other = played(order)
    different = [name for name, array in forward.items() if array.tobytes() != other[name].tobytes()]
    assert not different
