"""Hindsight: what backward hindsight makes of the peaks of scripted trades that have closed."""

from __future__ import annotations

from typing import Any

import numpy as np

from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.hindsight_rig import (
    BOOST,
    CAPACITY,
    PATH,
    PEAK,
    ROW_CODE,
    SCALE,
    Scene,
    held,
    hill,
    peak_usd,
)
from foxhunt_cli.replay.constants import BACKWARD, FORWARD, HEAD, INJECTED, REAL, SIZE, SYNTHETIC

# What a copied transition has in common with its original: all but source and priority.
_COPIED = ("h", "next_h", "index", "n", "lots", "next_lots", "action", "return", "discount", "terminal", "birth", "row")


def _one_trade(trial: Trial, side: int, pnl: float, play: bool = True, **options: Any) -> Scene:
    """Births 3 to 20 of a hill of 12 ticks with its top at 12; two lots; closes in step 20, iteration 2 of 8 steps."""
    mids = 1000.0 + side * (hill(60, 12, 12.0) - 1000.0)
    scene = Scene(trial, mids, held(24, 2, 20, side * 2), np.where(np.arange(24) == 20, pnl, 0.0), **options)
    return scene.play() if play else scene


@oracle("hindsight")
def hindsight_inject_fires_on_done_with_peak(trial: Trial) -> None:
    """Peak of 9 ticks, realised 50 USD: fires in the iteration of the close, once, labelled as the plan says."""
    for side in (1, -1):
        scene = _one_trade(trial, side, 50.0)
        trial.equal(f"side {side}: only at the close", [0, 0, 1], scene.counts("backward"))
        trial.equal(f"side {side}: no forward", [0, 0, 0], scene.counts("forward"))
        got = scene.injected()[0]
        want = {"source": BACKWARD, "lots": side * 2, "action": 5, "terminal": 1, "n": 1, "row": 0, "birth": 21}
        trial.equal(f"side {side}: close state", list(want.values()), [got[k] for k in want])
        trial.equal(f"side {side}: encoding of the close", [21.0, 21.0], [got["h"], got["next_h"]])
        trial.close(f"side {side}: reward", SCALE * peak_usd(9.0, 2), got["return"], 1e-5)
        trial.close(f"side {side}: priority", BOOST * 2.0, got["priority"], 0.0)
        trial.close(f"side {side}: tree", scene.rig.leaves().sum(), scene.rig.get("per_tree")[1], 1e-3)


@oracle("hindsight")
def hindsight_inject_peak_label(trial: Trial) -> None:
    """Label 1: the peak's encoding (of an earlier iteration) with that side's exit."""
    for side, exit_action in ((1, 3), (-1, 4)):
        scene = _one_trade(trial, side, 50.0, label=PEAK)
        got = scene.injected()[0]
        want = {
            "lots": side * 2,
            "action": exit_action,
            "terminal": 1,
            "birth": 12,
            "h": 12.0,
            "next_h": 12.0,
            "index": 12,
        }
        trial.equal(f"side {side}", list(want.values()), [got[k] for k in want])
        trial.close(f"side {side}: reward", SCALE * peak_usd(9.0, 2), got["return"], 1e-5)


@oracle("hindsight")
def hindsight_inject_reward_is_clamped(trial: Trial) -> None:
    scene = _one_trade(trial, 1, 0.0, REWARD_CLAMP_WIN=0.5)
    trial.close("as any reward", 0.5, scene.injected()[0]["return"], 0.0)


@oracle("hindsight")
def hindsight_inject_path_label_copies_the_moment(trial: Trial) -> None:
    """Label 2: the transition of the peak's moment once more, as it is but for source and priority."""
    scene = _one_trade(trial, 1, 50.0, label=PATH)
    got = scene.injected()[0]
    original = next(scene.slot(i) for i in range(CAPACITY) if scene.slot(i)["birth"] == 12)
    trial.equal("the copy", [original[k] for k in _COPIED], [got[k] for k in _COPIED])
    trial.equal("n of the replay", [4, 12.0, 16.0], [got["n"], got["h"], got["next_h"]])
    trial.equal("sources", [REAL, BACKWARD], [original["source"], got["source"]])
    trial.close("boosted", BOOST * 2.0, got["priority"], 0.0)


@oracle("hindsight")
def hindsight_inject_path_label_finds_an_old_moment(trial: Trial) -> None:
    """The slot noted iterations ago is the one copied, in every row, though each iteration looks again."""
    position = np.stack([held(40, 2, 36, 1), held(40, 2, 35, 2), held(40, 3, 36, -1)], axis=1)
    scene = Scene(trial, hill(60, 5, 12.0), position, np.zeros(40), label=PATH, n=8).play()
    got = [(g["row"], g["birth"], g["n"], g["next_h"]) for g in scene.injected()]
    trial.equal("copies of n = 8", [(r, 5, 8, 13.0 + ROW_CODE * r) for r in (1, 0)], got[:2])
    trial.equal("the short's first minimum", (2, 10), got[2][:2])


