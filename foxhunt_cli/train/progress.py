"""What a training run shows while it runs: a live panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import time
from collections import deque
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from foxhunt_cli.diag.sparkline import sparkline

if TYPE_CHECKING:
    from foxhunt_cli.cli.console import Terminal

_PLAIN_EVERY_S = 10.0
_HISTORY = 48
_PANEL = 72  # columns: the frame stands still whatever the figures are


class Progress(AbstractContextManager["Progress"]):
    """Shows drained records. ``update`` is called once a drain with the newest record and all PnL since the last."""

    def __init__(self, terminal: Terminal, total_steps: int) -> None:
        self._terminal = terminal
        self._total = total_steps
        self._pnl: deque[float] = deque(maxlen=_HISTORY)
        self._loss: deque[float] = deque(maxlen=_HISTORY)
        self._started = time.perf_counter()
        self._last_line = self._started
        self._live: Any = None

    def __enter__(self) -> Progress:
        if self._terminal.live:
            from rich.live import Live

            self._live = Live(console=self._terminal.err, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, record: dict[str, Any], pnl_usd: float, rate: float) -> None:
        """record: the newest one; pnl_usd: net PnL of all rows since the last update; rate: env steps a second."""
        self._pnl.append(pnl_usd)
        loss = record["loss"]["v"]
        self._loss.append(math.nan if loss is None else loss)
        now = time.perf_counter()
        if self._live is not None:
            self._live.update(self._panel(record, rate))
        elif now - self._last_line >= _PLAIN_EVERY_S:
            self._last_line = now
            self._terminal.note(self._line(record, rate))

    def _remaining(self, step: int) -> str:
        left = (self._total - step) * (time.perf_counter() - self._started) / max(step, 1)
        return f"{int(left // 60)}:{int(left % 60):02d}"

    def _line(self, record: dict[str, Any], rate: float) -> str:
        step, loss = record["step"], record["loss"]
        return (
            f"step {step:,}/{self._total:,}  {rate:,.0f} env steps/s  left {self._remaining(step)}  "
            f"loss pi {_figure(loss['pi'])} v {_figure(loss['v'])}  PnL {self._pnl[-1]:+,.0f} USD"
        )

    def _panel(self, record: dict[str, Any], rate: float) -> Any:
        from rich.panel import Panel
        from rich.table import Table

        step, loss, market = record["step"], record["loss"], record["market"]
        grid = Table.grid(padding=(0, 2))
        for least in (13, 32, 16):
            grid.add_column(min_width=least)
        grid.add_row("step", f"{step:,} / {self._total:,}  ({step / self._total:.0%})", f"left {self._remaining(step)}")
        grid.add_row("speed", f"{rate:,.0f} env steps/s", "")
        grid.add_row("loss", f"pi {_figure(loss['pi'])}   v {_figure(loss['v'])}", sparkline(list(self._loss)))
        grid.add_row("entropy", f"{_figure(record['signals']['entropy_observed_ema'])} nats", "")
        grid.add_row("PnL, all rows", f"{self._pnl[-1]:+,.0f} USD since the last look", sparkline(list(self._pnl)))
        win = market.get("win_rate")
        grid.add_row("trades", f"{market['trades_closed']:.0f} closed", "" if win is None else f"win rate {win:.0%}")
        width = min(_PANEL, self._terminal.err.width)
        return Panel(grid, title="foxhunt train", title_align="left", border_style="dim", width=width)


def _figure(value: float | None) -> str:
    """A loss with three significant digits; null in a record is a number that was not finite."""
    return "not finite" if value is None else f"{value:.3g}"
