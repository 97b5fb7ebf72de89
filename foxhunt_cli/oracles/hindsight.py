"""Hindsight: what the tracker sees of scripted trades, when both directions fire, and what they write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from foxhunt_cli.buffers.row import Buffer
from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.replay_rig import H, ReplayRig
from foxhunt_cli.replay import hindsight, per
from foxhunt_cli.replay.constants import BACKWARD, FORWARD, INJECTED, PUSHED, REAL, START, SYNTHETIC

TICK, FEE = 12.5, 2.0
CAPACITY, SCALE, BOOST = 2048, 0.01, 3.0
CLOSE, PEAK, PATH = 0, 1, 2
LOOKAHEAD = 20
ROW_CODE = 4096  # the encoding of row b at birth g is ROW_CODE * b + g, in every element

_EXTRA = (
    Buffer("closed", "T, B", "uint8", "iteration", "0/1", "a trade closed"),
    Buffer("closed_trade_pnl_usd", "T, B", "float32", "iteration", "USD", "PnL of the trade that closed"),
)


class Scene:
    """Rows that hold scripted positions on a scripted mid, iteration after iteration, through the run's own steps.

    mids [N] of the market by birth (row b sees mids + shift[b]); position [steps, B] after each step; pnl [steps, B]
    of the trade that closes there. A close is where the position reaches zero or changes sign.
    """

    def __init__(
        self, trial: Trial, mids: Any, position: Any, pnl: Any = 0.0, *, rollout: int = 8, label: int = CLOSE,
        directions: str = "both", n: int = 4, **isv: float,
    ) -> None:  # fmt: skip
        self.position = np.asarray(position).reshape(len(position), -1)
        self.steps, batch = self.position.shape
        self.pnl = np.broadcast_to(np.asarray(pnl, float).reshape(len(np.atleast_1d(pnl)), -1), self.position.shape)
        self.mids = np.asarray(mids, float).reshape(len(mids), -1) * np.ones(batch)
        values = {
            "HINDSIGHT_LABEL": label, "HINDSIGHT_THRESHOLD": 1.5, "HINDSIGHT_PRIORITY_BOOST": BOOST, "N_STEP": n,
            "HINDSIGHT_FORWARD_LOOKAHEAD": LOOKAHEAD, "HINDSIGHT_MAX_SHARE": 1.0, "REWARD_SCALE": SCALE, "GAMMA": 0.9,
            "REWARD_CLAMP_WIN": 50.0, "REWARD_CLAMP_LOSS": 50.0, "PER_MAX_PRIORITY": 2.0, **isv,
        }  # fmt: skip
        self.rig = ReplayRig(
            trial.device, batch=batch, rollout=rollout, capacity=CAPACITY, extra=_EXTRA, isv=values,
            scalars={"tick_value_usd": TICK, "fee_usd": FEE},
        )  # fmt: skip
        self._market()
        self.rollout, self.step, self.directions = rollout, 0, directions
        self.new_episode: dict[int, list[int]] = {}  # iteration -> rows that draw a new start
        self.history: list[dict[str, float]] = []

    def _market(self) -> None:
        """Rows lie one after another in the data, each with its own mids; the spread is one tick."""
        flat = self.mids.T.reshape(-1)
        for name, away in (("bid_px", -0.5), ("ask_px", 0.5)):
            px = np.repeat((flat + away)[:, None], 10, axis=1).astype(np.float32)
            self.rig.add(name, px)

    def iterate(self) -> None:
        """One iteration of the script."""
        rig, rollout, first = self.rig, self.rollout, self.step
        batch = self.position.shape[1]
        after = self.position[first : first + rollout]
        before = np.vstack([self.position[first - 1 : first] if first else np.zeros((1, batch)), after[:-1]])
        births = first + np.arange(rollout + 1)
        code = births[:, None] + ROW_CODE * np.arange(batch)[None, :]
        fresh = np.zeros(batch, np.uint8)
        fresh[self.new_episode.get(first // rollout, [])] = 1
        rig.set(
            cursor=first + len(self.mids) * np.arange(batch), new_episode=fresh,
            h_bar=np.repeat(code[:, :, None], H, axis=2), position_before=before, position_after=after,
            closed=(before != 0) & ((after == 0) | (np.sign(after) != np.sign(before))), action=5,
            closed_trade_pnl_usd=self.pnl[first : first + rollout],
        )  # fmt: skip
        steps = [stage for t in range(rollout) for stage in hindsight.track(t)]
        steps += [*per.push(), *hindsight.inject(self.directions), *per.tree_of_pushed(CAPACITY, batch, rollout)]
        rig.run(steps)
        self.step += rollout
        self.history.append(
            {
                "backward": rig.slot("HINDSIGHT_INJECT_COUNT"),
                "forward": rig.slot("HINDSIGHT_FORWARD_COUNT"),
                "skipped": rig.slot("HINDSIGHT_SKIPPED"),
                "share": rig.slot("HINDSIGHT_SHARE"),
            }
        )

    def play(self, each: Callable[[], None] | None = None) -> Scene:
        """Every iteration of the script; ``each`` runs after each of them."""
        while self.step + self.rollout <= self.steps:
            self.iterate()
            if each:
                each()
        return self

    def counts(self, name: str) -> list[float]:
        """A published count, iteration by iteration."""
        return [line[name] for line in self.history]

    def injected(self) -> list[dict[str, Any]]:
        """The transitions that the last iteration injected, in slot order."""
        rig = self.rig
        first, count = rig.state(START) + rig.state(PUSHED), rig.state(INJECTED)
        return [self.slot((first + i) % CAPACITY) for i in range(count)]

    def slot(self, slot: int) -> dict[str, Any]:
        """One stored transition."""
        names = (
            "index",
            "n",
            "lots",
            "next_lots",
            "action",
            "return",
            "discount",
            "terminal",
            "source",
            "birth",
            "row",
        )
        found = {name: self.rig.get(f"store_{name}")[slot].item() for name in names}
        for name in ("h", "next_h"):
            vector = self.rig.get(f"store_{name}")[slot]
            found[name] = vector[0].item() if np.all(vector == vector[0]) else float("nan")
        return {**found, "priority": self.rig.leaves()[slot].item(), "slot": slot}


def _held(steps: int, first: int, last: int, lots: int) -> np.ndarray:
    """Position [steps]: ``lots`` after steps first..last - 1, flat from the step ``last`` on (the close)."""
    position = np.zeros(steps)
    position[first:last] = lots
    return position


def _hill(length: int, top: int, height: float, base: float = 1000.0) -> np.ndarray:
    """Mids that rise by ``height`` to birth ``top`` and fall back at the same pace."""
    slope = height / top
    return base + np.maximum(0.0, height - slope * np.abs(np.arange(length) - top))


# Tracking.


@oracle("hindsight")
def hindsight_track_accumulates_peak(trial: Trial) -> None:
    """Rising prices, a long: entry is the first mid, the peak never falls and ends at the top; a short mirrors it."""
    for side in (1, -1):
        mids = 1000.0 + side * np.r_[np.arange(30), np.arange(29, -5, -1)]
        scene = Scene(trial, mids, _held(48, 2, 60, side * 2))
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
    scene = Scene(trial, mids, _held(720, 4, 720, 1), rollout=48).play()
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


# Backward.


def _peak_usd(height: float, lots: int) -> float:
    return (height * TICK - 2 * FEE) * lots


def _one_trade(trial: Trial, side: int, pnl: float, **options: Any) -> Scene:
    """Births 3 to 20 of a hill of 12 ticks with its top at 12; two lots; closes in step 20, iteration 2 of 8 steps."""
    mids = 1000.0 + side * (_hill(60, 12, 12.0) - 1000.0)
    return Scene(trial, mids, _held(24, 2, 20, side * 2), np.where(np.arange(24) == 20, pnl, 0.0), **options).play()


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
        trial.close(f"side {side}: reward", SCALE * _peak_usd(9.0, 2), got["return"], 1e-5)
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
        trial.close(f"side {side}: reward", SCALE * _peak_usd(9.0, 2), got["return"], 1e-5)


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
    same = (
        "h",
        "next_h",
        "index",
        "n",
        "lots",
        "next_lots",
        "action",
        "return",
        "discount",
        "terminal",
        "birth",
        "row",
    )
    trial.equal("the copy", [original[k] for k in same], [got[k] for k in same])
    trial.equal("n of the replay", [4, 12.0, 16.0], [got["n"], got["h"], got["next_h"]])
    trial.equal("sources", [REAL, BACKWARD], [original["source"], got["source"]])
    trial.close("boosted", BOOST * 2.0, got["priority"], 0.0)


@oracle("hindsight")
def hindsight_inject_path_label_builds_a_fresh_peak(trial: Trial) -> None:
    """The peak is too recent to be in the replay: encodings of peak and close, n steps between."""
    mids = 1000.0 + np.r_[np.zeros(3), np.arange(1, 11), np.full(40, 9.0)]  # the top is at birth 12
    for last, peak in ((14, 12), (13, 12), (12, 12), (11, 11)):  # step of the close; the position is gone in its book
        scene = Scene(trial, mids, _held(16, 2, last, 1), label=PATH, n=8).play()
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
    mids = np.r_[_hill(40, 4, 12.0), np.full(40, 1000.0)]
    scene = Scene(trial, mids, _held(steps, 1, 46, 1), np.zeros(steps), label=PATH)
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
    peak = _peak_usd(9.0, 2)
    for pnl, fires in ((peak / 1.5 - 0.5, 1), (peak / 1.5 + 0.5, 0), (-peak / 1.5 + 0.5, 1), (-peak / 1.5 - 0.5, 0)):
        scene = _one_trade(trial, 1, pnl)
        trial.equal(f"realised {pnl:.0f} of {peak:.0f}", [0, 0, fires], scene.counts("backward"))
        trial.equal(f"realised {pnl:.0f}: nothing is skipped", [0, 0, 0], scene.counts("skipped"))
    flat = Scene(trial, np.full(40, 1000.0), _held(16, 2, 9, 1)).play()
    trial.equal("no move: the fees are not a peak", [0, 0], flat.counts("backward"))
    still_open = Scene(trial, _hill(40, 6, 20.0), _held(24, 2, 30, 1)).play()
    trial.equal("no close, no injection", [0, 0, 0], still_open.counts("backward"))


@oracle("hindsight")
def hindsight_inject_losing_trade(trial: Trial) -> None:
    scene = _one_trade(trial, 1, -100.0)
    trial.equal("fires", [0, 0, 1], scene.counts("backward"))
    trial.close("asserts the peak, not the loss", SCALE * _peak_usd(9.0, 2), scene.injected()[0]["return"], 1e-5)


@oracle("hindsight")
def hindsight_inject_two_rows_in_one_step(trial: Trial) -> None:
    """Rows 0 and 2 close in one step, row 1 a step before: slots in the order step, row, without a gap."""
    position = np.stack([_held(16, 1, 12, 1), _held(16, 1, 11, 2), _held(16, 1, 12, 3)], axis=1)
    scene = Scene(trial, _hill(40, 6, 12.0), position).play()
    got = scene.injected()
    trial.equal("count", [0, 3], scene.counts("backward"))
    trial.equal("rows", [1, 0, 2], [g["row"] for g in got])
    trial.equal("each its own encoding", [g["birth"] + ROW_CODE * g["row"] for g in got], [g["h"] for g in got])
    rewards = [SCALE * _peak_usd(8.0, lots) for lots in (2, 1, 3)]
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
    trial.close("peaks: 9 and 7 ticks", [SCALE * _peak_usd(k, 1) for k in (9.0, 7.0)], [g["return"] for g in got], 1e-5)


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
    position = np.repeat(_held(16, 1, 12, 1)[:, None], rows, axis=1)
    scene = Scene(trial, _hill(40, 6, 12.0), position, HINDSIGHT_MAX_SHARE=0.1, n=1).play()
    size = rows * 16
    trial.equal("all fire, 64 fit below a tenth of 1024", [0, 64], scene.counts("backward"))
    scene = Scene(trial, _hill(40, 6, 12.0), position, HINDSIGHT_MAX_SHARE=0.03, n=1).play()
    fit = int(0.03 * size)
    trial.equal("room for the first only", [fit, rows - fit], [scene.history[1][k] for k in ("backward", "skipped")])
    trial.equal("the first rows", list(range(fit)), [g["row"] for g in scene.injected()])
    trial.close("share", fit / (size + fit), scene.history[1]["share"], 1e-6)
    trial.true("never above the ceiling", max(scene.counts("share")) <= 0.03)


# Forward.


def _sold_early(trial: Trial, side: int, pnl: float, steps: int = 48, play: bool = True, **options: Any) -> Scene:
    """In at birth 3, out at step 8 (birth 9), the trend goes on for ever: 26 ticks above entry at age 20."""
    mids, position = 1000.0 + side * np.arange(80.0), _held(steps, 2, 8, side * 2)
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
        trial.close(f"side {side}: reward", SCALE * _peak_usd(26.0, 2), got["return"], 1e-5)


@oracle("hindsight")
def hindsight_forward_labels(trial: Trial) -> None:
    """Label 1: Hold at the close, worth forward - actual. Label 2: the moment of the close, copied from the replay."""
    for label in (PEAK, PATH):
        scene = _sold_early(trial, 1, 100.0, steps=32, directions="forward", label=label)
        got = scene.injected()[0]
        if label == PEAK:
            want = {"lots": 2, "action": 2, "terminal": 1, "h": 9.0, "n": 1}
            trial.close("forward - actual", SCALE * (_peak_usd(26.0, 2) - 100.0), got["return"], 1e-5)
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
    forward = _peak_usd(26.0, 2)
    for pnl, fires in ((forward / 1.5 - 1, 1), (forward / 1.5 + 1, 0)):
        trial.equal(f"win of {pnl:.0f}", fires, sum(_sold_early(trial, 1, pnl, directions="forward").counts("forward")))
    for end, fires in ((-1, 1), (-2, 0)):  # forward PnL (end x 12.5 - 4) x 2 lots: -33 and -58
        mids = np.where(np.arange(80) < 15, 1000.0, 1000.0 + end)
        pnl = np.where(np.arange(48) == 8, -100.0, 0.0)
        scene = Scene(trial, mids, _held(48, 2, 8, 2), pnl, directions="forward").play()
        trial.equal(f"loss of 100, forward {(end * TICK - 4) * 2:.0f}", fires, sum(scene.counts("forward")))


@oracle("hindsight")
def hindsight_forward_closed_ring_wraps(trial: Trial) -> None:
    """Twelve closes within the lookahead: the last eight are judged, oldest first; the first four are forgotten."""
    position = np.tile([0, 1], 12)
    position = np.r_[position, np.zeros(40)]
    mids = 1000.0 + 3.0 * np.arange(90)
    scene = Scene(trial, mids, position, np.full(64, 1.0), directions="forward", HINDSIGHT_FORWARD_LOOKAHEAD=30)
    closes: list[float] = []
    scene.play(lambda: closes.extend(g["birth"] for g in scene.injected()))
    trial.equal("births of the closes that fired", list(range(11, 26, 2)), closes)


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
    position = np.repeat(_held(48, 2, 8, 2)[:, None], 2, axis=1)
    scene = Scene(trial, 1000.0 + np.arange(80.0), position, directions="forward")
    scene.new_episode = {2: [0]}
    rows: list[int] = []
    scene.play(lambda: rows.extend(g["row"] for g in scene.injected()))
    trial.equal("only row 1", [1], rows)
    held = Scene(trial, 1000.0 + np.arange(80.0), np.ones((16, 2)))
    held.new_episode = {1: [1]}
    held.play()
    trial.equal("mids seen", [16, 8], held.rig.get("her_mids"))
    trial.equal("entry of the new trade", [1001.0, 1009.0], held.rig.get("her_entry"))


@oracle("hindsight")
def hindsight_backward_comes_before_forward(trial: Trial) -> None:
    """Both directions in one iteration: backward slots first; a share ceiling takes from the end."""
    position = np.stack([_held(32, 2, 8, 2), _held(32, 20, 30, 1)], axis=1)
    mids = np.stack([1000.0 + np.arange(60.0), _hill(60, 26, 26.0)], axis=1)
    scene = Scene(trial, mids, position, 0.0, HINDSIGHT_THRESHOLD=1.5).play()
    trial.equal("sources", [BACKWARD, FORWARD], [g["source"] for g in scene.injected()])
    trial.equal("rows", [1, 0], [g["row"] for g in scene.injected()])
