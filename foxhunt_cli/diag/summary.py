"""What happened in a run: one pass over its log, in memory that does not grow with the run.

Owns the statistics of every field and the anomalies with the step where each began. What they mean is judged in
``verdict.py`` and drawn in ``cli/diag.py``.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foxhunt_cli.config.dims import STRUCTURE
from foxhunt_cli.diag.reader import RunLog, RunLogError, flatten
from foxhunt_cli.diag.series import Series

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
JUMP_MEMORY = 0.05  # weight of a new observation in that running mean
JUMP_WARMUP = 32  # observations before jumps are looked for


@dataclass(frozen=True)
class Anomaly:
    """Something a person should look at, with the step at which it began."""

    step: int
    kind: str  # nonfinite, still, collapsed, jump or order
    what: str


@dataclass
class Summary:
    """Statistics of a whole log."""

    path: Path
    batch: int | None  # rows, from the run's manifest; None without one
    lines: int = 0
    torn_bytes: int = 0
    first_step: int = 0
    last_step: int = 0
    iterations: int = 0
    seconds: float = math.nan
    series: dict[str, Series] = field(default_factory=dict)
    anomalies: list[Anomaly] = field(default_factory=list)

    @property
    def rollout(self) -> float:
        """Environment steps an iteration."""
        return self.last_step / self.iterations if self.iterations else 1.0

    @property
    def per_thousand(self) -> float:
        """Factor from a per-iteration sum over all rows to a rate per row (if rows are known) per 1,000 steps."""
        return 1_000.0 / (self.rollout * (self.batch or 1))

    def group(self, prefix: str) -> dict[str, Series]:
        """Series of one topic by name without the prefix, e.g. ``loss.``; fields that were always null are left out."""
        found = {name: series for name, series in self.series.items() if name.startswith(prefix) and series.count}
        return {name.removeprefix(prefix): series for name, series in found.items()}

    def get(self, name: str) -> Series | None:
        """The field's series, or None where the log has no number for it."""
        series = self.series.get(name)
        return series if series is not None and series.count else None

    def total(self, name: str) -> float:
        """Sum of a per-iteration field over the logged lines; 0 where it is absent."""
        series = self.get(name)
        return series.total if series else 0.0


def summarize(source: Path) -> Summary:
    """Reads a run directory or a run.jsonl. Raises FileNotFoundError, RunLogError (corrupt or empty)."""
    log = RunLog(source)
    summary = Summary(log.path, _batch(log.path.parent / "manifest.json"))
    watchers = _Watchers()
    clock: list[float] = []
    for record in log:
        _take(summary, record, watchers)
        clock = [*clock[:1], _seconds(record.get("time"))]
    if summary.lines == 0:
        raise RunLogError(f"{log.path}: no whole line yet; a run writes its first lines after drain_every iterations")
    summary.torn_bytes = log.torn_bytes
    summary.seconds = clock[-1] - clock[0]
    summary.anomalies = sorted(watchers.found(), key=lambda anomaly: anomaly.step)
    return summary


def as_document(summary: Summary) -> dict[str, Any]:
    """The summary as plain JSON values; ``fields`` holds every number of the log as logged."""
    whole = ("batch", "lines", "torn_bytes", "first_step", "last_step", "iterations", "seconds", "rollout")
    return {
        "path": str(summary.path),
        **{name: getattr(summary, name) for name in whole},
        "anomalies": [vars(anomaly) for anomaly in summary.anomalies],
        "fields": {name: series.statistics() for name, series in summary.series.items() if series.count},
    }


def _take(summary: Summary, record: dict[str, Any], watchers: _Watchers) -> None:
    step = int(record.get("step") or 0)
    if summary.lines == 0:
        summary.first_step = step
    elif step <= summary.last_step:
        watchers.backwards.setdefault("step", (step, summary.last_step))
    summary.lines += 1
    summary.last_step = max(step, summary.last_step)
    summary.iterations = int(record.get("iteration") or summary.lines)
    values: dict[str, float] = {}
    for name, value in flatten(record):
        if name in ("step", "iteration", "time") or isinstance(value, str | list | bool):
            continue
        values[name] = math.nan if value is None else float(value)
    closed = values.get("market.trades_closed", math.nan)
    if closed > 0:  # a line without a trade says nothing about the win rate
        values["market.win_rate"] = values.get("market.wins", math.nan) / closed
    for name, value in values.items():
        summary.series.setdefault(name, Series()).add(step, value)
    watchers.see(step, values, record.get("nonfinite") or ())


