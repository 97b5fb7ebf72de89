"""Learning curves: a configuration trained and evaluated at equal distances, then judged on held-out markets.

Owns the growing of curves, the file that a second call goes on with, and the rule of when a curve holds a threshold.
What is compared with what stands in ``hindsight.py`` and ``learn.py``.
"""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from foxhunt_cli.bench.markets import Judged, fresh_markets, own_range
from foxhunt_cli.bench.setup import open_device, open_market
from foxhunt_cli.config.load import ConfigError
from foxhunt_cli.config.run import RunConfig
from foxhunt_cli.diag.plots import NET
from foxhunt_cli.diag.writer import write_file
from foxhunt_cli.isv.table import number
from foxhunt_cli.market.evaluate import AGENT, BOUND, CRITIC, Evaluator
from foxhunt_cli.train.compile_bar import compile_bar
from foxhunt_cli.train.engine import build_engine, compile_run
from foxhunt_cli.train.prepare import prepare_training
from foxhunt_cli.train.split import split

if TYPE_CHECKING:
    from foxhunt_cli.cli.console import Terminal

FLOW = "flow"
RULES = ("hold", "random", "moving average", FLOW)
METRICS = (NET, "trades", "win rate", "exit capture")
IN_A_ROW = 3
_NAN = float("nan")
# Fields that change no result: a curve is the same curve with another value of them.
_NO_MATTER = {"name", "runs_dir", "device", "cpu_threads", "log_every", "drain_every", "checkpoint_every", "keep",
              "eval_every", "graph", "branches", "fused"}  # fmt: skip

Figures = dict[str, dict[str, float]]
"""Metrics of ``market.metrics.summarise`` by policy."""


@dataclass
class Curve:
    """One run: what it was at each evaluation on its own held-out range, and what it ended as.

    steps: environment steps of a row; updates: of the critic; seconds: of training; bias: EMA of E[Q] - target, scaled.
    finals: all policies, rules and the bound on each held-out market after training.
    """

    key: str
    labels: dict[str, Any]
    steps: list[int] = field(default_factory=list)
    updates: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    bias: list[float] = field(default_factory=list)
    policies: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    finals: dict[str, Figures] = field(default_factory=dict)
    flow: float = _NAN
    """Net USD per 1,000 steps of the flow rule on the run's own held-out range."""
    bound: float = _NAN
    """The same of perfect foresight."""
    fault: bool = False
    """Training stopped: numbers were not finite."""

    def of(self, policy: str, metric: str = NET) -> list[float]:
        """A metric at each evaluation, NaN where it had no number; empty for a policy that the run does not have."""
        return [float(value) for value in self.policies.get(policy, {}).get(metric, [])]

    def last(self, policy: str, metric: str = NET) -> float:
        """The metric at the last evaluation; NaN where there is none."""
        return (self.of(policy, metric) or [_NAN])[-1]


def holds(values: Sequence[float], threshold: float, times: int = IN_A_ROW) -> int | None:
    """Index of the first of ``times`` values in a row that are all at least ``threshold``, or None."""
    good = [value >= threshold for value in values]
    return next((i for i in range(len(good) - times + 1) if all(good[i : i + times])), None)


def middle(values: Sequence[float]) -> float:
    """Median of the numbers among ``values``; NaN where there is none."""
    numbers = [value for value in values if value == value]
    return statistics.median(numbers) if numbers else _NAN


