"""The synthetic market: repeatable, ES-like, and with exactly the edge it states."""

from __future__ import annotations

import numpy as np
import pytest
from files import market
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from foxhunt_cli.data import synthetic
from foxhunt_cli.data.options import DataOptions
from foxhunt_cli.data.processes import clamp_scan
from foxhunt_cli.data.record import mid_ticks
from foxhunt_cli.data.regime import decayed_sum
from foxhunt_cli.data.source import load_market_data
from foxhunt_cli.data.statistics import measure
from foxhunt_cli.data.synthetic import SyntheticOptions

FEE_TICKS = 2.05 / 12.5


def ema(x, length: float):
    return decayed_sum(x / length, np.arange(len(x), dtype=float), length)


def depth_imbalance(records):
    """Log sizes, bids less asks, summed over the book: what a single snapshot shows of a wave."""
    return (np.log1p(records["bid_sz"]).sum(1) - np.log1p(records["ask_sz"]).sum(1)).astype(float)


def follow(signal, records, enter: float, leave: float) -> float:
    """Net ticks per 1,000 snapshots of a one-lot follower of `signal`, filled one snapshot later at the touch."""
    position, held = 0, []
    for x in signal.tolist():
        if position == 0:
            position = int(x > enter) - int(x < -enter)
        elif position * x < leave:
            position = 0
        held.append(position)
    held = np.concatenate([[0], held[:-1]])
    mid, spread = mid_ticks(records).astype(float), (records["ask_px"][:, 0] - records["bid_px"][:, 0]).astype(float)
    lots = np.abs(np.diff(held, prepend=0))
    return float((held[:-1] * np.diff(mid)).sum() - (lots * (spread / 2 + FEE_TICKS)).sum()) / len(mid) * 1000


def rule_profit(preset: str, seed: int, edge: float = 1.0) -> dict[str, float]:
    """Ticks per 1,000 snapshots of the fixed rules, thresholds in standard deviations."""
    records = market(150_000, seed=seed, preset=preset, edge=edge).records
    flow = ema(np.sign(records["trade_signed_vol"].astype(float)), 40)
    book = depth_imbalance(records)
    smooth = ema(book, 15)
    both = smooth / smooth.std() + flow / flow.std()
    return {
        "book": follow(book, records, 1.5 * book.std(), -book.std()),
        "flow": follow(flow, records, 0.7 * flow.std(), -0.4 * flow.std()),
        "both": follow(both, records, 0.7 * both.std(), -0.4 * both.std()),
    }


@pytest.mark.parametrize("preset", ["wavy", "realistic", "noise", "dirty"])
def test_same_options_same_bytes(preset):
    a, b, c = market(3000, 5, preset), market(3000, 5, preset), market(3000, 6, preset)
    assert a.digest == b.digest and a.records.tobytes() == b.records.tobytes() and a.digest != c.digest


@pytest.mark.parametrize("seed", [0, 1])
def test_realistic_has_the_statistics_of_es(seed):
    outside = [
        f"{s.name} = {s.value:.3f}, expected {s.low:g} to {s.high:g}"
        for s in measure(market(400_000, seed, "realistic"))
        if not s.ok
    ]
    assert not outside


def test_wavy_pays_a_follower_of_book_and_flow():
    for seed in (0, 1):
        profit = rule_profit("wavy", seed)
        assert profit["both"] > 8 and profit["book"] > 5 and profit["flow"] > 5, profit


def test_the_edge_is_one_number():
    assert rule_profit("wavy", 0, edge=0.0)["both"] < 0
    assert rule_profit("wavy", 0, edge=2.0)["both"] > rule_profit("wavy", 0)["both"]


def test_realistic_does_not_pay_a_taker():
    assert max(rule_profit("realistic", 0).values()) < 0


def test_noise_pays_nobody():
    assert max(rule_profit("noise", 0).values()) < 0


def test_noise_is_unpredictable():
    records = market(400_000, 3, "noise").records
    mid = mid_ticks(records).astype(float)
    top = (np.log(records["bid_sz"][:, 0]) - np.log(records["ask_sz"][:, 0])).astype(float)
    signals = {
        "book": depth_imbalance(records),
        "top": top,
        "flow": ema(records["trade_signed_vol"].astype(float), 20),
        "last move": mid - records["prev_mid"],
        "reversal": np.concatenate([np.zeros(20), mid[20:] - mid[:-20]]),
    }
    for horizon in (1, 10, 60):
        # Every horizon-th step, so that the moves do not overlap and the correlations are of independent samples.
        at = np.arange(30, len(mid) - horizon, horizon)
        move = mid[at + horizon] - mid[at]
        assert abs(move.mean()) < 4.5 * move.std() / np.sqrt(len(move))
        for name, x in signals.items():
            assert abs(np.corrcoef(x[at], move)[0, 1]) < 4.5 / np.sqrt(len(at)), (name, horizon)


