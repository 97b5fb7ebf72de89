"""LOBSTER pairs."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from files import load, same_records

from foxhunt_cli.data.errors import DataError

STEM = "AAPL_2012-06-21_34200000_57600000_{}_10.csv"


def write_pair(folder, rows, levels: int = 10):
    """rows: (message fields, bid ticks of 0.01, absent levels from)."""
    messages, books = [], []
    for fields, bid, absent in rows:
        messages.append(",".join(str(f) for f in fields))
        line = []
        for k in range(levels):
            line += (
                [(bid + 1 + k) * 100, 200 + k, (bid - k) * 100, 100 + k]
                if k < absent
                else [9999999999, 0, -9999999999, 0]
            )
        books.append(",".join(str(v) for v in line))
    (folder / STEM.format("message")).write_text("\n".join(messages) + "\n")
    (folder / STEM.format("orderbook")).write_text("\n".join(books) + "\n")
    return folder / STEM.format("message"), folder / STEM.format("orderbook")


def plain(n: int = 40):
    return [((f"{34200 + k}.004241176", 1, 7, 100, 5850000, 1), 58500, 10) for k in range(n)]


def test_either_file_names_the_pair(tmp_path):
    message, book = write_pair(tmp_path, plain())
    data = load(message)
    assert same_records(data, load(book)) and same_records(data, load((message, book)))
    assert len(data) == 40 and data.instrument.symbol == "EQUITY"


def test_times_are_new_york_and_exact_to_the_nanosecond(tmp_path):
    data = load(write_pair(tmp_path, plain())[0])
    noon = int(datetime(2012, 6, 21, 13, 30, tzinfo=UTC).timestamp())
    assert data.records["ts_ns"][3] == (noon + 3) * 10**9 + 4_241_176


def test_prices_sizes_and_absent_levels(tmp_path):
    rows = plain()
    rows[1] = (rows[1][0], 58507, 3)
    records = load(write_pair(tmp_path, rows)[0]).records
    assert records["bid_px"][:2, 0].tolist() == [0, 7] and records["ask_px"][:2, 0].tolist() == [1, 8]
    assert records["bid_sz"][0, 0] == 1.0 and records["ask_sz"][0, 1] == pytest.approx(2.01), "100 shares a lot"
    assert (
        records["bid_px"][1].tolist() == [7, 6, 5, 5, 5, 5, 5, 5, 5, 5] and records["ask_sz"][1, 3:].tolist() == [0] * 7
    )


def test_executions_are_trades_against_the_resting_side(tmp_path):
    rows = plain()
    rows[2] = (("34202.1", 4, 7, 300, 5850100, -1), 58500, 10)  # a resting sell order is hit: a buy
    rows[3] = (("34203.1", 5, 0, 100, 5850000, 1), 58500, 10)
    rows[4] = (("34204.1", 3, 7, 900, 5850000, 1), 58500, 10)
    records = load(write_pair(tmp_path, rows)[0]).records
    assert records["trade_signed_vol"][1:6].tolist() == [0, 3, -1, 0, 0] and records["trade_count"][1:6].tolist() == [
        0,
        1,
        1,
        0,
        0,
    ]


def test_halts_are_dropped_and_counted(tmp_path):
    rows = plain()
    rows[20] = (("34220.1", 7, 0, 0, -1, -1), 58500, 10)
    data = load(write_pair(tmp_path, rows)[0])
    assert len(data) == 39 and data.report.count("trading halt") == 1


def test_five_levels(tmp_path):
    records = load(write_pair(tmp_path, plain(), levels=5)[0]).records
    assert (records["bid_sz"][:, 5:] == 0).all() and (records["bid_sz"][:, :5] > 0).all()


def test_missing_partner_and_uneven_pair(tmp_path):
    message, book = write_pair(tmp_path, plain())
    book.write_text("\n".join(book.read_text().splitlines()[:-5]) + "\n")
    data = load(message)
    assert len(data) == 35 and "more lines than its partner" in data.report.warnings[0]
    book.unlink()
    with pytest.raises(DataError, match="partner .*orderbook.* is not beside it"):
        load(message)


def test_damaged_line_is_an_error_that_names_the_file(tmp_path):
    message, book = write_pair(tmp_path, plain())
    book.write_text(book.read_text().replace("5850100", "58x0100", 1))
    with pytest.raises(DataError, match="orderbook"):
        load(message)