class Grower:
    """Grows curves one after another on one device. every: steps between two evaluations.

    held_out: fresh synthetic markets to judge each trained agent on; 0, or a market read from files: the end of the
    training market's own data, which training never sampled.
    """

    def __init__(self, every: int, file: Path | None, console: Terminal, held_out: int = 0) -> None:
        self._every, self._file, self._console, self._held_out = every, file, console, held_out
        self._markets: dict[str, Any] = {}
        self._fresh: dict[str, dict[str, Judged]] = {}
        self._device: Any = None
        self._known = {c["key"]: Curve(**c) for c in self._read()}
        self.curves: list[Curve] = []

    def grow(self, config: RunConfig, labels: dict[str, Any]) -> Curve:
        """The curve of ``config``: from the file if it is there, else trained now and written to the file.

        Raises ConfigError, DataError, DeviceError, FileError.
        """
        key = _key(config, self._every, self._held_out)
        title = ", ".join(f"{name} {value}" for name, value in labels.items())
        if key in self._known:
            self._console.note(f"bench: {title}: from {self._file}")
            curve = self._known[key]
            curve.labels = labels
        else:
            curve = self._train(config, Curve(key, labels), title)
            self._known[key] = curve
        self.curves.append(curve)
        if self._file is not None:
            write_file(self._file, orjson.dumps({"curves": [asdict(c) for c in self._known.values()]}))
        return curve

    def _read(self) -> list[dict[str, Any]]:
        if self._file is None or not self._file.is_file():
            return []
        try:
            return [_numbers(curve) for curve in orjson.loads(self._file.read_bytes())["curves"] if Curve(**curve)]
        except (ValueError, KeyError, TypeError):
            raise ConfigError(f"--curves {self._file}: expected a file that this bench wrote; name another") from None

    def _train(self, config: RunConfig, curve: Curve, title: str) -> Curve:
        self._device = self._device or open_device(config)
        data_key = f"{config.paths} {config.data} {config.synthetic}"
        if data_key not in self._markets:
            self._markets = {data_key: open_market(config)}  # one at a time: they are large
        market = self._markets[data_key]
        parts = split(market, config.holdout)
        if parts.held_out is None:
            raise ConfigError("a learning curve needs held-out data, got holdout = 0; use --set holdout=0.2")
        with compile_bar(self._console) as progress:
            compile_run(self._device, config, progress)
        data = prepare_training(self._device, parts.train, config)
        engine = build_engine(self._device, config, data)
        own = own_range(config, market, parts.held_out)
        evaluator = Evaluator(config, engine, own.market, data.sigmas)
        self._iterate(config, engine, evaluator, curve)
        ended = evaluator.all_policies(own.sides).policies
        curve.flow, curve.bound = ended[FLOW][NET], ended[BOUND][NET]
        curve.finals = self._judge(config, engine, data.sigmas) or {own.name: ended}
        self._tell(curve, title)
        return curve

    def _judge(self, config: RunConfig, engine: Any, sigmas: np.ndarray) -> dict[str, Figures]:
        """All policies on each fresh market; empty without such markets."""
        key = f"{config.synthetic} {config.holdout}"
        if config.paths is None and key not in self._fresh:
            self._fresh = {key: fresh_markets(config, self._held_out)}
        markets = self._fresh[key] if config.paths is None else {}
        return {
            name: Evaluator(config, engine, judged.market, sigmas).all_policies(judged.sides).policies
            for name, judged in markets.items()
        }

    def _iterate(self, config: RunConfig, engine: Any, evaluator: Evaluator, curve: Curve) -> None:
        pause, elapsed = -(-self._every // config.rollout), 0.0
        while engine.done < config.iterations and not curve.fault:
            started = time.perf_counter()
            for _ in range(min(pause, config.iterations - engine.done)):
                engine.iterate()
            engine.device.synchronize()
            elapsed += time.perf_counter() - started
            curve.fault = engine.faulted()
            curve.steps.append(engine.done * config.rollout)
            curve.updates.append(max(0, engine.done - engine.prefill_iterations) * config.updates)
            curve.seconds.append(elapsed)
            curve.bias.append(float(engine.device.download(engine.arrays["isv"])[number("Q_BIAS_EMA")]))
            for policy, figures in evaluator.agent().policies.items():
                kept = curve.policies.setdefault(policy, {metric: [] for metric in METRICS})
                for metric in METRICS:
                    kept[metric].append(figures[metric])

    def _tell(self, curve: Curve, title: str) -> None:
        nets = ", ".join(f"{policy} {curve.last(policy):+,.1f}" for policy in (AGENT, CRITIC) if curve.of(policy))
        fault = "; stopped: numbers were not finite" if curve.fault else ""
        self._console.note(
            f"bench: {title}: {nets} USD / 1,000 steps, flow {curve.flow:+,.1f}, {curve.seconds[-1]:,.0f} s{fault}"
        )


def _numbers(read: Any) -> Any:
    """What JSON made of a NaN, null, is one again."""
    if isinstance(read, dict):
        return {name: _numbers(value) for name, value in read.items()}
    if isinstance(read, list):
        return [_numbers(value) for value in read]
    return _NAN if read is None else read


def _key(config: RunConfig, every: int, held_out: int) -> str:
    facts = config.model_dump(mode="json", exclude=_NO_MATTER) | {"every": every, "held_out": held_out}
    return hashlib.sha256(orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]
