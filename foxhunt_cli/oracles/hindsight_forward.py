"""Hindsight, forward: closed trades are judged after the lookahead, with what holding on would have made."""

from __future__ import annotations

from typing import Any

import numpy as np

from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.hindsight_rig import (
    PATH,
    PEAK,
    SCALE,
    TICK,
    Scene,
    held,
    hill,
    peak_usd,
)
from foxhunt_cli.replay.constants import BACKWARD, FORWARD


def _sold_early(trial: Trial, side: int, pnl: float, steps: int = 48, play: bool = True, **options: Any) -> Scene:
    """In at birth 3, out at step 8 (birth 9), the trend goes on for ever: 26 ticks above entry at age 20."""
    mids, position = 1000.0 + side * np.arange(80.0), held(steps, 2, 8, side * 2)
    scene = Scene(trial, mids, position, np.where(np.arange(steps) == 8, pnl, 0.0), **options)
    return scene.play() if play else scene


@oracle("hindsight")
def hindsight_forward_injects_after_lookahead(trial: Trial) -> None:
    """Closed at birth 9, lookahead 20: judged at birth 29, in iteration 3, once, with the mid of that step."""
    for side in (1, -1):
        scene = _sold_early(trial, side, 100.0, directions="forward")
        trial.equal(f"side {side}: only then", [0, 0, 0, 1, 0, 0], scene.counts("forward"))
        trial.equal(f"side {side}: backward is off", [0] * 6, scene.counts("backward"))
        trial.equal(f"side {side}: cleared", 0, scene.rig.get("closed_valid").sum())
        scene = _sold_early(trial, side, 100.0, directions="forward", rollout=1)
        trial.equal(f"side {side}: step by step", [28], np.flatnonzero(scene.counts("forward")))

        scene = _sold_early(trial, side, 100.0, directions="forward", steps=24)
        trial.equal(f"side {side}: waits", 1, scene.rig.get("closed_valid").sum())
        scene = _sold_early(trial, side, 100.0, directions="forward", steps=32)
        got = scene.injected()[0]
        want = {"source": FORWARD, "lots": side * 2, "action": 5, "terminal": 1, "birth": 9, "h": 9.0, "next_h": 9.0}
        trial.equal(f"side {side}: state of the close", list(want.values()), [got[k] for k in want])
        trial.close(f"side {side}: reward", SCALE * peak_usd(26.0, 2), got["return"], 1e-5)


@oracle("hindsight")
def hindsight_forward_labels(trial: Trial) -> None:
    """Label 1: Hold at the close, worth forward - actual. Label 2: the moment of the close, copied from the replay."""
    for label in (PEAK, PATH):
        scene = _sold_early(trial, 1, 100.0, steps=32, directions="forward", label=label)
        got = scene.injected()[0]
        if label == PEAK:
            want = {"lots": 2, "action": 2, "terminal": 1, "h": 9.0, "n": 1}
            trial.close("forward - actual", SCALE * (peak_usd(26.0, 2) - 100.0), got["return"], 1e-5)
        else:
            want = {"lots": 0, "terminal": 0, "h": 9.0, "next_h": 13.0, "n": 4, "birth": 9, "index": 9}
        trial.equal(f"label {label}", list(want.values()), [got[k] for k in want])


@oracle("hindsight")
def hindsight_forward_path_label_builds_or_skips(trial: Trial) -> None:
    """The close's slot is gone: with an age of at most 32 the stored encoding and the one now, else a counted skip."""
    for lookahead, built in ((20, True), (33, False)):
        scene = _sold_early(
            trial, 1, 100.0, play=False, label=PATH, directions="forward", HINDSIGHT_FORWARD_LOOKAHEAD=lookahead
        )
        while scene.step < (9 + lookahead - 1) // 8 * 8:
            scene.iterate()
        births = scene.rig.get("store_birth")
        births[births == 9] = 777
        scene.rig.set(store_birth=births)
        scene.iterate()
        trial.equal(
            f"age {lookahead}", [int(built), int(not built)], [scene.history[-1][k] for k in ("forward", "skipped")]
        )
        if built:
            got = scene.injected()[0]
            trial.equal("encodings", [9.0, 29.0, 20, 9], [got[k] for k in ("h", "next_h", "n", "index")])


