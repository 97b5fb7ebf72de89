"""An independent simulator of one account, written from the market's rules in plain Python with exact arithmetic.

It shares no code with the kernels: positions and cash are Python integers, average prices are fractions. It exists
to be compared with whole rollouts of the device. Slow on purpose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from foxhunt_cli.oracles.env_rig import Market

F32 = np.float32


@dataclass
class Unit:
    """A pyramid unit: lots at a price, with the trail it has now and the one it began with."""

    entry: float
    lots: int
    trail: np.float32
    initial: np.float32
    best: float
    age: int = 0


@dataclass
class Trade:
    """What is known of the open trade."""

    side: int
    entry_mid: float
    best: float
    lots_max: int
    pnl: Fraction = Fraction(0)
    age: int = 0


@dataclass
class ReferenceRow:
    """One account. ``slots``: ISV values by name. ``step`` plays one environment step and returns what happened."""

    market: Market
    slots: dict[str, float]
    lot_limit: int = 4
    latency: int = 1
    tick_value: float = 12.5
    fee: float = 2.0
    ratchet: bool = True
    since_close_rule: bool = False
    position: int = 0
    cash: int = 0
    sides: int = 0
    realised: Fraction = Fraction(0)
    basis: Fraction = Fraction(0)
    outcome: float = 0.0
    since_close: int = 10**9
    order: tuple[int, int] | None = None  # (target, steps to go)
    trade: Trade | None = None
    units: list[Unit] = field(default_factory=list)
    marked: list[Unit] = field(default_factory=list)

    # Decisions.

    def decide(self, snapshot: int, drawn: int) -> int:
        """The executed action: overrides in their order; an order under way holds the row."""
        if self.order:
            return 2
        action, mid = drawn, self.market.mid(snapshot)
        self.marked = []
        side = (self.position > 0) - (self.position < 0)
        mine = {1: (3, 9), -1: (4, 10), 0: (None, None)}[side]  # full and half exit of the side held
        age = self.since_close if self.since_close_rule else (self.trade.age if self.trade else 0)
        if action in mine and age < self.slots["MIN_HOLD_STEPS"]:
            action = 2
        self._mutate_trails(action)
        if side == 0:
            return 2 if self._too_hot(action, snapshot) else action
        self.marked = [u for u in self.units if side * (mid - self._anchor(u, side)) < -float(u.trail)]
        if self.marked and len(self.marked) == len(self.units):
            action = mine[0]
        elif self.marked and action not in mine and action not in ((0, 1) if side > 0 else (5, 6)):
            action = mine[1]
            self.by_stop = True
        loss = sum(u.lots * side * (mid - u.entry) for u in self.units)
        if loss / sum(u.lots * float(u.initial) for u in self.units) < -self.slots["HARD_STOP_R"]:
            action = mine[0]
        if sum(u.lots * float(u.trail) for u in self.units) * self.tick_value > self.slots["HEAT_CAP_USD"]:
            return mine[0]
        return 2 if self._too_hot(action, snapshot) else action

    def _anchor(self, unit: Unit, side: int) -> float:
        return unit.entry if not self.ratchet else side * max(side * unit.entry, side * unit.best)

    def _mutate_trails(self, action: int) -> None:
        rate, low, high = (F32(self.slots[n]) for n in ("TRAIL_ADJUST_RATE", "TRAIL_MIN", "TRAIL_MAX"))
        for unit in self.units:
            if action == 7:
                unit.trail = max(low, min(high, F32(unit.trail * rate)))
            if action == 8:
                unit.trail = max(low, min(high, F32(unit.trail / rate)))

    def _too_hot(self, action: int, snapshot: int) -> bool:
        if action not in (0, 1, 5, 6):
            return False
        target = self.target(action)
        same = self.position * target > 0
        opened = abs(target) - (abs(self.position) if same else 0)
        heat = sum(u.lots * float(u.trail) for u in self.units) if same else 0.0
        new = opened * float(self._new_trail(snapshot))
        return opened > 0 and (heat + new) * self.tick_value > self.slots["HEAT_CAP_USD"]

    def _new_trail(self, snapshot: int) -> np.float32:
        mean, lots = F32(self.slots["MEAN_ABS_PNL_EMA"]), F32(self.slots["CLOSED_LOTS_EMA"])
        root = F32(math.sqrt(10.0))
        distance = (
            mean / (F32(self.tick_value) * lots) if mean > 0 and lots > 0 else self.market.regime[snapshot, 0] * root
        )
        trail = F32(self.slots["TRAIL_K_INIT"]) * distance
        return max(F32(self.slots["TRAIL_MIN"]), min(F32(self.slots["TRAIL_MAX"]), F32(trail)))

    def target(self, action: int, by_stop: bool = False) -> int:
        """Target position of an action, lots."""
        p = self.position
        if action in (0, 1, 5, 6):
            base = self.slots["SIZE_LARGE" if action in (0, 6) else "SIZE_SMALL"]
            factor = F32(1) + F32(self.slots["ANTI_MARTINGALE_GAIN"]) * F32(self.outcome)
            size = max(1, int(np.rint(F32(base) * factor)))
            side = 1 if action > 2 else -1
            if p * side > 0 and len(self.units) >= self.slots["PYRAMID_MAX_UNITS"]:
                return p
            wanted = (p if p * side > 0 else 0) + side * size
            return max(-self.lot_limit, min(self.lot_limit, wanted))
        if (action == 3 and p > 0) or (action == 4 and p < 0):
            return 0
        if (action == 9 and p > 0) or (action == 10 and p < 0):
            marked = sum(u.lots for u in self.marked)
            close = marked if by_stop else max(marked, -(-abs(p) // 2))
            return int(math.copysign(max(0, abs(p) - close), p))
        return p

    # Execution.

    def step(self, snapshot: int, drawn: int, last: bool = False) -> dict[str, float]:
        """Decide at ``snapshot``, fill, mark at ``snapshot + 1``. ``last``: final step of the episode."""
        before, mid, next_mid = self.position, self.market.mid(snapshot), self.market.mid(snapshot + 1)
        self.by_stop = False
        action = self.decide(snapshot, drawn)
        target = self.target(action, self.by_stop)
        equity = self._equity(mid)
        wanted, book = self._due(snapshot, target, last)
        prices = self._walk(book, wanted, last)
        shown = min(abs(wanted), self._depth(book, wanted))
        result = self._apply(prices, 1 if wanted > 0 else -1, book, snapshot)
        cost = sum(abs(px - self.market.mid(book)) for px in prices) * self.tick_value + len(prices) * self.fee
        held = self.position if self.latency == 0 and not last else before
        exact = held * (next_mid - mid) * self.tick_value - cost
        result.update(
            action=action, target=target, before=before, after=self.position, fill=self.position - before,
            unfilled=abs(wanted) - shown, pnl=self._equity(next_mid) - equity, pnl_by_rule=exact, cost=cost,
            equity=self._equity(next_mid), realised=float(self.realised), truncated=int(last),
        )  # fmt: skip
        return result

    def _equity(self, mid: float) -> float:
        return (self.cash + self.position * mid) * self.tick_value - self.sides * self.fee

    def _due(self, snapshot: int, target: int, last: bool) -> tuple[int, int]:
        if last:
            self.order = None
            return -self.position, snapshot + 1
        if not self.order and target != self.position:
            if self.latency == 0:
                return target - self.position, snapshot
            self.order = (target, self.latency)
        if not self.order:
            return 0, snapshot + 1
        target, steps = self.order
        self.order = (target, steps - 1) if steps > 1 else None
        return (0 if self.order else target - self.position), snapshot + 1

    def _side(self, book: int, wanted: int) -> list[tuple[int, int]]:
        px, sz = (self.market.ask_px, self.market.ask_sz) if wanted > 0 else (self.market.bid_px, self.market.bid_sz)
        return [(int(p), int(s)) for p, s in zip(px[book], sz[book], strict=True) if s >= 1]

    def _depth(self, book: int, wanted: int) -> int:
        return sum(size for _, size in self._side(book, wanted))

    def _walk(self, book: int, wanted: int, force: bool) -> list[int]:
        """Price of every single lot, in the order they fill."""
        if wanted == 0:
            return []
        levels = self._side(book, wanted)
        prices = [price for price, size in levels for _ in range(size)][: abs(wanted)]
        return prices + [levels[-1][0]] * (abs(wanted) - len(prices)) if force else prices

    def _apply(self, prices: list[int], side: int, book: int, snapshot: int) -> dict[str, float]:
        """Lot by lot: closing lots first, at the average entry price; then opening lots."""
        tick, fee = Fraction(self.tick_value), Fraction(self.fee)
        before, fill_mid, next_mid = self.position, self.market.mid(book), self.market.mid(snapshot + 1)
        closing = prices[: min(len(prices), abs(before))] if before * side < 0 else []
        opening = prices[len(closing) :]
        delta = Fraction(0)
        for price in closing:
            average = self.basis / abs(self.position)
            delta += (price - average) * -side * tick - fee
            self.basis -= average
            self.position += side
        self._close_units(len(closing))
        for unit in self.units:
            unit.age += 1
        done = self._finish_trade(delta, fill_mid, next_mid, closing)
        for price in opening:
            self.position += side
            self.basis += price
        self.cash -= side * sum(prices)
        self.sides += len(prices)
        self.realised += delta - len(opening) * fee
        if opening:
            self._open(opening, side, book, fee)
        if self.trade:
            for thing in (self.trade, *self.units):
                thing.best = self.trade.side * max(self.trade.side * thing.best, self.trade.side * next_mid)
        return {"delta": float(delta - len(opening) * fee), **done}

    def _close_units(self, lots: int) -> None:
        for unit in [*self.marked, *self.units]:
            take = min(lots, unit.lots)
            unit.lots -= take
            lots -= take
        self.units = [u for u in self.units if u.lots > 0]

    def _finish_trade(self, delta: Fraction, fill_mid: float, next_mid: float, closing: list[int]) -> dict[str, float]:
        nothing = {"closed": 0, "trade_pnl": 0.0, "trade_steps": 0, "trade_lots": 0, "excursion": 0.0}
        self.since_close += 1
        if not self.trade:
            return nothing
        trade = self.trade
        trade.pnl += delta
        trade.age += 1
        if self.position != 0 or not closing:
            return nothing
        best = max(trade.side * trade.best, trade.side * fill_mid) - trade.side * trade.entry_mid
        self.trade, self.since_close = None, 0
        sign = (trade.pnl > 0) - (trade.pnl < 0)
        old, rate = self.outcome, self.slots["OUTCOME_ALPHA"]
        self.outcome = float(sign) if old == 0.0 else old + rate * (sign - old)
        return {
            "closed": 1, "trade_pnl": float(trade.pnl), "trade_steps": trade.age, "trade_lots": trade.lots_max,
            "excursion": best * trade.lots_max * self.tick_value,
        }  # fmt: skip

    def _open(self, opening: list[int], side: int, book: int, fee: Fraction) -> None:
        mid = self.market.mid(book)
        trail = self._new_trail(book)
        self.units.append(Unit(float(F32(sum(opening) / len(opening))), len(opening), trail, trail, mid))
        if not self.trade:
            self.trade = Trade(side, mid, mid, abs(self.position))
        self.trade.lots_max = max(self.trade.lots_max, abs(self.position))
        self.trade.pnl -= len(opening) * fee

    def context(self, mid: float) -> tuple[float, float, float]:
        """What the heads see of the trade at a mid."""
        if not self.trade:
            return 0.0, 0.0, 0.0
        side = self.trade.side
        risk = sum(u.lots * float(u.initial) for u in self.units)
        gain = sum(u.lots * side * (mid - u.entry) for u in self.units)
        down = side * (self.trade.best - mid) * abs(self.position)
        return self.trade.age / 256.0, max(-10.0, min(10.0, gain / risk)), max(-10.0, min(10.0, down / risk))