@oracle("hindsight")
def hindsight_inject_path_label_trusts_no_stale_slot(trial: Trial) -> None:
    """A slot about to be overwritten, or of another moment, is not copied: built from encodings instead."""
    for case in ("about to be overwritten", "synthetic", "another row", "untouched"):
        scene = _one_trade(trial, 1, 50.0, label=PATH, play=False)
        scene.iterate()
        scene.iterate()
        rig = scene.rig
        slot = int(np.flatnonzero(rig.get("store_birth") == 12)[0])
        if case == "about to be overwritten":
            state = rig.get("replay_state")
            state[HEAD] = (slot - 8 - 15) % CAPACITY  # eight pushes, then 15 slots before it
            rig.set(replay_state=state)
        elif case != "untouched":
            name, value = ("store_source", FORWARD) if case == "synthetic" else ("store_row", 1)
            stored = rig.get(name)
            stored[slot] = value
            rig.set(**{name: stored})
        scene.iterate()
        got = scene.injected()[0]
        want = [12.0, 16.0, 4] if case == "untouched" else [12.0, 21.0, 9]
        trial.equal(case, want, [got["h"], got["next_h"], got["n"]])


@oracle("hindsight")
def hindsight_inject_path_label_builds_a_fresh_peak(trial: Trial) -> None:
    """The peak is too recent to be in the replay: encodings of peak and close, n steps between."""
    mids = 1000.0 + np.r_[np.zeros(3), np.arange(1, 11), np.full(40, 9.0)]  # the top is at birth 12
    for last, peak in ((14, 12), (13, 12), (12, 12), (11, 11)):  # step of the close; the position is gone in its book
        scene = Scene(trial, mids, held(16, 2, last, 1), label=PATH, n=8).play()
        got, n = scene.injected()[0], last + 1 - peak
        want = {"birth": peak, "index": peak, "h": float(peak), "next_h": last + 1.0, "n": n, "terminal": 0, "lots": 1}
        trial.equal(f"close at step {last}", list(want.values()), [got[k] for k in want])
        trial.close(
            f"close at step {last}: nothing asserted, discount", [0.0, 0.9**n], [got["return"], got["discount"]], 1e-6
        )


@oracle("hindsight")
def hindsight_inject_path_label_skips_a_lost_moment(trial: Trial) -> None:
    """The peak's slot was overwritten and 33 steps or more lie between: nothing is written, the skip is counted."""
    steps = 48
    mids = np.r_[hill(40, 4, 12.0), np.full(40, 1000.0)]
    scene = Scene(trial, mids, held(steps, 1, 46, 1), np.zeros(steps), label=PATH)
    while scene.step + scene.rollout < steps:
        scene.iterate()
    births = scene.rig.get("store_birth")
    births[births == 4] = 777
    scene.rig.set(store_birth=births)
    scene.iterate()
    trial.equal("skipped", [0, 1], [scene.history[-1]["backward"], scene.history[-1]["skipped"]])
    trial.equal("nothing written", 0, scene.rig.state(INJECTED))


@oracle("hindsight")
def hindsight_inject_does_not_fire_below_threshold(trial: Trial) -> None:
    """Peak 217 USD: fires at 144 realised, not at 145 (x 1.5); a loss counts by its size; never below the fees."""
    peak = peak_usd(9.0, 2)
    for pnl, fires in ((peak / 1.5 - 0.5, 1), (peak / 1.5 + 0.5, 0), (-peak / 1.5 + 0.5, 1), (-peak / 1.5 - 0.5, 0)):
        scene = _one_trade(trial, 1, pnl)
        trial.equal(f"realised {pnl:.0f} of {peak:.0f}", [0, 0, fires], scene.counts("backward"))
        trial.equal(f"realised {pnl:.0f}: nothing is skipped", [0, 0, 0], scene.counts("skipped"))
    flat = Scene(trial, np.full(40, 1000.0), held(16, 2, 9, 1)).play()
    trial.equal("no move: the fees are not a peak", [0, 0], flat.counts("backward"))
    still_open = Scene(trial, hill(40, 6, 20.0), held(24, 2, 30, 1)).play()
    trial.equal("no close, no injection", [0, 0, 0], still_open.counts("backward"))


@oracle("hindsight")
def hindsight_inject_losing_trade(trial: Trial) -> None:
    scene = _one_trade(trial, 1, -100.0)
    trial.equal("fires", [0, 0, 1], scene.counts("backward"))
    trial.close("asserts the peak, not the loss", SCALE * peak_usd(9.0, 2), scene.injected()[0]["return"], 1e-5)