@oracle("hindsight")
def hindsight_forward_threshold_and_losing_trade(trial: Trial) -> None:
    """A win must be beaten by the factor; a loss of 100 only by 50: forward > -50 fires."""
    forward = peak_usd(26.0, 2)
    for pnl, fires in ((forward / 1.5 - 1, 1), (forward / 1.5 + 1, 0)):
        trial.equal(f"win of {pnl:.0f}", fires, sum(_sold_early(trial, 1, pnl, directions="forward").counts("forward")))
    for end, fires in ((-1, 1), (-2, 0)):  # forward PnL (end x 12.5 - 4) x 2 lots: -33 and -58
        mids = np.where(np.arange(80) < 15, 1000.0, 1000.0 + end)
        pnl = np.where(np.arange(48) == 8, -100.0, 0.0)
        scene = Scene(trial, mids, held(48, 2, 8, 2), pnl, directions="forward").play()
        trial.equal(f"loss of 100, forward {(end * TICK - 4) * 2:.0f}", fires, sum(scene.counts("forward")))


@oracle("hindsight")
def hindsight_forward_closed_ring_wraps(trial: Trial) -> None:
    """Twelve closes within the lookahead: the last eight are judged, oldest first; the first four are forgotten."""
    position = np.tile([0, 1], 12)
    position = np.r_[position, np.zeros(40)]
    mids = 1000.0 + 3.0 * np.arange(90)
    scene = Scene(trial, mids, position, np.full(64, 1.0), directions="forward", HINDSIGHT_FORWARD_LOOKAHEAD=30)
    closes: list[dict[str, Any]] = []
    scene.play(lambda: closes.extend(scene.injected()))
    trial.equal("births of the closes that fired", list(range(11, 26, 2)), [g["birth"] for g in closes])
    trial.equal("each with the encoding kept for it", [g["birth"] for g in closes], [g["h"] for g in closes])


@oracle("hindsight")
def hindsight_forward_expires(trial: Trial) -> None:
    """An entry older than twice the lookahead is cleared unjudged."""
    for age, fires in ((40, 1), (41, 0)):
        scene = _sold_early(trial, 1, 100.0, steps=24, play=False, directions="forward")
        scene.iterate()
        scene.iterate()
        birth = scene.rig.get("closed_birth")
        birth[0, 0] = (17 - age) % 2**32
        scene.rig.set(closed_birth=birth)
        scene.iterate()
        trial.equal(f"age {age}", fires, scene.history[-1]["forward"])
        trial.equal(f"age {age}: cleared", 0, scene.rig.get("closed_valid").sum())


@oracle("hindsight")
def hindsight_forward_new_episode_forgets(trial: Trial) -> None:
    """A new start invalidates the row's closed trades and its open one; the other row keeps both."""
    position = np.repeat(held(48, 2, 8, 2)[:, None], 2, axis=1)
    scene = Scene(trial, 1000.0 + np.arange(80.0), position, directions="forward")
    scene.new_episode = {2: [0]}
    rows: list[int] = []
    scene.play(lambda: rows.extend(g["row"] for g in scene.injected()))
    trial.equal("only row 1", [1], rows)
    kept = Scene(trial, 1000.0 + np.arange(80.0), np.ones((16, 2)))
    kept.new_episode = {1: [1]}
    kept.play()
    trial.equal("mids seen", [16, 8], kept.rig.get("her_mids"))
    trial.equal("entry of the new trade", [1001.0, 1009.0], kept.rig.get("her_entry"))


@oracle("hindsight")
def hindsight_backward_comes_before_forward(trial: Trial) -> None:
    """Both directions in one iteration: backward slots first; a share ceiling takes from the end."""
    position = np.stack([held(32, 2, 8, 2), held(32, 20, 30, 1)], axis=1)
    mids = np.stack([1000.0 + np.arange(60.0), hill(60, 26, 26.0)], axis=1)
    scene = Scene(trial, mids, position, 0.0, HINDSIGHT_THRESHOLD=1.5).play()
    trial.equal("counts", [1, 1], [scene.history[-1]["backward"], scene.history[-1]["forward"]])
    trial.equal("sources", [BACKWARD, FORWARD], [g["source"] for g in scene.injected()])
    trial.equal("rows", [1, 0], [g["row"] for g in scene.injected()])
