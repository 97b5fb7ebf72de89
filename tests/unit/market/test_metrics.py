"""Metrics against hand computations, closed forms and, where it is installed, empyrical."""

from __future__ import annotations

import math

import numpy as np
import pytest

from foxhunt_cli.market.metrics import Play, bootstrap_interval, max_drawdown, minute_pnl, sharpe, sortino, summarise

MINUTES_A_YEAR = 252 * 1380.0


def play(pnl, trade_pnl, **options) -> Play:
    pnl = np.array(pnl, np.float64)
    trade_pnl = np.array(trade_pnl, np.float64)
    return Play(
        pnl=pnl,
        fees=np.full(pnl.shape, 0.5),
        position=(pnl != 0).astype(np.int32),
        trade_pnl=trade_pnl,
        trade_steps=np.full(len(trade_pnl), 3),
        trade_excursion=np.full(len(trade_pnl), 10.0),
        lots_traded=8.0,
        **options,
    )


def test_figures_by_hand():
    figures = summarise(play([[10.0, 0.0], [-4.0, 0.0], [6.0, 4.0], [0.0, -2.0]], [12.0, 2.0, -4.0, 4.0]))
    assert figures["net USD"] == 14.0
    assert figures["net USD / 1,000 steps"] == 14.0 / 8 * 1000
    assert figures["fees USD"] == 4.0
    assert figures["gross USD / 1,000 steps"] == 18.0 / 8 * 1000
    assert (figures["trades"], figures["win rate"], figures["profit factor"]) == (4, 0.75, 18 / 4)
    assert figures["USD / trade"] == 3.5
    assert figures["exposure"] == 5 / 8
    assert figures["exit capture"] == 14 / 40
    assert figures["turnover, lots / 1,000 steps"] == 1000.0
    assert figures["max drawdown USD"] == 4.0  # equity 10, 6, 16, 14
    assert "Sharpe, annualised" not in figures
    assert figures["gross 95 % interval, low"] == 1000.0 and figures["gross 95 % interval, high"] == 3500.0


def test_ratios_by_hand():
    values = np.array([1.0, 2.0, 3.0, -2.0])
    assert sharpe(values) == pytest.approx(1.0 / math.sqrt((0 + 1 + 4 + 9) / 3))
    assert sortino(values) == pytest.approx(1.0 / math.sqrt(4 / 4))


@pytest.mark.parametrize("values", [[], [5.0], [2.0, 2.0]])
def test_no_ratio_without_spread(values):
    assert math.isnan(sharpe(np.array(values)))
    assert math.isnan(sortino(np.array(values)))


def test_no_trade_is_no_number_and_no_error():
    figures = summarise(play(np.zeros((4, 2)), [], minute=np.zeros((4, 2), np.int64), minutes_a_year=MINUTES_A_YEAR))
    assert figures["net USD"] == 0.0 and figures["trades"] == 0.0
    for name in ("win rate", "profit factor", "USD / trade", "Sharpe / trade", "Sharpe, annualised"):
        assert math.isnan(figures[name]), name


def test_minutes_keep_flat_ones_and_add_rows_up():
    pnl = np.array([[1.0, 10.0], [2.0, 20.0], [0.0, 30.0]])
    minute = np.array([[5, 7], [5, 7], [6, 8]])
    assert minute_pnl(pnl, minute).tolist() == [3.0, 0.0, 30.0, 30.0]


def test_annualised_ratios_are_those_of_empyrical():
    empyrical = pytest.importorskip("empyrical")
    rng = np.random.default_rng(0)
    pnl = rng.normal(0.3, 5.0, (600, 4))
    minute = np.arange(600)[:, None] // 7 + np.arange(4) * 1000
    figures = summarise(play(pnl, rng.normal(size=50), minute=minute, minutes_a_year=MINUTES_A_YEAR))
    by_minute = minute_pnl(pnl, minute)
    assert figures["minutes"] == len(by_minute) == 4 * 86
    assert figures["Sharpe, annualised"] == pytest.approx(
        empyrical.sharpe_ratio(by_minute, annualization=MINUTES_A_YEAR)
    )
    assert figures["Sortino, annualised"] == pytest.approx(
        empyrical.sortino_ratio(by_minute, annualization=MINUTES_A_YEAR)
    )


def test_drawdown_counts_from_the_start():
    assert max_drawdown(np.array([-3.0, 1.0, -1.0, 5.0])) == 3.0
    assert max_drawdown(np.array([1.0, 2.0])) == 0.0


def test_interval_of_the_mean_covers_it_about_as_often_as_it_says():
    rng = np.random.default_rng(1)
    inside = 0
    for trial in range(200):
        low, high = bootstrap_interval(rng.normal(2.0, 3.0, 40), draws=400, seed=trial)
        inside += low <= 2.0 <= high
    assert 0.88 <= inside / 200 <= 0.99
    assert all(map(math.isnan, bootstrap_interval(np.array([1.0]))))