@oracle("hindsight")
def hindsight_inject_two_rows_in_one_step(trial: Trial) -> None:
    """Rows 0 and 2 close in one step, row 1 a step before: slots in the order step, row, without a gap."""
    position = np.stack([held(16, 1, 12, 1), held(16, 1, 11, 2), held(16, 1, 12, 3)], axis=1)
    scene = Scene(trial, hill(40, 6, 12.0), position).play()
    got = scene.injected()
    trial.equal("count", [0, 3], scene.counts("backward"))
    trial.equal("rows", [1, 0, 2], [g["row"] for g in got])
    trial.equal("each its own encoding", [g["birth"] + ROW_CODE * g["row"] for g in got], [g["h"] for g in got])
    rewards = [SCALE * peak_usd(8.0, lots) for lots in (2, 1, 3)]
    trial.close("each its own size", rewards, [g["return"] for g in got], 1e-5)
    trial.equal("synthetic transitions", 3, scene.rig.state(SYNTHETIC))


@oracle("hindsight")
def hindsight_inject_two_trades_of_a_row_in_one_iteration(trial: Trial) -> None:
    """A long and, after a flat step, a short within eight steps: two injections, the later one last."""
    mids = 1000.0 + np.array([0, 0, 5, 9, 2, 2, 2, -5, -1, -1, -1.0])
    position = np.array([1, 1, 1, 0, 0, -1, -1, 0])
    scene = Scene(trial, mids, position).play()
    got = scene.injected()
    trial.equal("count", [2], scene.counts("backward"))
    trial.equal("births of the closes", [4, 8], [g["birth"] for g in got])
    trial.equal("sides", [1, -1], [g["lots"] for g in got])
    trial.close("peaks: 9 and 7 ticks", [SCALE * peak_usd(k, 1) for k in (9.0, 7.0)], [g["return"] for g in got], 1e-5)


@oracle("hindsight")
def hindsight_inject_reversal(trial: Trial) -> None:
    """A reversal is a close: the long's peak is injected, the short's later one too."""
    mids = 1000.0 + np.array([0, 0, 8, 0, 0, -9, 0, 0, 0, 0, 0.0])
    scene = Scene(trial, mids, np.array([2, 2, 2, -2, -2, -2, 0, 0]), label=PEAK).play()
    got = scene.injected()
    trial.equal("exits of both sides", [(2, 3, 2.0), (-2, 4, 5.0)], [(g["lots"], g["action"], g["h"]) for g in got])


@oracle("hindsight")
def hindsight_inject_share_ceiling(trial: Trial) -> None:
    """64 rows close at once with a ceiling of 10 %: the first get the room there is, the rest is counted as skipped."""
    rows = 64
    position = np.repeat(held(16, 1, 12, 1)[:, None], rows, axis=1)
    scene = Scene(trial, hill(40, 6, 12.0), position, HINDSIGHT_MAX_SHARE=0.1, n=1).play()
    size = rows * 16
    trial.equal("all fire, 64 fit below a tenth of 1024", [0, 64], scene.counts("backward"))
    scene = Scene(trial, hill(40, 6, 12.0), position, HINDSIGHT_MAX_SHARE=0.03, n=1).play()
    fit = int(0.03 * size)
    trial.equal("room for the first only", [fit, rows - fit], [scene.history[1][k] for k in ("backward", "skipped")])
    trial.equal("the first rows", list(range(fit)), [g["row"] for g in scene.injected()])
    trial.close("share", fit / (size + fit), scene.history[1]["share"], 1e-6)
    trial.true("never above the ceiling", max(scene.counts("share")) <= 0.03)


@oracle("hindsight")
def hindsight_inject_counts_synthetic_transitions(trial: Trial) -> None:
    """Those in the replay already use up the share; those overwritten by an injection leave the count."""
    rows = 64
    position = np.repeat(held(16, 1, 12, 1)[:, None], rows, axis=1)
    scene = Scene(trial, hill(40, 6, 12.0), position, HINDSIGHT_MAX_SHARE=0.03, n=1)
    scene.iterate()
    state = scene.rig.get("replay_state")
    state[SYNTHETIC] = 20
    scene.rig.set(replay_state=state)
    scene.iterate()
    trial.equal("room for 30 less 20", [10, 30], [scene.history[1]["backward"], scene.rig.state(SYNTHETIC)])

    scene = _one_trade(trial, 1, 50.0, play=False)
    scene.iterate()
    scene.iterate()
    state, source = scene.rig.get("replay_state"), np.zeros(CAPACITY, np.uint8)
    source[state[HEAD] + 8] = FORWARD  # where the injection behind eight pushes will go
    state[SIZE], state[SYNTHETIC] = CAPACITY, 1
    scene.rig.set(replay_state=state, store_source=source)
    scene.iterate()
    trial.equal("one came, one went", [1, 1], [scene.history[2]["backward"], scene.rig.state(SYNTHETIC)])
    trial.equal("size stays", CAPACITY, scene.rig.state(SIZE))
