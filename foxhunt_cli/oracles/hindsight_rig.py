"""Scripted trades for the oracles of hindsight: positions on a mid, played through the run's own steps. No checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from foxhunt_cli.oracles.base import Trial
from foxhunt_cli.oracles.replay_rig import H, ReplayRig
from foxhunt_cli.replay import hindsight, per
from foxhunt_cli.replay.constants import INJECTED, PUSHED, START

TICK, FEE = 12.5, 2.0
CAPACITY, SCALE, BOOST = 2048, 0.01, 3.0
CLOSE, PEAK, PATH = 0, 1, 2
LOOKAHEAD = 20
_SCALARS = ("index", "n", "lots", "next_lots", "action", "return", "discount", "terminal", "source", "birth", "row")
ROW_CODE = 4096  # the encoding of row b at birth g is ROW_CODE * b + g, in every element


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
            trial.device, batch=batch, rollout=rollout, capacity=CAPACITY, isv=values,
            extra=("closed", "closed_trade_pnl_usd"), scalars={"tick_value_usd": TICK, "fee_usd": FEE},
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
            target_h=np.repeat(code[:, :, None], H, axis=2), position_before=before, position_after=after,
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
        found = {name: self.rig.get(f"store_{name}")[slot].item() for name in _SCALARS}
        for name in ("h", "next_h"):
            vector = self.rig.get(f"store_{name}")[slot]
            found[name] = vector[0].item() if np.all(vector == vector[0]) else float("nan")
        return {**found, "priority": self.rig.leaves()[slot].item(), "slot": slot}


def held(steps: int, first: int, last: int, lots: int) -> np.ndarray:
    """Position [steps]: ``lots`` after steps first..last - 1, flat from the step ``last`` on (the close)."""
    position = np.zeros(steps)
    position[first:last] = lots
    return position


def hill(length: int, top: int, height: float, base: float = 1000.0) -> np.ndarray:
    """Mids that rise by ``height`` to birth ``top`` and fall back at the same pace."""
    slope = height / top
    return base + np.maximum(0.0, height - slope * np.abs(np.arange(length) - top))


def peak_usd(height: float, lots: int) -> float:
    """Net PnL of a move of ``height`` ticks, two fees a lot."""
    return (height * TICK - 2 * FEE) * lots
