"""Trading metrics of a played range: from arrays to numbers, each convention stated where it is used.

A *play* is the record of R rows over S steps: per-step net PnL (fills, marks, fees), fees, positions, and the trades
that closed. Shaping and reward scales never enter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foxhunt_cli.market.fills import Fills


@dataclass(frozen=True)
class Play:
    """What a policy did over a held-out range. USD unless said otherwise."""

    pnl: np.ndarray
    """[S, R] change of equity by step, net of fees."""
    fees: np.ndarray
    """[S, R] fees by step."""
    position: np.ndarray
    """[S, R] int32 lots after the fill of the step."""
    trade_pnl: np.ndarray
    """[n] net PnL of each closed trade."""
    trade_steps: np.ndarray
    """[n] steps each closed trade was open."""
    trade_excursion: np.ndarray
    """[n] best mid excursion of each closed trade."""
    lots_traded: float
    """Lots filled, both sides."""
    minute: np.ndarray | None = None
    """[S, R] int64, minute of market time in which each step ended; None where nobody asks for annualised figures."""
    minutes_a_year: float = float("nan")
    """252 trading days of the instrument's session."""
    fills: Fills | None = None
    """What was filled, for a blotter."""


def summarise(play: Play) -> dict[str, float]:
    """Metrics by label. Ratios without a denominator (no trades, no losses) are NaN, shown as n/a."""
    steps, rows = play.pnl.shape
    moments = steps * rows
    net, fees = float(play.pnl.sum()), float(play.fees.sum())
    wins, losses = play.trade_pnl[play.trade_pnl > 0.0], play.trade_pnl[play.trade_pnl <= 0.0]
    low, high = bootstrap_interval(play.pnl.sum(axis=0) / steps * 1000.0)
    gross_low, gross_high = bootstrap_interval((play.pnl + play.fees).sum(axis=0) / steps * 1000.0)
    return {
        "net USD / 1,000 steps": net / moments * 1000.0,
        "95 % interval, low": low,
        "95 % interval, high": high,
        "gross USD / 1,000 steps": (net + fees) / moments * 1000.0,
        "gross 95 % interval, low": gross_low,
        "gross 95 % interval, high": gross_high,
        "net USD": net,
        "fees USD": fees,
        "trades": float(len(play.trade_pnl)),
        "win rate": _ratio(len(wins), len(play.trade_pnl)),
        "profit factor": _ratio(float(wins.sum()), -float(losses.sum())),
        "USD / trade": _ratio(float(play.trade_pnl.sum()), len(play.trade_pnl)),
        "hold, steps": float(play.trade_steps.mean()) if len(play.trade_steps) else float("nan"),
        "exposure": float(np.mean(play.position != 0)),
        "turnover, lots / 1,000 steps": play.lots_traded / moments * 1000.0,
        "exit capture": _ratio(float(play.trade_pnl.sum()), float(play.trade_excursion.sum())),
        "max drawdown USD": max_drawdown(play.pnl.sum(axis=1)),
        "Sharpe / trade": sharpe(play.trade_pnl),
        "Sortino / trade": sortino(play.trade_pnl),
        **_annualised(play),
        "steps x rows": float(moments),
    }


def sharpe(pnl: np.ndarray) -> float:
    """Mean over standard deviation (n - 1), risk-free rate 0. NaN for fewer than two values or without spread."""
    if len(pnl) < 2:
        return float("nan")
    return _ratio(float(pnl.mean()), float(pnl.std(ddof=1)))


def sortino(pnl: np.ndarray) -> float:
    """Mean over downside deviation, the root mean square of min(x, 0) over all values. NaN where nothing was lost."""
    if len(pnl) < 2:
        return float("nan")
    return _ratio(float(pnl.mean()), float(np.sqrt(np.mean(np.minimum(pnl, 0.0) ** 2))))


def minute_pnl(pnl: np.ndarray, minute: np.ndarray) -> np.ndarray:
    """PnL of each minute of market time that has a step, all rows together, in time order; flat minutes are 0."""
    _, index = np.unique(minute.reshape(-1), return_inverse=True)
    return np.bincount(index.reshape(-1), pnl.reshape(-1))


def _annualised(play: Play) -> dict[str, float]:
    if play.minute is None:
        return {}
    pnl, root = minute_pnl(play.pnl, play.minute), float(np.sqrt(play.minutes_a_year))
    return {
        "Sharpe, annualised": sharpe(pnl) * root,
        "Sortino, annualised": sortino(pnl) * root,
        "minutes": float(len(pnl)),
    }


def max_drawdown(pnl: np.ndarray) -> float:
    """Largest fall of the cumulative sum from its running peak (start included), USD, >= 0."""
    equity = np.concatenate([[0.0], np.cumsum(pnl)])
    return float(np.max(np.maximum.accumulate(equity) - equity))


def bootstrap_interval(row_values: np.ndarray, draws: int = 2000, seed: int = 0) -> tuple[float, float]:
    """95 % percentile interval of the mean over rows, resampling whole rows with replacement. One row: NaN, NaN."""
    if len(row_values) < 2:
        return float("nan"), float("nan")
    rng = np.random.default_rng(seed)
    index = rng.integers(0, len(row_values), size=(draws, len(row_values)))
    low, high = np.quantile(row_values[index].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else float("nan")
