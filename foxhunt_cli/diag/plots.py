"""A run as one page of panels: PnL, trades, actions, losses, policy, controllers, hindsight, held-out results.

Owns what is drawn and how: every panel has a title, a unit and labelled axes, and reads in grey too. Files are written
by the caller.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from foxhunt_cli.diag.anomalies import ACTIONS, ENTROPY, ENTROPY_MAX
from foxhunt_cli.diag.evaluations import Figures, read_evaluation
from foxhunt_cli.diag.extras import require
from foxhunt_cli.diag.figures import number
from foxhunt_cli.diag.manifest import manifest_of, part
from foxhunt_cli.diag.series import Series
from foxhunt_cli.diag.style import ACCENT, DPI, FAINT, INK, SECOND, STYLE
from foxhunt_cli.diag.summary import Summary
from foxhunt_cli.diag.verdict import HIGH, LOW, NET, rate_unit
from foxhunt_cli.isv.table import slots

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS = 512  # means a series is drawn with
SMOOTH = 21  # points of the running mean over a noisy series
DECADES_SHOWN = 1e-4  # of the largest value: a loss that is zero but for rounding must not flatten the others
CONTROLLERS_SHOWN = 10  # as many as there are colours to tell apart
SIZE_INCHES = (16.0, 11.5)


def draw(summary: Summary, form: str = "png") -> bytes:
    """The page as PNG or SVG. summary: read with ``points=POINTS``. Raises MissingExtra without matplotlib."""
    require("matplotlib", "plots", "a plot").use("Agg")
    from matplotlib import pyplot

    panels: tuple[Callable[[Axes, Summary], None], ...] = (
        _pnl, _cumulative, _trades, _actions, _losses, _policy, _controllers, _replay, _held_out,
    )  # fmt: skip
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(3, 3, figsize=SIZE_INCHES, layout="constrained")
        figure.suptitle(_title(summary), fontsize=13, fontweight="bold", x=0.01, ha="left")
        for panel, place in zip(panels, axes.flat, strict=True):
            panel(place, summary)
            place.set_xlim(summary.first_step, summary.last_step + max(1.0, 0.015 * summary.last_step))
            place.xaxis.set_major_formatter(lambda value, _: _thousands(value))
            place.set_xlabel("environment steps of a row")
        out = io.BytesIO()
        figure.savefig(out, format=form, dpi=DPI, metadata={"Date": None} if form == "svg" else None)
        pyplot.close(figure)
    return out.getvalue()


def _title(summary: Summary) -> str:
    manifest = manifest_of(summary.path)
    config, device = part(manifest, "config"), part(manifest, "device")
    facts = [f"{summary.last_step:,} steps", f"{summary.batch or '?'} rows"]
    facts += [f"{config['encoder']} encoder"] if "encoder" in config else []
    facts += [f"seed {config['seed']}"] if "seed" in config else []
    facts += [str(device["name"])] if device.get("name") else []
    return f"{summary.path.parent.name}   {', '.join(facts)}"


def _thousands(value: float) -> str:
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if abs(value) >= 1e4 else f"{value:,.0f}"


def _means(series: Series) -> np.ndarray:
    return np.array(series.stretches.means())


def _steps(summary: Summary, count: int) -> np.ndarray:
    """Step in the middle of each stretch."""
    return summary.first_step + (summary.last_step - summary.first_step) * (np.arange(count) + 0.5) / max(count, 1)


def _smooth(values: np.ndarray) -> np.ndarray:
    """Running mean over SMOOTH points, shorter at the ends; gaps do not spread."""
    window = np.ones(min(SMOOTH, len(values)) or 1)
    finite = np.isfinite(values)
    weight = np.convolve(finite, window, "same")
    total = np.convolve(np.where(finite, values, 0.0), window, "same")
    return np.divide(total, weight, out=np.full(len(values), math.nan), where=weight > 0)


def _noisy(axes: Axes, summary: Summary, series: Series, factor: float, colour: str, label: str) -> None:
    """The series faintly, its running mean on top."""
    values = _means(series) * factor
    steps = _steps(summary, len(values))
    axes.plot(steps, values, color=colour, alpha=0.25, linewidth=0.8)
    axes.plot(steps, _smooth(values), color=colour, linewidth=1.8, label=label)


def _absent(axes: Axes, text: str) -> None:
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color="#7b8894")
    axes.set_yticks([])


def _right(axes: Axes) -> Axes:
    twin = axes.twinx()
    twin.grid(False)
    twin.spines["right"].set_visible(True)
    return twin


def _pnl(axes: Axes, summary: Summary) -> None:
    axes.set_title("Net PnL while training")
    axes.set_ylabel(f"USD {rate_unit(summary)}")
    pnl = summary.get("market.pnl_step_usd")
    if pnl is None:
        return _absent(axes, "the log has no market fields")
    axes.axhline(0.0, color=INK, linewidth=0.8)
    _noisy(axes, summary, pnl, summary.per_thousand, INK, "net of fees")
    values = _means(pnl) * summary.per_thousand
    low, high = np.nanquantile(values, [0.01, 0.99])
    axes.set_ylim(min(low, 0.0) - 0.1 * (high - low), max(high, 0.0) + 0.1 * (high - low) + 1e-9)


def _cumulative(axes: Axes, summary: Summary) -> None:
    axes.set_title("Cumulative PnL, all rows")
    axes.set_ylabel("USD")
    pnl, fees = summary.get("market.pnl_step_usd"), summary.get("market.fees_step_usd")
    if pnl is None:
        return _absent(axes, "the log has no market fields")
    steps = _steps(summary, len(pnl.stretches.sums))
    net = np.cumsum(pnl.stretches.sums)
    axes.axhline(0.0, color=INK, linewidth=0.8)
    axes.plot(steps, net, color=INK, linewidth=1.8, label="net")
    if fees is not None and len(fees.stretches.sums) == len(net):
        axes.plot(
            steps, net + np.cumsum(fees.stretches.sums), color=ACCENT, linewidth=1.2, ls="--", label="before fees"
        )
    axes.yaxis.set_major_formatter(lambda value, _: _thousands(value))
    axes.legend(loc="best")


def _trades(axes: Axes, summary: Summary) -> None:
    axes.set_title("Trades and win rate")
    axes.set_ylabel(f"trades {rate_unit(summary)}", color=INK)
    trades, wins = summary.get("market.trades_closed"), summary.get("market.wins")
    if trades is None or wins is None:
        return _absent(axes, "the log has no market fields")
    _noisy(axes, summary, trades, summary.per_thousand, INK, "trades")
    axes.set_ylim(0.0, 1.1 * np.nanquantile(_means(trades), 0.99) * summary.per_thousand + 1e-9)
    twin = _right(axes)
    closed, won = _smooth(_means(trades)), _smooth(_means(wins))
    rate = np.divide(won, closed, out=np.full(len(won), math.nan), where=closed > 0)
    twin.plot(_steps(summary, len(rate)), 100.0 * rate, color=ACCENT, linewidth=1.4, ls="--")
    twin.set_ylim(0.0, 100.0)
    twin.set_ylabel("win rate, % (dashed)", color=ACCENT)


def _actions(axes: Axes, summary: Summary) -> None:
    from matplotlib import colormaps

    axes.set_title("Executed actions")
    axes.set_ylabel("share, %")
    shares = {name: summary.get(f"actions.share.{index}") for index, name in enumerate(ACTIONS)}
    present = {name: 100.0 * _smooth(_means(series)) for name, series in shares.items() if series is not None}
    if len(present) < len(ACTIONS):
        return _absent(axes, "the log has no action shares")
    order = [name for name in ACTIONS if name != "Hold"] + ["Hold"]
    palette = colormaps["tab20"]
    colours = [
        "#e3e7eb" if name == "Hold" else palette(index * 2 % 20 + index // 10) for index, name in enumerate(order)
    ]
    axes.stackplot(
        _steps(summary, len(present["Hold"])), [present[name] for name in order], colors=colours, labels=order
    )
    busy = np.nanmax(100.0 - present["Hold"])
    axes.set_ylim(0.0, min(100.0, 1.6 * busy + 1.0))
    axes.grid(False)
    axes.legend(loc="upper right", ncols=3, fontsize=7)


def _losses(axes: Axes, summary: Summary) -> None:
    axes.set_title("Losses")
    axes.set_ylabel("|loss|, log scale")
    moving = {name: series for name, series in summary.group("loss.").items() if not series.constant}
    if not moving:
        return _absent(axes, "no loss moved")
    _log_lines(axes, summary, moving)


def _log_lines(axes: Axes, summary: Summary, series: Mapping[str, Series]) -> None:
    for name, values in series.items():
        drawn = _smooth(np.abs(_means(values)))
        axes.plot(_steps(summary, len(drawn)), np.where(drawn > 0, drawn, math.nan), linewidth=1.4, label=name)
    axes.set_yscale("log")
    top = axes.get_ylim()[1]
    axes.set_ylim(max(axes.get_ylim()[0], top * DECADES_SHOWN), top)
    axes.legend(loc="best", ncols=2)


def _policy(axes: Axes, summary: Summary) -> None:
    axes.set_title("Policy entropy")
    axes.set_ylabel("nats", color=INK)
    entropy = summary.get(ENTROPY)
    if entropy is None:
        return _absent(axes, "the log has no entropy")
    axes.axhline(ENTROPY_MAX, color=FAINT, linewidth=1.0, ls=":", label=f"all actions alike, {ENTROPY_MAX:.2f}")
    _noisy(axes, summary, entropy, 1.0, INK, "entropy")
    axes.set_ylim(0.0, 1.08 * ENTROPY_MAX)
    divergence = summary.get("signals.kl_pi_ema")
    if divergence is not None and not divergence.constant:
        twin = _right(axes)
        values = _means(divergence)
        twin.plot(_steps(summary, len(values)), values, color=ACCENT, linewidth=1.2, ls="--")
        twin.set_ylabel("KL(old || new), nats (dashed)", color=ACCENT)
    axes.legend(loc="best")


def _controllers(axes: Axes, summary: Summary) -> None:
    axes.set_title("Controllers that moved")
    axes.set_ylabel("place between its bounds, %")
    moving = {f"controllers.{name}" for name, series in summary.group("controllers.").items() if not series.constant}
    moved = [slot for slot in slots() if slot.field in moving]
    if not moved:
        return _absent(axes, "none moved")
    if len(moved) > CONTROLLERS_SHOWN:
        axes.set_title(f"Controllers that moved, {CONTROLLERS_SHOWN} of {len(moved)}")
    for slot in moved[:CONTROLLERS_SHOWN]:
        values = _means(summary.series[slot.field])
        low, high = (
            (slot.lower, slot.upper) if math.isfinite(slot.upper - slot.lower) else (0.0, float(np.nanmax(values)))
        )
        place = 100.0 * (values - low) / max(high - low, 1e-12)
        axes.plot(_steps(summary, len(place)), place, linewidth=1.3, label=slot.name.lower())
    axes.set_ylim(-4.0, 104.0)
    axes.legend(loc="best", ncols=2)


def _replay(axes: Axes, summary: Summary) -> None:
    backward, forward = (summary.get(f"hindsight.{name}_count_step") for name in ("inject", "forward"))
    if backward is None:
        axes.set_title("Gradient norms")
        axes.set_ylabel("L2 norm, log scale")
        norms = {
            n.removesuffix("_ema"): s for n, s in summary.group("signals.").items() if "grad_norm" in n and s.high > 0
        }
        return _log_lines(axes, summary, norms) if norms else _absent(axes, "none logged")
    axes.set_title("Hindsight")
    axes.set_ylabel(f"transitions {rate_unit(summary)}")
    _noisy(axes, summary, backward, summary.per_thousand, INK, "backward, at closes")
    if forward is not None:
        _noisy(axes, summary, forward, summary.per_thousand, SECOND, "forward")
    share = summary.get("hindsight.share")
    if share is not None:
        twin = _right(axes)
        twin.plot(
            _steps(summary, len(share.stretches.sums)), 100.0 * _means(share), color=ACCENT, linewidth=1.2, ls="--"
        )
        twin.set_ylabel("share of the replay, % (dashed)", color=ACCENT)
        twin.set_ylim(bottom=0.0)
    axes.set_ylim(bottom=0.0)
    return axes.legend(loc="best") and None


def _held_out(axes: Axes, summary: Summary) -> None:
    axes.set_title("Held-out data, greedy policy")
    axes.set_ylabel("net USD per row per 1,000 steps")
    folder = summary.path.parent / "eval"
    steps = {path.stem[5:]: path for path in sorted(folder.glob("step-*.json"))}
    found = {int(step): _agent(path) for step, path in steps.items() if step.isdecimal()}
    final = read_evaluation(folder / "final.json") or {}
    if "agent" in final:
        found[summary.last_step] = final["agent"]
    points = {step: figures for step, figures in found.items() if figures.get(NET) is not None}
    if not points:
        return _absent(axes, "not evaluated")
    for label, style in (("flow", "--"), ("moving average", "-."), ("random", ":")):
        value = final.get(label, {}).get(NET)
        if value is not None:
            axes.axhline(value, color=SECOND, linewidth=1.1, ls=style, label=f"{label} {number(value)}")
    axes.axhline(0.0, color=INK, linewidth=0.8)
    nets = np.array([figures[NET] for figures in points.values()])
    lows, highs = (np.array([f.get(edge) or f[NET] for f in points.values()]) for edge in (LOW, HIGH))
    bars = np.abs(np.array([nets - lows, highs - nets]))
    axes.errorbar(list(points), nets, bars, color=INK, marker="o", ms=4, capsize=3, label="agent, 95 % interval")
    return axes.legend(loc="best") and None


def _agent(path: Path) -> Figures:
    return (read_evaluation(path) or {}).get("agent", {})
