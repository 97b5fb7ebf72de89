"""What happened in a run: one pass over its log, in memory that does not grow with the run.

Owns the statistics of every field. What to look at is found in ``anomalies.py``, judged in ``verdict.py`` and drawn in
``render.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from foxhunt_cli.diag.anomalies import Anomaly, Watchers
from foxhunt_cli.diag.blocks import Block, blocks
from foxhunt_cli.diag.manifest import rows
from foxhunt_cli.diag.reader import RunLog, RunLogError
from foxhunt_cli.diag.series import POINTS, Series, Stretches


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


def summarize(source: Path, points: int = POINTS) -> Summary:
    """Reads a run directory or a run.jsonl; each series keeps at most ``points`` (even) means of equal stretches.

    Raises FileNotFoundError, RunLogError (corrupt or empty).
    """
    log = RunLog(source)
    summary = Summary(log.path, rows(log.path))
    watchers = Watchers()
    began = math.nan
    for block in blocks(log):
        if summary.lines == 0:
            summary.first_step, began = int(block.steps[0]), block.times[0]
        _take(summary, block, points)
        watchers.see(block)
        summary.seconds = block.times[-1] - began
    if summary.lines == 0:
        raise RunLogError(f"{log.path}: no whole line yet; a run writes its first lines after drain_every iterations")
    summary.torn_bytes = log.torn_bytes
    summary.anomalies = watchers.found()
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


def _take(summary: Summary, block: Block, points: int) -> None:
    summary.lines += len(block.steps)
    summary.last_step = max(int(block.steps.max()), summary.last_step)
    summary.iterations = block.iterations[-1] or summary.lines
    steps = block.steps.astype(np.float64)
    for index, name in enumerate(block.names):
        if name not in summary.series:
            summary.series[name] = Series(stretches=Stretches(points=points))
        summary.series[name].extend(steps, block.values[:, index])
