"""Learning of markets x presets x encoders x seeds: curves, and what each trained agent earns on held-out markets.

Owns what is compared, the rows of the table, and the picture. A *judgement* is one trained agent on one held-out
market.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from foxhunt_cli.bench.curves import RULES, Curve, Figures, Grower, holds, middle
from foxhunt_cli.bench.markets import DRIFT
from foxhunt_cli.config.run import RunConfig
from foxhunt_cli.diag.extras import require
from foxhunt_cli.diag.plots import ACCENT, DPI, FAINT, INK, NET, SECOND, STYLE
from foxhunt_cli.market.evaluate import AGENT, BOUND, CRITIC

LOW, HIGH = "95 % interval, low", "95 % interval, high"
_COLOURS = (INK, ACCENT, SECOND, "#8a6fb0")
_STYLES = {AGENT: "-", CRITIC: "--"}
_NAMES = {AGENT: "pi", CRITIC: "q"}
_SHARE = "share of the bound"
PANELS = {
    NET: ("net USD / 1,000 steps", -0.5, 1.0),
    _SHARE: ("share of perfect foresight", -0.5, 1.0),
    "exit capture": ("exit capture", -0.5, 1.0),
    "win rate": ("win rate", 0.0, 1.0),
}
"""Metric -> label of the axis and its ends (net PnL: in multiples of the bound), in the order of the picture's rows.
What an untrained critic loses lies far below: an axis that held it would show nothing else."""


def run(
    configure: Callable[[Sequence[str]], RunConfig], grower: Grower, *,
    markets: Sequence[str], presets: Sequence[str], encoders: Sequence[str], seeds: int, training_markets: int = 1,
) -> dict[str, Any]:  # fmt: skip
    """A row for each market, preset, encoder and policy; a judgement for each trained agent and held-out market.

    configure: as in ``hindsight.run``. markets: presets of the synthetic market, or paths of data files. Every run has
    its own seed; with several training markets run i trains on the market of seed i % training_markets.
    """
    rows, judgements = [], []
    for market in markets:
        for preset in presets:
            for encoder in encoders:
                labels = {"market": market, "preset": preset, "encoder": encoder}
                curves = [
                    grower.grow(configure(_settings(labels, seed, training_markets)), labels | {"seed": seed})
                    for seed in range(max(seeds, training_markets))
                ]
                for policy in (AGENT, CRITIC):
                    own = [judgement(c, name, policy) for c in curves for name in c.finals if policy in c.finals[name]]
                    if own:
                        judgements += own
                        rows.append({**labels, "policy": _NAMES[policy]} | _row(curves, policy, own))
    return {"seeds": seeds, "training markets": training_markets, "rows": rows, "judgements": judgements}


def _settings(labels: dict[str, str], seed: int, training_markets: int) -> list[str]:
    market = labels["market"]
    data = [f"synthetic.preset={market}", f"synthetic.seed={seed % training_markets}"]
    if "." in market or "/" in market:
        data = [f'paths=["{market}"]']
    return [*data, f"preset={labels['preset']}", f"encoder={labels['encoder']}", f"seed={seed}"]


def judgement(curve: Curve, market: str, policy: str) -> dict[str, Any]:
    """One trained policy on one held-out market beside the best rule, the drift follower and the bound there.

    clear: the policy's 95 % interval lies above the best rule's. NaN where there is nothing to compare with.
    """
    figures = curve.finals[market]
    own, rule = figures[policy], best_rule(figures)
    net, best = own[NET], figures[rule]
    return curve.labels | {
        "policy": _NAMES[policy],
        "held out": market,
        "net": net,
        "low": own[LOW],
        "high": own[HIGH],
        "rule": rule,
        "rule net": best[NET],
        "rule high": best[HIGH],
        "x rule": _ratio(net, best[NET]),
        "clear": bool(own[LOW] > best[HIGH]),
        "of the bound": _ratio(net, figures[BOUND][NET]),
        "of drift": _ratio(net, figures[DRIFT][NET]) if DRIFT in figures else float("nan"),
        **{name: own[name] for name in ("exit capture", "win rate", "trades")},
        "gross": own["gross USD / 1,000 steps"],
        "gross low": own["gross 95 % interval, low"],
        "gross high": own["gross 95 % interval, high"],
    }


def best_rule(figures: Figures) -> str:
    """The rule of largest net PnL; hold, which earns nothing, is one."""
    return max((name for name in RULES if name in figures), key=lambda name: figures[name][NET])


def _row(curves: Sequence[Curve], policy: str, judged: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Medians over the judgements; worst: the least; clear: how many."""
    at = [holds(curve.of(policy), curve.flow) for curve in curves]
    medians = ("net", "rule net", "x rule", "of the bound", "of drift", "exit capture", "win rate", "trades")
    return {name: middle([j[name] for j in judged]) for name in medians} | {
        "worst": min(j["net"] for j in judged),
        "worst x rule": min(j["x rule"] for j in judged),
        "worst of drift": min(j["of drift"] for j in judged),
        "clear": sum(j["clear"] for j in judged),
        "judgements": len(judged),
        "steps": middle([curve.steps[i] for curve, i in zip(curves, at, strict=True) if i is not None]),
        "held": sum(i is not None for i in at),
        "of": len(curves),
        "seconds": middle([curve.seconds[-1] for curve in curves]),
    }


