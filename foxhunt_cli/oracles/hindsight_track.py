"""Hindsight: what the tracker sees of scripted trades."""

from __future__ import annotations

import numpy as np

from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.hindsight_rig import (
    Scene,
    held,
)

# Tracking.


@oracle("hindsight")
def hindsight_track_accumulates_peak(trial: Trial) -> None:
    """Rising prices, a long: entry is the first mid, the peak never falls and ends at the top; a short mirrors it."""
    for side in (1, -1):
        mids = 1000.0 + side * np.r_[np.arange(30), np.arange(29, -5, -1)]
        scene = Scene(trial, mids, held(48, 2, 60, side * 2))
        peaks: list[float] = []
        scene.play(lambda s=scene, p=peaks: p.append(float(s.rig.get("her_peak")[0])))
        rig = scene.rig
        trial.close(f"side {side}: entry is the mid of the new book", 1000.0 + side * 3, rig.get("her_entry")[0], 0.0)
        trial.true(f"side {side}: monotone", np.all(side * np.diff(peaks) >= 0), peaks)
        trial.close(f"side {side}: peak", 1000.0 + side * 29, rig.get("her_peak")[0], 0.0)
        trial.equal(f"side {side}: clock of the peak", 29, rig.get("her_peak_birth")[0])
        trial.equal(f"side {side}: side and lots", [side, 2], [rig.get("her_side")[0], rig.get("her_lots")[0]])
        trial.equal(f"side {side}: mids seen", 46, rig.get("her_mids")[0])
        trial.equal(f"side {side}: ring", mids[3:49], rig.get("her_mid_ring")[0, :46])
        trial.equal(f"side {side}: encoding kept", 29.0, rig.get("her_peak_h")[0])


@oracle("hindsight")
def hindsight_track_ring_wraps_at_512(trial: Trial) -> None:
    """A trade of 700 steps: the last place holds the newest mid, the peak is still exact."""
    mids = 1000.0 + np.arange(760) % 611
    scene = Scene(trial, mids, held(720, 4, 720, 1), rollout=48).play()
    rig = scene.rig
    trial.equal("mids seen", 716, rig.get("her_mids")[0])
    trial.equal("first 511 places", mids[5 : 5 + 511], rig.get("her_mid_ring")[0, :511])
    trial.equal("last place: newest", mids[720], rig.get("her_mid_ring")[0, 511])
    trial.equal("peak", [1610.0, 610], [rig.get("her_peak")[0], rig.get("her_peak_birth")[0]])


@oracle("hindsight")
def hindsight_track_flat_partial_close_and_add(trial: Trial) -> None:
    """Flat rows see nothing; a partial close is no close; an add raises the size; the record carries the largest."""
    position = np.array([0, 1, 1, 3, 3, 2, 2, 0])[:, None] * np.array([[1, 0]])
    scene = Scene(trial, 1000.0 + np.arange(20), position, np.full(8, 100.0)[:, None] * np.array([[1, 0]])).play()
    rig = scene.rig
    trial.equal("one record", [[0, 0]] * 7 + [[1, 0]], rig.get("event"))
    trial.equal("entry, peak", [1002.0, 1007.0], [rig.get("event_entry")[7, 0], rig.get("event_peak")[7, 0]])
    trial.equal("largest size", 3, rig.get("event_lots")[7, 0])
    trial.equal("PnL", 100.0, rig.get("event_pnl")[7, 0])
    trial.equal("no trade is open", [0, 0], rig.get("her_mids"))


@oracle("hindsight")
def hindsight_track_reversal_starts_the_next_trade(trial: Trial) -> None:
    """Long to short in one step: the record is the long's, the short begins with that step's mid."""
    position = np.array([2, 2, 2, -1, -1, -1, -1, -1])
    scene = Scene(trial, 1000.0 + np.array([0, 1, 2, 3, 1, -1, -4, -2, -3.0]), position).play()
    rig = scene.rig
    trial.equal("record at the reversal", 1, rig.get("event")[3, 0])
    trial.equal(
        "the long", [1001.0, 1003.0, 1, 2], [rig.get(f"event_{n}")[3, 0] for n in ("entry", "peak", "side", "lots")]
    )
    trial.equal(
        "the short", [1001.0, 996.0, -1, 1], [rig.get(f"her_{n}")[0] for n in ("entry", "peak", "side", "lots")]
    )
    trial.equal("its mids", 5, rig.get("her_mids")[0])