@dataclass
class _State:
    """A condition over time: when it first held for STILL_STEPS, and whether it holds now."""

    since: int | None = None
    began: int | None = None
    longest: int = 0

    def see(self, step: int, holds: bool) -> None:
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

    def see(self, step: int, value: float) -> None:
        if not math.isfinite(value):
            return
        off = abs(value - self.mean)
        floor = 1e-3 * abs(self.mean) + 1e-9
        if self.seen >= JUMP_WARMUP and off > JUMP * max(self.deviation, floor):
            self.first = self.first or (step, value, self.mean)
            self.count += 1
        weight = max(JUMP_MEMORY, 1.0 / (self.seen + 1))
        self.deviation += weight * (off - self.deviation) if self.seen else 0.0
        self.mean += weight * (value - self.mean)
        self.seen += 1


@dataclass
class _Watchers:
    """Everything that looks for anomalies, line by line."""

    no_trades: _State = field(default_factory=_State)
    all_hold: _State = field(default_factory=_State)
    collapsed: _State = field(default_factory=_State)
    nonfinite: dict[str, tuple[int, int]] = field(default_factory=dict)  # field -> first step, lines
    jumps: dict[str, _Jumps] = field(default_factory=dict)
    backwards: dict[str, tuple[int, int]] = field(default_factory=dict)

    def see(self, step: int, values: dict[str, float], nonfinite: Iterable[str]) -> None:
        self.no_trades.see(step, values.get("market.trades_closed") == 0)
        self.all_hold.see(step, values.get(HOLD, 0.0) >= ALL_HOLD)
        self.collapsed.see(step, values.get(ENTROPY, ENTROPY_MAX) < COLLAPSED * ENTROPY_MAX)
        faulty = set(nonfinite) | ({"nonfinite_count"} if values.get("nonfinite_count", 0.0) > 0 else set())
        for name in faulty:
            first, lines = self.nonfinite.get(name, (step, 0))
            self.nonfinite[name] = (first, lines + 1)
        for name, value in values.items():
            if name.startswith("loss."):
                self.jumps.setdefault(name, _Jumps()).see(step, value)

    def found(self) -> Iterable[Anomaly]:
        for name, (step, lines) in self.nonfinite.items():
            what = "non-finite gradients or losses counted" if name == "nonfinite_count" else f"{name} not finite"
            yield Anomaly(step, "nonfinite", f"{what}, on {lines:,} line{'s' if lines > 1 else ''}")
        states = (
            (self.no_trades, "still", "no trade closed"),
            (self.all_hold, "still", "every action was Hold"),
            (self.collapsed, "collapsed", "policy entropy near zero"),
        )
        for state, kind, what in states:
            if state.began is not None:
                end = "to the end" if state.since == state.began else f"longest stretch {state.longest:,} steps"
                yield Anomaly(state.began, kind, f"{what}, {end}")
        for name, jump in self.jumps.items():
            if jump.first is not None:
                step, value, mean = jump.first
                more = f", {jump.count - 1:,} more later" if jump.count > 1 else ""
                what = f"{name} jumped to {value:.4g} from a running mean of {mean:.4g}{more}"
                yield Anomaly(step, "jump", what)
        for step, before in self.backwards.values():
            yield Anomaly(step, "order", f"the step went back from {before:,} to {step:,}: two runs in one file?")


def _batch(manifest: Path) -> int | None:
    """Rows of the run as its manifest has them; None where there is no readable manifest."""
    try:
        return int(json.loads(manifest.read_text())["config"]["batch"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _seconds(time: Any) -> float:
    """A line's time, in seconds, as a number or an ISO date; NaN for anything else."""
    if isinstance(time, int | float):
        return float(time)
    try:
        return datetime.datetime.fromisoformat(time).timestamp()
    except (TypeError, ValueError):
        return math.nan
