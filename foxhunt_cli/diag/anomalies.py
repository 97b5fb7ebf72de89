"""What a person should look at in a run, found while its log goes by, with the step at which each began.

Owns the conditions: numbers that are not finite, a run that stands still or has stopped exploring, losses that jump,
steps that go backwards, hindsight where nothing closed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from foxhunt_cli.config.dims import STRUCTURE
from foxhunt_cli.diag.blocks import Block

ACTIONS = tuple(
    name.removeprefix("ACTION_").title().replace("_", "") for name in STRUCTURE if name.startswith("ACTION_")
)
HOLD = f"actions.share.{ACTIONS.index('Hold')}"
ENTROPY = "signals.entropy_observed_ema"
ENTROPY_MAX = math.log(len(ACTIONS))
COLLAPSED = 0.05  # share of ENTROPY_MAX below which a policy has all but stopped exploring
ALL_HOLD = 0.999  # share of Hold that counts as doing nothing
STILL_STEPS = 1_000  # environment steps a state must last to be called an anomaly
JUMP = 12.0  # a loss this many mean deviations from its running mean has jumped
JUMP_FLOOR = 1e-6  # mean deviation below which a loss is zero but for rounding
JUMP_MEMORY = 0.05  # weight of a new observation in that running mean
JUMP_WARMUP = 32  # observations before jumps are looked for


@dataclass(frozen=True)
class Anomaly:
    """Something a person should look at, with the step at which it began."""

    step: int
    kind: str  # nonfinite, still, collapsed, jump, order or hindsight
    what: str


@dataclass
class _State:
    """A condition over time: when it first held for STILL_STEPS, and whether it holds now."""

    since: int | None = None
    began: int | None = None
    longest: int = 0

    def extend(self, steps: np.ndarray, holds: np.ndarray) -> None:
        """Further lines of the log, in their order."""
        if not holds.any():
            self.since = None
            return
        for step, held in zip(steps.tolist(), holds.tolist(), strict=True):
            self._see(step, held)

    def _see(self, step: int, holds: bool) -> None:
        if not holds:
            self.since = None
            return
        self.since = step if self.since is None else self.since
        lasted = step - self.since
        self.longest = max(self.longest, lasted)
        if lasted >= STILL_STEPS and self.began is None:
            self.began = self.since


@dataclass
class _Jumps:
    """Running mean and mean deviation of a loss, and its jumps out of them."""

    seen: int = 0
    mean: float = 0.0
    deviation: float = 0.0
    first: tuple[int, float, float] | None = None  # step, value, the running mean it left
    count: int = 0

    def extend(self, steps: np.ndarray, values: np.ndarray) -> None:
        """Further lines of the log, in their order."""
        for step, value in zip(steps.tolist(), values.tolist(), strict=True):
            if math.isfinite(value):
                self._see(step, value)

    def _see(self, step: int, value: float) -> None:
        off = abs(value - self.mean)
        floor = 1e-3 * abs(self.mean) + JUMP_FLOOR
        if self.seen >= JUMP_WARMUP and off > JUMP * max(self.deviation, floor):
            self.first = self.first or (step, value, self.mean)
            self.count += 1
        weight = max(JUMP_MEMORY, 1.0 / (self.seen + 1))
        self.deviation += weight * (off - self.deviation) if self.seen else 0.0
        self.mean += weight * (value - self.mean)
        self.seen += 1


@dataclass
class Watchers:
    """Everything that looks for anomalies, block by block."""

    no_trades: _State = field(default_factory=_State)
    all_hold: _State = field(default_factory=_State)
    collapsed: _State = field(default_factory=_State)
    nonfinite: dict[str, tuple[int, int]] = field(default_factory=dict)  # field -> first step, lines
    jumps: dict[str, _Jumps] = field(default_factory=dict)
    backwards: tuple[int, int] | None = None  # first step that went back, the one before it
    stray: tuple[int, int] | None = None  # first step with a backward injection and no close, lines
    last_step: int | None = None

    def see(self, block: Block) -> None:
        """The next lines of the log."""
        steps = block.steps
        self._order(steps)
        nothing = np.full(len(steps), math.nan)
        trades = block.column("market.trades_closed")
        self.no_trades.extend(steps, (nothing if trades is None else trades) == 0)
        hold, entropy = block.column(HOLD), block.column(ENTROPY)
        self.all_hold.extend(steps, (nothing if hold is None else hold) >= ALL_HOLD)
        self.collapsed.extend(steps, (nothing if entropy is None else entropy) < COLLAPSED * ENTROPY_MAX)
        self._nonfinite(block)
        self._hindsight(block, trades)
        for index, name in enumerate(block.names):
            if name.startswith("loss."):
                self.jumps.setdefault(name, _Jumps()).extend(steps, block.values[:, index])

    def _order(self, steps: np.ndarray) -> None:
        before = np.concatenate([[self.last_step if self.last_step is not None else steps[0] - 1], steps[:-1]])
        back = np.flatnonzero(steps <= before)
        if len(back) and self.backwards is None:
            self.backwards = (int(steps[back[0]]), int(before[back[0]]))
        self.last_step = int(steps[-1])

    def _nonfinite(self, block: Block) -> None:
        found = [(line, name) for line, names in block.nonfinite for name in sorted(set(names))]
        counted = block.column("nonfinite_count")
        if counted is not None:
            found += [(int(line), "nonfinite_count") for line in np.flatnonzero(counted > 0)]
        for line, name in found:
            first, lines = self.nonfinite.get(name, (int(block.steps[line]), 0))
            self.nonfinite[name] = (first, lines + 1)

    def _hindsight(self, block: Block, trades: np.ndarray | None) -> None:
        injected = block.column("hindsight.inject_count_step")
        if injected is None or trades is None:
            return
        stray = np.flatnonzero((injected > 0) & (trades == 0))
        if len(stray):
            first, lines = self.stray or (int(block.steps[stray[0]]), 0)
            self.stray = (first, lines + len(stray))

    def found(self) -> list[Anomaly]:
        """All anomalies so far, by the step where each began."""
        return sorted(
            (*self._numbers(), *self._states(), *self._losses(), *self._rules()), key=lambda found: found.step
        )

    def _numbers(self) -> Iterator[Anomaly]:
        for name, (step, lines) in self.nonfinite.items():
            what = "non-finite gradients or losses counted" if name == "nonfinite_count" else f"{name} not finite"
            yield Anomaly(step, "nonfinite", f"{what}, on {lines:,} line{'s' if lines > 1 else ''}")

    def _states(self) -> Iterator[Anomaly]:
        states = (
            (self.no_trades, "still", "no trade closed"),
            (self.all_hold, "still", "every action was Hold"),
            (self.collapsed, "collapsed", "policy entropy near zero"),
        )
        for state, kind, what in states:
            if state.began is not None:
                end = "to the end" if state.since == state.began else f"longest stretch {state.longest:,} steps"
                yield Anomaly(state.began, kind, f"{what}, {end}")

    def _losses(self) -> Iterator[Anomaly]:
        for name, jump in self.jumps.items():
            if jump.first is not None:
                step, value, mean = jump.first
                more = f", {jump.count - 1:,} more later" if jump.count > 1 else ""
                yield Anomaly(step, "jump", f"{name} jumped to {value:.4g} from a running mean of {mean:.4g}{more}")

    def _rules(self) -> Iterator[Anomaly]:
        if self.backwards is not None:
            step, before = self.backwards
            yield Anomaly(step, "order", f"the step went back from {before:,} to {step:,}: two runs in one file?")
        if self.stray is not None:
            step, lines = self.stray
            yield Anomaly(step, "hindsight", f"backward hindsight without a closed trade, on {lines:,} line(s)")