def picture(curves: Sequence[Curve], panel: str, line: Sequence[str]) -> bytes:
    """PNG: a row for each metric of PANELS, a column for each value of label ``panel``; needs matplotlib.

    A colour is a value of labels ``line``, solid the policy, dashed the critic's own choice: medians over the seeds on
    each run's own held-out range, and their range as a band. Raises MissingExtra.
    """
    require("matplotlib", "plots", "a plot").use("Agg")
    pyplot = require("matplotlib.pyplot", "plots", "a plot")
    columns = list(dict.fromkeys(str(curve.labels.get(panel, "")) for curve in curves))
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(
            len(PANELS), len(columns), figsize=(6.5 * len(columns), 3.2 * len(PANELS)), squeeze=False,
            layout="constrained", sharex="col",
        )  # fmt: skip
        for column, value in enumerate(columns):
            own = [c for c in curves if str(c.labels.get(panel, "")) == value]
            for row, (metric, (label, low, high)) in enumerate(PANELS.items()):
                _panel(axes[row][column], own, metric, line)
                unit = own[0].bound if metric == NET and own[0].bound > 0 else 1.0
                axes[row][column].set(ylabel=label, ylim=(low * unit, high * unit))
            axes[0][column].set_title(value or "held out")
            axes[0][column].legend(loc="best")
            axes[-1][column].set_xlabel("environment steps of a row")
        out = io.BytesIO()
        figure.savefig(out, format="png", dpi=DPI)
        pyplot.close(figure)
    return out.getvalue()


def _panel(place: Any, curves: Sequence[Curve], metric: str, line: Sequence[str]) -> None:
    names = list(dict.fromkeys(" ".join(str(c.labels[label]) for label in line) for c in curves))
    for index, name in enumerate(names):
        own = [c for c in curves if " ".join(str(c.labels[label]) for label in line) == name]
        for policy, style in _STYLES.items():
            values = _values([c for c in own if c.of(policy)], policy, metric)
            if not values.size:
                continue
            steps, colour = own[0].steps[: values.shape[1]], _COLOURS[index % len(_COLOURS)]
            label = f"{name}, {_NAMES[policy]}".lstrip(", ")
            place.plot(steps, _over_seeds(np.nanmedian, values), color=colour, ls=style, lw=1.6, label=label)
            low, high = (_over_seeds(of, values) for of in (np.nanmin, np.nanmax))
            place.fill_between(steps, low, high, color=colour, alpha=0.12, lw=0)
    if metric == NET:
        place.axhline(curves[0].flow, color=FAINT, lw=1.5, ls=":", label="flow rule")
        place.axhline(0.0, color=INK, lw=0.8)
    place.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def _values(curves: Sequence[Curve], policy: str, metric: str) -> np.ndarray:
    """[seeds, evaluations] of a metric, cut to the shortest curve."""
    if not curves:
        return np.empty((0, 0))
    if metric == _SHARE:
        found = [np.array(c.of(policy)) / c.bound for c in curves]
    else:
        found = [np.array(c.of(policy, metric)) for c in curves]
    count = min(map(len, found))
    return np.array([values[:count] for values in found])


def _over_seeds(of: Callable[..., np.ndarray], values: np.ndarray) -> np.ndarray:
    """``of`` over the seeds; NaN, without a warning, where no seed has a number (no trade yet, say)."""
    known = ~np.isnan(values).all(axis=0)
    out = np.full(values.shape[1], np.nan)
    out[known] = of(values[:, known], axis=0)
    return out


def _ratio(value: float, base: float) -> float:
    return value / base if base > 0 else float("nan")
