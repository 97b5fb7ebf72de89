"""Real captures, where FOXHUNT_REAL_DATA names the folder that holds them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from files import load

from foxhunt_cli.data.errors import DataError
from foxhunt_cli.data.statistics import measure

FOLDER = os.environ.get("FOXHUNT_REAL_DATA")
pytestmark = pytest.mark.skipif(not FOLDER, reason="FOXHUNT_REAL_DATA is not set")


def one(pattern: str) -> Path:
    found = sorted(Path(FOLDER).glob(pattern))
    if not found:
        pytest.skip(f"no {pattern} in FOXHUNT_REAL_DATA")
    return found[0]


def test_es_capture_with_crossed_rows_and_a_gap():
    data = load(one("*ESH4*.mbp-10.dbn.zst"))
    report = data.report
    assert report.rows == 40_037 and data.instrument.symbol == "ES"
    assert report.count("crossed book") + report.count("crossed book shown by a trade") == 144
    assert report.book_rows == 37_064 and report.dropped == 143 and len(data) == 36_921
    assert data.session_start.tolist() == [0, 3]
    assert next(f for f in report.findings if f.reason.startswith("pause")).example.startswith("1,888 s")
    assert data.records["trade_count"].sum() == 2973
    assert (data.records["bid_px"][:, 0] < data.records["ask_px"][:, 0]).all()


def test_es_capture_has_its_statistics():
    values = {s.name: s.value for s in measure(load(one("*ESH4*.mbp-10.dbn.zst")))}
    assert values["imbalance autocorrelation, 1 s"] == pytest.approx(0.77, abs=0.02)
    assert values["imbalance autocorrelation, 10 s"] == pytest.approx(0.28, abs=0.04)
    assert values["share of snapshots with a trade"] == pytest.approx(0.075, abs=0.005)
    assert values["reversal probability"] == pytest.approx(0.59, abs=0.02)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_vendor_samples(version):
    data = load(one(f"test_data.mbp-10.v{version}.dbn.zst"))
    assert len(data) == 2 and data.instrument.symbol == "ES"
    assert data.reference_ticks == 14_881 and data.records["bid_sz"][0].tolist() == [
        24,
        31,
        32,
        39,
        50,
        42,
        44,
        64,
        53,
        67,
    ]


def test_wrong_schema():
    with pytest.raises(DataError, match="expected schema mbp-10.*got mbp-1"):
        load(one("*mbp-1_*.dbn.zst"))


def test_lobster_sample():
    data = load(one("LOBSTER_*_message_10*.csv"))
    assert len(data) == 999 and data.instrument.symbol == "EQUITY" and data.report.dropped == 0
    assert data.records["ts_ns"][0] % 10**9 == 4_241_176 and data.records["trade_count"].sum() == 159
    assert (np.diff(data.records["bid_px"], axis=1) < 0).all()
