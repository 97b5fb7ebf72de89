"""CSV and Parquet by column name: Databento's exports and plain tables."""

from __future__ import annotations

import numpy as np
import pytest
from files import T0, UNDEFINED, load, market, message, same_records, write_dbn

from foxhunt_cli.data import csv_columns
from foxhunt_cli.data.databento import MBP10
from foxhunt_cli.data.errors import DataError
from foxhunt_cli.data.write import dbn_records, raw_block, write_data

FIELDS = [n for n in MBP10.names if n not in ("length",)]


def export(path, data, pretty: bool, order=None, symbol: str = "ESH4"):
    """Databento's CSV of a market: `pretty` = decimals and ISO times, else integers."""
    records = dbn_records(raw_block(data))
    names = order or ["ts_recv", *[n for n in FIELDS if n != "ts_recv"], "symbol"]
    lines = [",".join(names)]
    for r in records:
        line = []
        for n in names:
            if n == "symbol":
                line.append(symbol)
            elif n in ("action", "side"):
                line.append(r[n].decode())
            elif pretty and n.startswith("ts_") and n != "ts_in_delta":
                line.append(f"{np.datetime64(int(r[n]), 'ns')}Z")
            elif pretty and ("_px_" in n or n == "price"):
                line.append("" if r[n] == UNDEFINED else f"{r[n] / 1e9:.9f}")
            else:
                line.append(str(r[n]))
        lines.append(",".join(line))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("arrow", [True, False])
@pytest.mark.parametrize("pretty", [True, False])
def test_databento_csv_gives_the_records_of_the_binary_file(tmp_path, monkeypatch, pretty, arrow):
    if arrow:
        pytest.importorskip("pyarrow")
    monkeypatch.setattr(csv_columns.importlib.util, "find_spec", lambda name: object() if arrow else None)
    original = market(500)
    data = load(export(tmp_path / "es.csv", original, pretty))
    assert same_records(data, original) and data.instrument.symbol == "ES"


def test_columns_may_come_in_any_order(tmp_path):
    original = market(200)
    names = list(reversed(["ts_recv", *[n for n in FIELDS if n != "ts_recv"], "symbol"]))
    assert same_records(load(export(tmp_path / "es.csv", original, True, names)), original)


def test_absent_levels_in_csv(tmp_path):
    header = "ts_ns,bid_px_00,bid_sz_00,ask_px_00,ask_sz_00,bid_px_01,bid_sz_01,ask_px_01,ask_sz_01"
    lines = [
        f"{T0 + k},100.00,5,100.25,6,{'' if k == 1 else '99.75'},{'' if k == 1 else '7'},100.50,8" for k in range(3)
    ]
    path = tmp_path / "plain.csv"
    path.write_text("\n".join([header, *lines]) + "\n")
    records = load(path, instrument="ES").records
    assert records["bid_px"][:, 1].tolist() == [-1, 0, -1] and records["bid_sz"][:, 1].tolist() == [7, 0, 7]
    assert (records["ask_sz"][:, 2:] == 0).all()


def test_whole_number_prices_are_currency_not_fixed_point(tmp_path):
    path = tmp_path / "plain.csv"
    path.write_text(
        "ts_ns,bid_px_00,bid_sz_00,ask_px_00,ask_sz_00\n"
        + "".join(f"{T0 + k},60000,1.5,60001,0.25\n" for k in range(3))
    )
    data = load(path, instrument="CRYPTO")
    assert data.reference_ticks == 600_005 and data.records["bid_sz"][0, 0] == 1.5


def test_trade_columns(tmp_path):
    path = tmp_path / "plain.csv"
    path.write_text(
        "trade_count,ts_ns,bid_px_00,bid_sz_00,ask_px_00,ask_sz_00,trade_signed_vol\n"
        + "".join(f"{k},{T0 + k},100,1,100.25,1,{-k}\n" for k in range(3))
    )
    records = load(path, instrument="ES").records
    assert records["trade_count"].tolist() == [0, 1, 2] and records["trade_signed_vol"].tolist() == [0, -1, -2]


def test_parquet_round_trip(tmp_path):
    pytest.importorskip("pyarrow")
    original = market(2000, sessions=2)
    write_data(tmp_path / "es.parquet", original, "parquet")
    assert same_records(load(tmp_path / "es.parquet"), original)


@pytest.mark.parametrize("fixed", [True, False])
def test_databento_parquet(tmp_path, fixed):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    original = market(300)
    records = dbn_records(raw_block(original))
    columns = {}
    for n in FIELDS:
        if n in ("action", "side"):
            columns[n] = pa.array([v.decode() for v in records[n].tolist()])
        elif n in ("ts_recv", "ts_event"):
            columns[n] = pa.array(records[n].astype("datetime64[ns]"), pa.timestamp("ns", "UTC"))
        elif "_px_" in n and not fixed:
            columns[n] = pa.array(np.where(records[n] == UNDEFINED, np.nan, records[n] / 1e9))
        else:
            columns[n] = pa.array(records[n])
    columns["symbol"] = pa.array(["ESH4"] * len(records))
    parquet.write_table(pa.table(columns), tmp_path / "es.parquet")
    assert same_records(load(tmp_path / "es.parquet"), original)


