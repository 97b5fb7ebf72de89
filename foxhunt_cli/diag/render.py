"""A summary as tables for a terminal or a pipe: verdicts first, then the figures they rest on.

Owns the layout, which must read well at 80 columns, without colour. It judges and computes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from foxhunt_cli.diag.anomalies import ACTIONS, ENTROPY, HOLD
from foxhunt_cli.diag.figures import counted, number, percent
from foxhunt_cli.diag.series import Series
from foxhunt_cli.diag.sparkline import sparkline
from foxhunt_cli.diag.summary import Summary
from foxhunt_cli.diag.verdict import Verdict, rate_unit

MARK_STYLE = {"ok": "green", "look": "yellow", "bad": "bold red", "info": "dim"}
ANOMALIES_SHOWN = 12
TIME_PARTS = 10
SPARK_MIN, SPARK_MAX = 8, 32  # characters
# Label -> field. Rates are shown per row per 1,000 steps, the rest as logged.
RATES = {
    "net PnL USD": "market.pnl_step_usd",
    "fees USD": "market.fees_step_usd",
    "trades": "market.trades_closed",
    "wins": "market.wins",
}
STATES = {
    "win rate": "market.win_rate",
    "equity mean USD": "market.equity_mean",
    "equity min USD": "market.equity_min",
    "|position| lots": "market.position_abs_mean",
    "hold steps": "market.hold_steps_mean",
    "overridden": "actions.overridden_share",
}


def render(summary: Summary, judged: list[Verdict], width: int, ascii_only: bool = False) -> Iterator[RenderableType]:
    """The parts of the report, top to bottom, for ``width`` columns."""
    draw = _SeriesTable(width - 2, ascii_only)
    controllers = summary.group("controllers.")
    yield _headline(summary)
    yield ""
    yield verdict_table(judged)
    yield from _section(f"Over time, {rate_unit(summary)}", _time_table(summary))
    yield from _section("Losses", draw.table(_moving(summary.group("loss."))))
    yield from _section(f"Market, net PnL to wins {rate_unit(summary)}", draw.table(*_market(summary)))
    yield from _section("Share of executed actions", draw.table(_actions(summary)))
    yield from _section("Controllers that moved", draw.table(_moving(controllers)))
    yield from _constants(controllers)
    yield from _section("Signals", draw.table(_moving(summary.group("signals."))))
    yield from _anomalies(summary)


@dataclass(frozen=True)
class _SeriesTable:
    """Draws series as rows of first, last, min, max, slope and a sparkline that takes the room that is left."""

    width: int
    ascii_only: bool

    def table(self, series: Mapping[str, Series], factors: Mapping[str, float] | None = None) -> Table | None:
        """One row a series, its figures times its factor; None without any series. Too narrow: no slope."""
        if not series:
            return None
        rows = [self._cells(name, values, (factors or {}).get(name, 1.0)) for name, values in series.items()]
        names = ["", "first", "last", "min", "max", "slope/1k"]
        if self._room(names, rows) < SPARK_MIN:
            names, rows = names[:-1], [row[:-1] for row in rows]
        table = _columns(*names, "trend")
        spark = max(SPARK_MIN, min(SPARK_MAX, self._room(names, rows)))
        for row, values in zip(rows, series.values(), strict=True):
            table.add_row(*row, sparkline(values.stretches.means(), spark, self.ascii_only))
        return table

    def _cells(self, name: str, values: Series, factor: float) -> list[str]:
        figures = [number(v * factor) for v in (values.first, values.last, values.low, values.high)]
        return [name, *figures, number(values.slope() * factor, signed=True)]

    def _room(self, names: list[str], rows: list[list[str]]) -> int:
        """Characters beside the columns and the gaps behind them."""
        return self.width - sum(max(map(len, column)) + 2 for column in zip(names, *rows, strict=True))


def _headline(summary: Summary) -> str:
    rows = f", {counted(summary.batch, 'row')}" if summary.batch else ""
    time = f", {summary.seconds:,.1f} s" if math.isfinite(summary.seconds) else ""
    torn = f"\nthe last line is torn ({summary.torn_bytes:,} bytes) and was left out" if summary.torn_bytes else ""
    steps = f"{counted(summary.last_step, 'step')} in {counted(summary.iterations, 'iteration')}{rows}{time}"
    return f"{summary.path}\n{steps}; {counted(summary.lines, 'line')}{torn}"


def verdict_table(judged: list[Verdict]) -> Table:
    """One row a verdict: mark, topic, answer."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for verdict in judged:
        mark, topic = Text(verdict.mark, style=MARK_STYLE[verdict.mark]), Text(verdict.topic, style="bold")
        table.add_row(mark, topic, Text(verdict.text))
    return table


