"""Learning curves of markets x presets x encoders x seeds: held-out net PnL, win rate and exit capture.

Owns what is compared, the table's rows and the picture.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from foxhunt_cli.bench.curves import Curve, Grower, holds, middle
from foxhunt_cli.config.run import RunConfig
from foxhunt_cli.diag.extras import require
from foxhunt_cli.diag.plots import ACCENT, DPI, FAINT, INK, SECOND, STYLE
from foxhunt_cli.market.evaluate import AGENT, CRITIC

_COLOURS = (INK, ACCENT, SECOND, "#8a6fb0")


def run(
    configure: Callable[[Sequence[str]], RunConfig], grower: Grower, *,
    markets: Sequence[str], presets: Sequence[str], encoders: Sequence[str], seeds: int,
) -> dict[str, Any]:  # fmt: skip
    """A row for each market, preset and encoder, medians over the seeds. configure: as in ``hindsight.run``.

    steps: until the policy holds the flow rule's PnL (``curves.holds``), among the seeds that do.
    """
    rows = []
    for market in markets:
        for preset in presets:
            for encoder in encoders:
                labels = {"market": market, "preset": preset, "encoder": encoder}
                sets = [f"synthetic.preset={market}", f"preset={preset}", f"encoder={encoder}"]
                curves = [
                    grower.grow(configure([*sets, f"seed={seed}"]), labels | {"seed": seed}) for seed in range(seeds)
                ]
                rows.append(_row(labels, curves))
    return {"seeds": seeds, "rows": rows}


def _row(labels: dict[str, str], curves: Sequence[Curve]) -> dict[str, Any]:
    at = [holds(curve.net(AGENT), curve.flow) for curve in curves]
    return labels | {
        "agent": middle([curve.last(AGENT) for curve in curves]),
        "agent_by_seed": [curve.last(AGENT) for curve in curves],
        "critic": middle([curve.last(CRITIC) for curve in curves]),
        "flow": curves[0].flow,
        "trades": middle([curve.last(AGENT, "trades") for curve in curves]),
        "win rate": middle([curve.last(AGENT, "win rate") for curve in curves]),
        "exit capture": middle([curve.last(AGENT, "exit capture") for curve in curves]),
        "steps": middle([curve.steps[i] for curve, i in zip(curves, at, strict=True) if i is not None]),
        "held": sum(i is not None for i in at),
        "of": len(curves),
        "seconds": middle([curve.seconds[-1] for curve in curves]),
    }


def picture(curves: Sequence[Curve], panel: str, line: Sequence[str]) -> bytes:
    """PNG: a panel for each value of label ``panel``, a line for each value of labels ``line``; needs matplotlib.

    A line is the median over the seeds of the agent's held-out net PnL, its band their range. Raises MissingExtra.
    """
    require("matplotlib", "plots", "a plot").use("Agg")
    pyplot = require("matplotlib.pyplot", "plots", "a plot")
    panels = list(dict.fromkeys(str(curve.labels.get(panel, "")) for curve in curves))
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(
            1, len(panels), figsize=(6.5 * len(panels), 4.5), squeeze=False, layout="constrained"
        )
        for place, value in zip(axes.flat, panels, strict=True):
            _panel(place, [c for c in curves if str(c.labels.get(panel, "")) == value], line)
            place.set(
                title=value or "held-out PnL", xlabel="environment steps of a row", ylabel="net USD / 1,000 steps"
            )
        out = io.BytesIO()
        figure.savefig(out, format="png", dpi=DPI)
        pyplot.close(figure)
    return out.getvalue()


def _panel(place: Any, curves: Sequence[Curve], line: Sequence[str]) -> None:
    names = list(dict.fromkeys(" ".join(str(c.labels[label]) for label in line) for c in curves))
    for index, name in enumerate(names):
        own = [c for c in curves if " ".join(str(c.labels[label]) for label in line) == name]
        count = min(len(c.steps) for c in own)
        values = np.array([c.net(AGENT)[:count] for c in own], np.float64)
        colour, style = _COLOURS[index % len(_COLOURS)], ("-", "--", ":")[index // len(_COLOURS) % 3]
        place.plot(own[0].steps[:count], np.median(values, axis=0), color=colour, ls=style, lw=1.8, label=name)
        place.fill_between(own[0].steps[:count], values.min(axis=0), values.max(axis=0), color=colour, alpha=0.15, lw=0)
    place.axhline(curves[0].flow, color=FAINT, lw=1.5, ls="--", label="flow rule")
    place.axhline(0.0, color=INK, lw=0.8)
    place.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    place.legend(loc="best")
