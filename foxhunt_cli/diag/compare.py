"""Runs side by side: what differs in how they were made, and the figures each ended with."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from foxhunt_cli.diag.anomalies import ENTROPY, HOLD
from foxhunt_cli.diag.evaluations import last_evaluation
from foxhunt_cli.diag.manifest import manifest_of, part
from foxhunt_cli.diag.reader import flatten
from foxhunt_cli.diag.summary import Summary, summarize
from foxhunt_cli.diag.verdict import win_rate

_NOT_SETTINGS = ("name", "runs_dir", "device")


@dataclass(frozen=True)
class Candidate:
    """One run of a comparison."""

    name: str
    summary: Summary
    manifest: dict[str, Any]
    held_out: dict[str, float | None]  # the agent's metrics on held-out data; empty where it was not evaluated


@dataclass(frozen=True)
class Row:
    """One figure of every run, NaN where a run lacks it."""

    label: str
    values: tuple[float, ...]


def load(sources: Sequence[Path]) -> list[Candidate]:
    """Reads the runs. Raises FileNotFoundError, RunLogError."""
    runs = [_load(source) for source in sources]
    names = [run.name for run in runs]
    if len(set(names)) == len(names):
        return runs
    return [replace(run, name=str(run.summary.path.parent)) for run in runs]  # runs of one name in several folders


def rows(runs: Sequence[Candidate]) -> Iterator[Row]:
    """Figures of the last quarter of each run, then those on held-out data."""
    for label, value in _FIGURES.items():
        yield Row(label, tuple(value(run.summary) for run in runs))
    for name in dict.fromkeys(name for run in runs for name in run.summary.group("loss.")):
        series = [run.summary.get(f"loss.{name}") for run in runs]
        if any(found and not found.constant for found in series):
            yield Row(f"loss {name}", tuple(found.stretches.last_quarter if found else math.nan for found in series))
    for metric in ("net USD / 1,000 steps", "trades", "win rate", "exit capture", "max drawdown USD"):
        values = [run.held_out.get(metric) for run in runs]
        if any(value is not None for value in values):
            yield Row(f"held out: {metric}", tuple(math.nan if value is None else value for value in values))


def differences(runs: Sequence[Candidate]) -> dict[str, list[Any]]:
    """Settings, seeds, kernels and data that are not the same in all runs: one value a run."""
    flat = [dict(_settings(run.manifest)) for run in runs]
    names = dict.fromkeys(name for settings in flat for name in settings)
    found = {name: [settings.get(name) for settings in flat] for name in names}
    return {name: values for name, values in found.items() if any(value != values[0] for value in values)}


def _load(source: Path) -> Candidate:
    summary = summarize(source)
    folder = summary.path.parent
    agent = (last_evaluation(folder) or {}).get("agent", {})
    return Candidate(folder.name, summary, manifest_of(summary.path), agent)


def _settings(manifest: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in flatten(part(manifest, "config")):
        if name not in _NOT_SETTINGS:
            yield name, value
    for name, value in part(manifest, "isv_seeds").items():
        yield f"isv.{name}", value
    yield "kernels", manifest.get("kernel_hash")
    yield "device", part(manifest, "device").get("kind")
    yield "data", part(manifest, "data").get("digest")


def _rate(field: str) -> Any:
    """Per row and 1,000 steps in the last quarter."""

    def value(summary: Summary) -> float:
        series = summary.get(field)
        return series.stretches.last_quarter * summary.per_thousand if series else math.nan

    return value


def _last(field: str) -> Any:
    def value(summary: Summary) -> float:
        series = summary.get(field)
        return series.stretches.last_quarter if series else math.nan

    return value


_FIGURES: dict[str, Any] = {
    "steps": lambda summary: float(summary.last_step),
    "net USD / 1,000 steps": _rate("market.pnl_step_usd"),
    "fees USD / 1,000 steps": _rate("market.fees_step_usd"),
    "trades / 1,000 steps": _rate("market.trades_closed"),
    "win rate, whole run": win_rate,
    "share of Hold": _last(HOLD),
    "entropy, nats": _last(ENTROPY),
    "anomalies": lambda summary: float(len(summary.anomalies)),
    "env steps/s": lambda summary: s.mean if (s := summary.get("perf.env_steps_per_s")) else math.nan,
}
