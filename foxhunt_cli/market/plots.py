"""Pictures of an evaluation: equity with drawdown of every policy, and one segment's trades on its price."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from foxhunt_cli.diag.extras import require
from foxhunt_cli.diag.style import ACCENT, DPI, FAINT, INK, SECOND, STYLE
from foxhunt_cli.market.blotter import Range, blotter
from foxhunt_cli.market.metrics import Play

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINES = {"agent": (INK, "-", 2.0), "critic": (ACCENT, "-", 1.6), "flow": (SECOND, "--", 1.2),
         "moving average": (SECOND, "-.", 1.2), "random": (FAINT, "-", 1.2), "hold": (FAINT, ":", 1.0)}  # fmt: skip
NOT_DRAWN = ("bound",)  # an order of magnitude above everything that knows no future


def equity(plays: dict[str, Play], played: Range) -> bytes:
    """PNG: cumulative net PnL of each policy and its fall from the peak, segments end to end in market time."""
    pyplot = _pyplot()
    with pyplot.rc_context(STYLE):
        figure, (above, below) = pyplot.subplots(
            2, 1, figsize=(12.0, 7.5), sharex=True, layout="constrained", height_ratios=(2.2, 1.0)
        )
        for name, play in plays.items():
            if name in NOT_DRAWN:
                continue
            colour, style, width = LINES.get(name, (FAINT, "-", 1.0))
            curve = np.concatenate([[0.0], np.cumsum(_in_market_time(play.pnl, played))])
            x = np.arange(len(curve))
            above.plot(x, curve, color=colour, ls=style, lw=width, label=f"{name} {curve[-1]:+,.0f}")
            below.plot(x, curve - np.maximum.accumulate(curve), color=colour, ls=style, lw=width)
        rows = len(played.first)
        figure.suptitle(f"{played.market.source}\n{rows} segments of {played.steps:,} steps, end to end", fontsize=10)
        above.axhline(0.0, color=INK, lw=0.8)
        above.set(title="Equity, net of fees", ylabel="USD")
        below.set(title="Drawdown", ylabel="USD", xlabel="held-out steps")
        for axes in (above, below):
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        above.legend(loc="best", title="net USD")
        return _png(figure, pyplot)


def trade_chart(play: Play, played: Range, name: str, row: int | None = None) -> bytes:
    """PNG: the mid of one segment with entries, exits and best moments. row: by default that with most trades."""
    pyplot = _pyplot()
    assert play.fills is not None
    made = blotter(play.fills, played)
    if row is None:
        row = int(np.bincount(made["row"], minlength=len(played.first)).argmax())
    with pyplot.rc_context(STYLE):
        figure, (above, below) = pyplot.subplots(
            2, 1, figsize=(14.0, 7.5), sharex=True, layout="constrained", height_ratios=(3.0, 1.0)
        )
        start = played.times()[0, row].view("datetime64[ns]")
        mine = {column: values[made["row"] == row] for column, values in made.items()}
        net = mine["net_usd"].sum()
        title = f"{name}, segment {row} of {len(played.first)}, from {np.datetime_as_string(start, 's')} UTC"
        figure.suptitle(f"{title}: {len(mine['row'])} trades, net {net:+,.0f} USD", fontsize=11)
        _price(above, played, row)
        _marks(above, mine, played, row)
        _position(below, play, played, row)
        return _png(figure, pyplot)


def _seconds(played: Range, row: int) -> np.ndarray:
    time = played.times()[:, row]
    return (time - time[0]) / 1e9


def _prices(played: Range, row: int) -> np.ndarray:
    ticks = played.market.reference_ticks + played.mids()[:, row]
    return ticks * float(played.market.instrument.tick_size)


def _price(axes: Axes, played: Range, row: int) -> None:
    axes.plot(_seconds(played, row), _prices(played, row), color="#7b8894", lw=0.9, label="mid", zorder=1)
    axes.set(title="Trades on price", ylabel=f"{played.market.instrument.symbol} price")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.2f}")


def _marks(axes: Axes, mine: dict[str, np.ndarray], played: Range, row: int) -> None:
    """A line from entry to exit, green where it earned; triangles where it entered, a cross where it left."""
    seconds, price = _seconds(played, row), _prices(played, row)
    first = played.first[row]
    entry, left = mine["entry_snapshot"] - first, mine["exit_snapshot"] - first
    for index in range(len(entry)):
        won = mine["net_usd"][index] > 0
        path = slice(entry[index], left[index] + 1)
        sign = 1 if mine["side"][index] == "long" else -1
        best = entry[index] + int(np.argmax(sign * price[path]))
        ends = seconds[[entry[index], left[index]]], [mine["entry_price"][index], mine["exit_price"][index]]
        axes.plot(*ends, color=SECOND if won else ACCENT, lw=1.4, alpha=0.8, zorder=2)
        axes.scatter(seconds[best], price[best], marker="D", s=16, facecolors="none", edgecolors=INK, lw=0.8, zorder=3)
    for side, marker in (("long", "^"), ("short", "v")):
        chosen = mine["side"] == side
        axes.scatter(
            seconds[entry[chosen]],
            mine["entry_price"][chosen],
            marker=marker,
            s=46,
            color=INK,
            zorder=4,
            label=f"{side} entry",
        )
    axes.scatter(seconds[left], mine["exit_price"], marker="x", s=40, color=ACCENT, zorder=4, label="exit")
    axes.scatter([], [], marker="D", s=16, facecolors="none", edgecolors=INK, label="best mid of the trade")
    axes.plot([], [], color=SECOND, label="earned")
    axes.plot([], [], color=ACCENT, label="lost")
    axes.legend(loc="best", ncols=2)


def _position(axes: Axes, play: Play, played: Range, row: int) -> None:
    axes.step(_seconds(played, row)[1:], play.position[:, row], where="post", color=INK, lw=1.2)
    axes.axhline(0.0, color=FAINT, lw=0.8)
    axes.set(title="Position", ylabel="lots", xlabel="seconds of market time")
    axes.yaxis.get_major_locator().set_params(integer=True)


def _in_market_time(pnl: np.ndarray, played: Range) -> np.ndarray:
    """[S * R] PnL of the segments one after the other, oldest first."""
    return pnl[:, np.argsort(played.first)].T.reshape(-1)


def _pyplot() -> Any:
    require("matplotlib", "plots", "a plot").use("Agg")
    return require("matplotlib.pyplot", "plots", "a plot")


def _png(figure: Any, pyplot: Any) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=DPI)
    pyplot.close(figure)
    return out.getvalue()