def _time_table(summary: Summary) -> Table | None:
    """The run in up to ten parts and what a row did in each; None where the log has no market fields."""
    pnl = summary.get("market.pnl_step_usd")
    if pnl is None:
        return None
    parts = min(TIME_PARTS, len(pnl.stretches.sums))
    table = _columns("to step", *list(RATES)[:3], "win rate", "Hold", "entropy")
    for index in range(parts):
        step = summary.first_step + (summary.last_step - summary.first_step) * (index + 1) // parts
        pnl_usd, fees, closed, wins = (_part(summary, field, index, parts) for field in RATES.values())
        rates = [number(value * summary.per_thousand) for value in (pnl_usd, fees, closed)]
        shares = [percent(wins / closed if closed > 0 else math.nan), percent(_part(summary, HOLD, index, parts))]
        table.add_row(f"{step:,}", *rates, *shares, number(_part(summary, ENTROPY, index, parts)))
    return table


def _part(summary: Summary, field: str, index: int, parts: int) -> float:
    series = summary.get(field)
    return series.stretches.part(index, parts)[0] if series else math.nan


def _market(summary: Summary) -> tuple[dict[str, Series], dict[str, float]]:
    """Market series by label, and the factors that make rates of sums."""
    fields = {**RATES, **STATES}
    series = {label: values for label, field in fields.items() if (values := summary.get(field))}
    return series, dict.fromkeys(RATES, summary.per_thousand)


def _actions(summary: Summary) -> dict[str, Series]:
    shares = summary.group("actions.share.")
    return {name: shares[str(index)] for index, name in enumerate(ACTIONS) if str(index) in shares}


def _moving(series: Mapping[str, Series]) -> dict[str, Series]:
    return {name: values for name, values in series.items() if not values.constant}


def _constants(controllers: Mapping[str, Series]) -> Iterator[RenderableType]:
    constant = [f"{name} {number(values.last)}" for name, values in controllers.items() if values.constant]
    if constant:
        yield from _section("Controllers that never moved", Text(", ".join(constant)))


def _anomalies(summary: Summary) -> Iterator[RenderableType]:
    if not summary.anomalies:
        yield from _section("Anomalies", Text("none"))
        return
    table = Table.grid(padding=(0, 2, 0, 0))
    for anomaly in summary.anomalies[:ANOMALIES_SHOWN]:
        table.add_row(f"step {anomaly.step:,}", anomaly.what)
    more = len(summary.anomalies) - ANOMALIES_SHOWN
    suffix = f" (first {ANOMALIES_SHOWN}; --json has {more} more)" if more > 0 else ""
    yield from _section(f"Anomalies, by the step where each began{suffix}", table)


def _section(title: str, body: RenderableType | None) -> Iterator[RenderableType]:
    if body is not None:
        yield from ("", Text(title, style="bold"), body)


def _columns(*names: str) -> Table:
    """An empty table without lines: first column and trend to the left, figures to the right."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for index, name in enumerate(names):
        left = index == 0 or name == "trend"
        table.add_column(name, justify="left" if left else "right", no_wrap=True, overflow="ellipsis")
    return table
