"""A series as one short line of block characters."""

from __future__ import annotations

import math
from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII = "_.:-=+*#"
GAP = " "  # a stretch without a finite value


def sparkline(values: Sequence[float], width: int = 16, ascii_only: bool = False) -> str:
    """``values`` (any length; NaN = no value) in at most ``width`` characters, lowest to highest of the series.

    A constant series is drawn at the lowest mark; a character stands for the mean of its stretch.
    """
    marks = ASCII if ascii_only else BLOCKS
    means = _stretch_means(values, width)
    finite = [mean for mean in means if math.isfinite(mean)]
    if not finite:
        return GAP * len(means)
    low, high = min(finite) / 2, max(finite) / 2  # halves: the span of huge values must not overflow
    # Means of a constant series differ in their last bits; that is no shape.
    constant = high - low <= 1e-9 * max(abs(low), abs(high))
    scale = 0.0 if constant else (len(marks) - 1) / (high - low)
    return "".join(marks[round((mean / 2 - low) * scale)] if math.isfinite(mean) else GAP for mean in means)


def _stretch_means(values: Sequence[float], width: int) -> list[float]:
    count = min(width, len(values))
    bounds = [len(values) * i // count for i in range(count + 1)] if count else []
    return [_mean(values[start:end]) for start, end in zip(bounds, bounds[1:], strict=False)]


def _mean(values: Sequence[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return math.fsum(finite) / len(finite) if finite else math.nan