def test_wave_signal_is_in_a_single_snapshot():
    records = market(200_000, 0, "wavy").records
    mid = mid_ticks(records).astype(float)
    assert np.corrcoef(depth_imbalance(records)[:-60], mid[60:] - mid[:-60])[0, 1] > 0.25


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 4)), min_size=1, max_size=200), st.integers(-9, 9))
@settings(max_examples=200, deadline=None)
def test_clamp_scan_is_the_recurrence(pairs, first):
    low, high = np.array([p[0] for p in pairs]), np.array([p[0] + p[1] for p in pairs])
    value, expected = first, []
    for lo, hi in zip(low, high, strict=True):
        value = min(hi, max(lo, value))
        expected.append(value)
    assert clamp_scan(low, high, first).tolist() == expected


@pytest.mark.parametrize("snapshots, sessions", [(2, 1), (3, 5), (41, 4), (1000, 7)])
def test_small_and_many_sessions(snapshots, sessions):
    data = market(snapshots, sessions=sessions)
    assert len(data) == snapshots and (data.session_lengths >= 2).all()
    starts = data.session_start[1:]
    ts = data.records["ts_ns"].astype(np.int64)
    assert (ts[starts] - ts[starts - 1] >= 3_600_000_000_000).all() and (np.diff(ts) > 0).all()
    assert (data.records["prev_ts_ns"][data.session_start] == ts[data.session_start]).all()


def test_prices_are_whole_ticks_and_books_are_whole():
    for preset in ("wavy", "realistic", "noise"):
        records = market(20_000, 2, preset).records
        assert (records["bid_px"][:, 0] < records["ask_px"][:, 0]).all()
        assert (records["bid_px"] == np.rint(records["bid_px"])).all()
        assert (np.diff(records["bid_px"], axis=1) == -1).all() and (np.diff(records["ask_px"], axis=1) == 1).all()
        assert (
            (records["bid_sz"] >= 1).all() and (records["ask_sz"] >= 1).all() and np.isfinite(records["regime"]).all()
        )
        assert (
            (records["padding"] == 0).all()
            and records["regime"][:, 5].min() >= 0
            and records["regime"][:, 5].max() <= 1
        )


def test_the_output_states_the_edge():
    assert "an edge is built in: waves of size 1" in market(100).source
    assert "profit on it is a bug" in market(100, preset="noise").source


def test_options_of_the_data_apply_to_the_synthetic_market_too():
    options = DataOptions(instrument="MES", max_snapshots=50, stride=4)
    data = load_market_data(None, options, SyntheticOptions(snapshots=1000))
    assert len(data) == 50 and data.instrument.tick_value_usd == 1.25


def test_unknown_options_are_refused():
    for bad in ({"preset": "calm"}, {"snapshots": 1}, {"edge": -1}, {"waves": 3}):
        with pytest.raises(ValidationError):
            SyntheticOptions(**bad)


@pytest.mark.parametrize("sessions", [1, 3])
def test_known_drift_is_the_drift_that_the_market_was_made_with(sessions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def spied(*arguments):
        made.append(wave_drift(*arguments))
        return made[-1]

    wave_drift = synthetic._wave_drift
    options = SyntheticOptions(snapshots=30_000, sessions=sessions, seed=5)
    monkeypatch.setattr(synthetic, "_wave_drift", spied)
    synthetic.make_market(options)
    monkeypatch.undo()
    drift = synthetic.known_drift(options)
    assert len(made) == sessions and np.array_equal(np.concatenate(made), drift)
    assert 0.2 < np.mean(drift == 0.0) < 0.8


@pytest.mark.parametrize("other", [{"preset": "noise"}, {"preset": "realistic"}, {"edge": 0.0}])
def test_a_market_without_waves_has_no_drift(other: dict) -> None:
    assert not synthetic.known_drift(SyntheticOptions(snapshots=5_000, **other)).any()
