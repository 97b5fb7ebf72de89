"""Instruments: exact tick sizes, presets, inference from symbols."""

from __future__ import annotations

from fractions import Fraction

import pytest
from pydantic import ValidationError

from foxhunt_cli.config.instruments import Instrument, format_size, infer_instrument, presets, symbol_root


def test_presets_have_the_exchange_figures():
    figures = {
        "ES": ("1/4", 12.50),
        "MES": ("1/4", 1.25),
        "NQ": ("1/4", 5.0),
        "MNQ": ("1/4", 0.5),
        "CL": ("1/100", 10),
        "GC": ("1/10", 10),
        "ZN": ("1/64", 15.625),
        "ZT": ("1/256", 7.8125),
        "SR3": ("1/400", 6.25),
        "EQUITY": ("1/100", 1.0),
    }
    table = presets()
    assert set(figures) | {"CRYPTO"} == set(table)
    for symbol, (tick, value) in figures.items():
        assert table[symbol].tick_size == Fraction(tick)
        assert table[symbol].tick_value_usd == value
    assert table["ES"].fee_usd == 2.05
    assert table["EQUITY"].size_per_lot == 100
    assert table["CRYPTO"].tick_value_usd >= 0.1


def test_tick_sizes_are_whole_in_nano_units():
    assert presets()["ZN"].tick_nano == 15_625_000
    assert presets()["ZT"].tick_nano == 3_906_250
    assert presets()["SR3"].tick_nano == 2_500_000


@pytest.mark.parametrize(
    "text, exact", [("0.25", "1/4"), (0.1, "1/10"), ("1/64", "1/64"), (1, "1"), ("1e-5", "1/100000")]
)
def test_tick_size_is_read_exactly(text, exact):
    assert Instrument(symbol="X", tick_size=text, tick_value_usd=1, fee_usd=0).tick_size == Fraction(exact)


@pytest.mark.parametrize("bad", [0, -1, "abc", "1/3", "1/0", "0.0000000001", True, None])
def test_unusable_tick_sizes_are_refused(bad):
    with pytest.raises(ValidationError):
        Instrument(symbol="X", tick_size=bad, tick_value_usd=1, fee_usd=0)


def test_unknown_time_zone_is_refused_with_a_remedy():
    with pytest.raises(ValidationError, match="America/Chicago"):
        Instrument(symbol="X", tick_size=1, tick_value_usd=1, fee_usd=0, time_zone="Mars/Olympus")


@pytest.mark.parametrize(
    "symbol, root",
    [
        ("ESH4", "ES"),
        ("ESZ24", "ES"),
        ("MESU4", "MES"),
        ("ZNM4", "ZN"),
        ("SR3H5", "SR3"),
        ("ES.c.0", "ES"),
        ("ES.FUT", "ES"),
        ("ESH4-ESM4", None),
        ("AAPL", None),
        ("", None),
    ],
)
def test_symbol_roots(symbol, root):
    assert symbol_root(symbol) == root


def test_inference():
    assert infer_instrument("ESH4") == presets()["ES"]
    assert infer_instrument("MNQZ3").symbol == "MNQ"
    assert infer_instrument("6EH4") is None


def test_json_round_trip_keeps_the_fraction():
    for instrument in presets().values():
        assert Instrument.model_validate_json(instrument.model_dump_json()) == instrument


def test_session_length():
    assert presets()["ES"].session_seconds == 23 * 3600
    assert presets()["EQUITY"].session_seconds == 6.5 * 3600
    assert presets()["CRYPTO"].session_seconds == 24 * 3600


def test_sizes_for_people():
    assert format_size(Fraction(1, 4)) == "0.25"
    assert format_size(Fraction(1, 64)) == "1/64"
    assert format_size(Fraction(1, 100)) == "0.01"