def test_missing_columns_are_named(tmp_path):
    path = tmp_path / "trades.csv"
    path.write_text("ts_ns,price,size\n1,2,3\n")
    with pytest.raises(DataError, match="expected a CSV header with bid_px_00"):
        load(path)
    path.write_text("bid_px_00,bid_sz_00,ask_px_00,ask_sz_00\n1,2,3,4\n")
    with pytest.raises(DataError, match="no time column; expected one of ts_recv"):
        load(path)
    path.write_text("ts_ns,bid_px_00,bid_sz_00,ask_px_00\n1,2,3,4\n")
    with pytest.raises(DataError, match="ask_sz_00"):
        load(path)


def test_unknown_instrument_lists_the_presets(tmp_path):
    path = export(tmp_path / "es.csv", market(50), True, symbol="AAPL")
    with pytest.raises(DataError, match="(?s)--instrument.*ES .*tick 0.25.*ZN .*tick 1/64"):
        load(path)
    with pytest.raises(DataError, match="'XX' is not a preset; pass one of ES, MES"):
        load(path, instrument="XX")
    custom = load(path, tick_size="0.05", tick_value=2.5, fee=1.0)
    assert custom.instrument.tick_value_usd == 2.5


def test_several_symbols_ask_for_a_choice(tmp_path):
    text = export(tmp_path / "es.csv", market(50), True).read_text().splitlines()
    (tmp_path / "two.csv").write_text("\n".join([*text, *[line.replace("ESH4", "ESM4") for line in text[1:]]]) + "\n")
    with pytest.raises(DataError, match="several instruments.*--symbol"):
        load(tmp_path / "two.csv")
    assert len(load(tmp_path / "two.csv", symbol="ESH4")) == 50


def test_csv_and_binary_agree_on_trades_before_the_book(tmp_path):
    rows = [message(0), message(1, 4800.5, 4800.75, action="T", side="B", size=4), message(1), message(2)]
    data = load(write_dbn(tmp_path / "es.dbn", rows))
    assert same_records(load(export(tmp_path / "es.csv", data, False)), data)


@pytest.mark.parametrize("arrow", [True, False])
def test_ragged_line_is_an_error(tmp_path, monkeypatch, arrow):
    monkeypatch.setattr(csv_columns.importlib.util, "find_spec", lambda name: object() if arrow else None)
    path = export(tmp_path / "es.csv", market(50), True)
    lines = path.read_text().splitlines()
    lines[20] = lines[20][:30]
    path.write_text("\n".join(lines))
    with pytest.raises(DataError, match="es.csv"):
        load(path)


@pytest.mark.parametrize("arrow", [True, False])
def test_quoted_fields_byte_order_mark_and_windows_line_ends(tmp_path, monkeypatch, arrow):
    monkeypatch.setattr(csv_columns.importlib.util, "find_spec", lambda name: object() if arrow else None)
    path = export(tmp_path / "es.csv", market(50), True)
    plain = load(path)
    quoted = "\r\n".join(
        ",".join(f'"{f}"' if f else "" for f in line.split(",")) for line in path.read_text().splitlines()
    )
    path.write_bytes(b"\xef\xbb\xbf" + quoted.encode() + b"\r\n")
    assert same_records(load(path), plain)


HEAD = "ts_ns,bid_px_00,bid_sz_00,ask_px_00,ask_sz_00"


def rows(times, head: str = HEAD, sep: str = ",") -> str:
    """A plain table with these times, one tick wide."""
    lines = [sep.join((str(t), str(4800 + i % 2), "5", f"{4800.25 + i % 2}", "6")) for i, t in enumerate(times)]
    return "\n".join([head.replace(",", sep), *lines]) + "\n"


@pytest.mark.parametrize("unit", [1, 1_000, 1_000_000])
def test_times_in_another_unit_than_ns_are_refused(tmp_path, unit):
    path = tmp_path / "seconds.csv"
    path.write_text(rows(T0 // 1_000_000_000 * unit + i for i in range(50)))
    with pytest.raises(
        DataError, match=r"seconds.csv records 0 to 49: expected ns since 1970.*multiply seconds by 1e9"
    ):
        load(path, instrument="ES")


def test_a_column_twice_and_other_separators_are_named(tmp_path):
    path = tmp_path / "odd.csv"
    path.write_text(rows(range(T0, T0 + 50), HEAD.replace("ask_sz_00", "bid_px_00")))
    with pytest.raises(DataError, match="column bid_px_00 stands twice in the header; leave one"):
        load(path, instrument="ES")
    path.write_text(rows(range(T0, T0 + 50), sep=";"))
    with pytest.raises(DataError, match="put commas between the fields"):
        load(path, instrument="ES")


def test_a_table_that_runs_backwards_is_to_be_sorted(tmp_path):
    path = tmp_path / "late.csv"
    path.write_text(rows(range(T0 + 50, T0, -1)))
    with pytest.raises(DataError, match="49 of 50 book records .* sort the file by time"):
        load(path, instrument="ES")
