"""Derived fields: against a plain recurrence, and causal."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import numpy as np
import pytest
from files import market
from hypothesis import given, settings
from hypothesis import strategies as st

from foxhunt_cli.config.instruments import presets
from foxhunt_cli.data.record import mid_ticks
from foxhunt_cli.data.regime import decayed_sum, fill_previous, fill_regime, session_progress


@given(
    st.lists(st.tuples(st.floats(0, 1e4), st.floats(0, 100)), min_size=1, max_size=60),
    st.sampled_from([0.5, 10.0, 600.0]),
)
@settings(max_examples=200, deadline=None)
def test_decayed_sum_is_the_recurrence(rows, tau):
    t, x = np.cumsum([r[0] for r in rows]), np.array([r[1] for r in rows])
    y = expected = 0.0
    out = decayed_sum(x, t, tau)
    for i in range(len(x)):
        y = x[i] + (math.exp(-(t[i] - t[i - 1]) / tau) * y if i else 0.0)
        expected = y
        assert out[i] == pytest.approx(expected, rel=1e-9, abs=1e-300)


def reference_regime(records, instrument) -> np.ndarray:
    """The definition, one record at a time, for one session."""
    mid, ts = mid_ticks(records).astype(float), records["ts_ns"].astype(np.int64)
    fast = slow = trades = spread = 0.0
    out = []
    for i in range(len(records)):
        dt = (ts[i] - ts[i - 1]) * 1e-9 if i else 0.0
        elapsed = max((ts[i] - ts[0]) * 1e-9, 1.0)
        move2 = (mid[i] - mid[i - 1]) ** 2 if i else 0.0
        fast, slow = fast * math.exp(-dt / 10) + move2, slow * math.exp(-dt / 600) + move2
        trades = trades * math.exp(-dt / 10) + float(records["trade_count"][i])
        before = records[i - 1 if i else 0]
        stood = float(before["ask_px"][0] - before["bid_px"][0])
        spread = stood if i == 0 else spread * math.exp(-dt / 10) + (1 - math.exp(-dt / 10)) * stood
        masses = [tau * (1 - math.exp(-elapsed / tau)) for tau in (10, 600)]
        vol = [math.sqrt(v / m) for v, m in zip((fast, slow), masses, strict=True)]
        ratio = math.log(max(vol[0], 1e-3) / max(vol[1], 1e-3))
        out.append([*vol, ratio, trades / masses[0], spread, session_progress(ts[i : i + 1], instrument)[0]])
    return np.array(out, np.float32)


def test_regime_is_its_definition_and_restarts_at_sessions():
    data = market(1200, preset="realistic", sessions=2)
    for a, b in zip(data.session_start, [*data.session_start[1:], len(data)], strict=True):
        expected = reference_regime(data.records[a:b], data.instrument)
        np.testing.assert_allclose(data.records["regime"][a:b], expected, rtol=2e-6, atol=1e-6)


def test_the_future_does_not_reach_back():
    data = market(3000)
    changed = data.records.copy()
    changed["ask_px"][2000:] += 5
    changed["trade_count"][2000:] = 9
    fill_previous(changed, data.session_start)
    fill_regime(changed, data.session_start, data.instrument)
    assert changed[:2000].tobytes() == data.records[:2000].tobytes()
    head = data.records[:1000].copy()
    fill_previous(head, data.session_start)
    fill_regime(head, data.session_start, data.instrument)
    assert head.tobytes() == data.records[:1000].tobytes()


@pytest.mark.parametrize(
    "symbol, when, progress",
    [
        ("ES", "2024-01-02T23:00", 0.0),
        ("ES", "2024-01-03T10:30", 0.5),
        ("ES", "2024-01-03T22:30", 1.0),
        ("ES", "2024-07-02T22:00", 0.0),
        ("EQUITY", "2024-07-02T13:30", 0.0),
        ("EQUITY", "2024-01-02T17:45", 0.5),
        ("CRYPTO", "2024-01-02T06:00", 0.25),
    ],
)
def test_session_progress_follows_the_local_clock(symbol, when, progress):
    ts = int(datetime.fromisoformat(when).replace(tzinfo=UTC).timestamp()) * 10**9
    assert session_progress(np.array([ts]), presets()[symbol])[0] == pytest.approx(progress)
