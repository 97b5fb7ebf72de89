"""Statistics of a field over a run, in constant memory.

A ``Series`` keeps first, last, least, greatest, a least-squares slope and at most ``POINTS`` means of equal
stretches (when full, neighbours are merged and a stretch becomes twice as long).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import zip_longest

import numpy as np

POINTS = 128


@dataclass
class Stretches:
    """Means of consecutive stretches of equal length: a run of any length in at most POINTS numbers."""

    length: int = 1  # observations a stretch
    sums: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)  # finite observations of each stretch
    seen: int = 0
    points: int = POINTS

    def extend(self, values: np.ndarray) -> None:
        """Observations in order; NaN and infinity take their place in time but not in a mean."""
        while len(values):
            if self.seen == self.length * self.points:
                self._merge()
            room = self.length * self.points - self.seen
            self._put(values[:room])
            values = values[room:]

    def _put(self, values: np.ndarray) -> None:
        """Values that fit without a merge."""
        finite = np.isfinite(values)
        index = (self.seen + np.arange(len(values))) // self.length - len(self.sums) + (self.seen % self.length > 0)
        sums = np.bincount(index, np.where(finite, values, 0.0)).tolist()
        counts = np.bincount(index, finite).astype(int).tolist()
        if self.seen % self.length:
            self.sums[-1] += sums.pop(0)
            self.counts[-1] += counts.pop(0)
        self.sums += sums
        self.counts += counts
        self.seen += len(values)

    def _merge(self) -> None:
        self.sums = [a + b for a, b in zip(self.sums[::2], self.sums[1::2], strict=True)]
        self.counts = [a + b for a, b in zip(self.counts[::2], self.counts[1::2], strict=True)]
        self.length *= 2

    def means(self) -> list[float]:
        """Mean of each stretch, in order; NaN where it had no finite observation."""
        return [total / n if n else math.nan for total, n in zip(self.sums, self.counts, strict=True)]

    def _coarse_means(self) -> list[float]:
        """At most POINTS means, the same ones however many stretches are kept: a judgement rests on these."""
        sums, counts = self.sums, self.counts
        while len(sums) > POINTS:
            sums = [a + b for a, b in zip_longest(sums[::2], sums[1::2], fillvalue=0.0)]
            counts = [a + b for a, b in zip_longest(counts[::2], counts[1::2], fillvalue=0)]
        return [total / n if n else math.nan for total, n in zip(sums, counts, strict=True)]

    def part(self, index: int, of: int) -> tuple[float, float]:
        """Mean over part ``index`` of ``of`` equal parts of the run, and its standard error; NaN where unknown."""
        means = self._coarse_means()
        part = means[len(means) * index // of : max(len(means) * (index + 1) // of, len(means) * index // of + 1)]
        part = [mean for mean in part if math.isfinite(mean)]
        if not part:
            return math.nan, math.nan
        mean = math.fsum(part) / len(part)
        if len(part) < 2:
            return mean, math.nan
        variance = math.fsum((value - mean) ** 2 for value in part) / (len(part) - 1)
        return mean, math.sqrt(variance / len(part))

    @property
    def last_quarter(self) -> float:
        """Mean over the last quarter of the run."""
        return self.part(3, of=4)[0]


@dataclass
class Series:
    """One field of the log against the step; only finite values count."""

    first: float = math.nan
    last: float = math.nan
    low: float = math.inf
    high: float = -math.inf
    total: float = 0.0
    count: int = 0
    low_run: int = 0  # lines at which the value equalled ``low``; with high_run, how long a field sat at a bound
    high_run: int = 0
    stretches: Stretches = field(default_factory=Stretches)
    _x0: float = 0.0
    _sx: float = 0.0
    _sy: float = 0.0
    _sxx: float = 0.0
    _sxy: float = 0.0

    def extend(self, steps: np.ndarray, values: np.ndarray) -> None:
        """The field's values on consecutive lines; NaN stands for null."""
        self.stretches.extend(values)
        finite = np.isfinite(values)
        if not finite.all():
            steps, values = steps[finite], values[finite]
        if not len(values):
            return
        if self.count == 0:
            self.first, self._x0 = float(values[0]), float(steps[0])
        low, high = float(values.min()), float(values.max())
        if low <= self.low:
            self.low_run = (self.low_run if low == self.low else 0) + int(np.count_nonzero(values == low))
        if high >= self.high:
            self.high_run = (self.high_run if high == self.high else 0) + int(np.count_nonzero(values == high))
        self.low, self.high, self.last = min(self.low, low), max(self.high, high), float(values[-1])
        self.count += len(values)
        with np.errstate(over="ignore", invalid="ignore"):  # of huge values: the sums say so by being infinite
            self.total += float(values.sum())
            x, y = steps - self._x0, values - self.first
            self._sx += float(x.sum())
            self._sy += float(y.sum())
            self._sxx += float(x @ x)
            self._sxy += float(x @ y)

    @property
    def constant(self) -> bool:
        """Whether every finite value was the same."""
        return self.count > 0 and self.low == self.high

    @property
    def mean(self) -> float:
        """Of every finite value; NaN where there is none."""
        return self.total / self.count if self.count else math.nan

    def slope(self, per_steps: float = 1000.0) -> float:
        """Least-squares change of the field per ``per_steps`` steps; 0 for fewer than two distinct steps."""
        if self.count < 2:
            return 0.0
        spread = self._sxx - self._sx * self._sx / self.count
        return (self._sxy - self._sx * self._sy / self.count) / spread * per_steps if spread > 0 else 0.0

    def statistics(self) -> dict[str, float | list[float]]:
        """The field's figures by name, for JSON; ``points`` are the means of equal stretches of the run."""
        return {
            "first": self.first,
            "last": self.last,
            "min": self.low,
            "max": self.high,
            "mean": self.mean,
            "slope_per_1000_steps": self.slope(),
            "points": self.stretches.means(),
        }
