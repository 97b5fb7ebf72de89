"""Databento files: each trap that readers fall into has a test of its own."""

from __future__ import annotations

import databento_dbn as dbn
import numpy as np
import pytest
import zstandard
from files import T0, UNDEFINED, header, levels, load, market, message, same_records, write_dbn

from foxhunt_cli.data.databento import MBP10
from foxhunt_cli.data.errors import DataError, DataFileError
from foxhunt_cli.data.write import write_data


def quotes(n: int = 40, **more) -> list:
    """A quiet book, one record a second."""
    return [message(k, **more) for k in range(n)]


def test_plain_file(tmp_path):
    data = load(write_dbn(tmp_path / "es.dbn", [message(0), message(1, 4800.25, 4800.5)]))
    assert data.instrument.symbol == "ES"
    assert data.reference_ticks == 19_200
    assert data.records["bid_px"][:, 0].tolist() == [0, 1] and data.records["ask_px"][:, 0].tolist() == [1, 2]
    assert data.records["bid_px"][0].tolist() == [-k for k in range(10)]
    assert data.records["bid_sz"][0].tolist() == [5 + k for k in range(10)]
    assert data.records["ask_sz"][0].tolist() == [5 + 2 * k for k in range(10)]
    assert data.records["ts_ns"].tolist() == [T0, T0 + 10**9]
    assert data.records["prev_ts_ns"].tolist() == [T0, T0]
    assert data.records["prev_mid"].tolist() == [0.5, 0.5]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_versions(tmp_path, version):
    assert len(load(write_dbn(tmp_path / "es.dbn", quotes(), version=version))) == 40


@pytest.mark.parametrize("kind", ["dbn", "dbn.zst"])
def test_write_and_read_gives_the_same_bytes(tmp_path, kind):
    original = market(3000)
    write_data(tmp_path / f"es.{kind}", original, "dbn")
    assert same_records(load(tmp_path / f"es.{kind}"), original)


def test_trades_fills_and_none_never_change_the_book(tmp_path):
    for action in "TFN":
        moved = message(1, 4900.0, 4900.25, action=action, side="B", size=7)
        data = load(write_dbn(tmp_path / f"{action}.dbn", [message(0), moved, message(2)]))
        assert data.records["bid_px"][:, 0].tolist() == [0, 0]
        assert data.records["trade_signed_vol"].tolist() == ([0, 7] if action == "T" else [0, 0])
        assert data.records["trade_count"].tolist() == ([0, 1] if action == "T" else [0, 0])


def test_trades_gather_by_aggressor_until_the_next_snapshot(tmp_path):
    trades = [
        message(1, action="T", side="B", size=5),
        message(1, action="T", side="A", size=2),
        message(1, action="T", side="N", size=9),
    ]
    data = load(write_dbn(tmp_path / "es.dbn", [message(0), *trades, message(1), message(2)]))
    assert data.records["trade_signed_vol"].tolist() == [0, 3, 0]
    assert data.records["trade_count"].tolist() == [0, 3, 0]


def test_clear_is_dropped_and_counted(tmp_path):
    cleared = message(1, action="R", book=[dbn.BidAskPair()] * 10)
    data = load(write_dbn(tmp_path / "es.dbn", [*quotes(30), cleared, message(31)]))
    assert len(data) == 31 and data.report.count("book cleared") == 1


def test_undefined_level_stays_absent(tmp_path):
    book = levels(4800.0, 4800.25, depth=7)
    data = load(write_dbn(tmp_path / "es.dbn", [message(0, book=book), message(1)]))
    assert data.records["bid_sz"][0, 7:].tolist() == [0, 0, 0]
    assert data.records["ask_sz"][0, 7:].tolist() == [0, 0, 0]
    assert data.records["bid_px"][0, 7:].tolist() == [-6, -6, -6], "an absent level repeats the worst present price"
    assert data.records["ask_px"][0, 7:].tolist() == [7, 7, 7]


def test_undefined_top_is_dropped(tmp_path):
    one_sided = levels(4800.0, 4800.25)
    one_sided[0] = dbn.BidAskPair(UNDEFINED, one_sided[0].ask_px, 0, 5)
    data = load(write_dbn(tmp_path / "es.dbn", [*quotes(30), message(30, book=one_sided)]))
    assert len(data) == 30 and data.report.count("level 0 missing") == 1


def test_ts_out_records_of_376_bytes(tmp_path):
    records = [message(k, ts_out=T0 + 5) for k in range(30)]
    assert len(bytes(records[0])) == 376
    data = load(write_dbn(tmp_path / "es.dbn", records, ts_out=True))
    assert len(data) == 30 and (data.records["bid_px"][:, 0] == 0).all()


def test_order_is_that_of_ts_recv(tmp_path):
    shuffled = [message(0), message(2, 4800.5, 4800.75), message(1, 4800.25, 4800.5), message(3, 4800.75, 4801.0)]
    data = load(write_dbn(tmp_path / "es.dbn", shuffled))
    assert data.records["bid_px"][:, 0].tolist() == [0, 1, 2, 3]
    assert any("sorted" in w for w in data.report.warnings)


def test_flagged_books_are_masked_and_counted(tmp_path):
    flagged = [message(40, flags=dbn.F_SNAPSHOT), message(41, flags=dbn.F_MAYBE_BAD_BOOK)]
    data = load(write_dbn(tmp_path / "es.dbn", [*quotes(40), *flagged, message(42)]))
    assert len(data) == 41
    assert data.report.count("book snapshot flag") == 1 and data.report.count("book may be bad flag") == 1


def test_undefined_time_stamp_is_dropped(tmp_path):
    data = load(write_dbn(tmp_path / "es.dbn", [*quotes(30), message(30, ts_recv=2**64 - 1), message(31)]))
    assert len(data) == 31 and data.report.count("no time stamp") == 1


def test_wrong_schema_is_one_clear_error(tmp_path):
    with pytest.raises(DataError, match="expected schema mbp-10.*got mbp-1;"):
        load(write_dbn(tmp_path / "es.dbn", [], schema=dbn.Schema.MBP_1))


def test_several_instruments_ask_for_a_choice(tmp_path):
    both = [m for k in range(30) for m in (message(k), message(k, 1.0, 1.25, instrument_id=2))]
    path = write_dbn(tmp_path / "es.dbn", both, symbols={"ESH4": [1], "ESH4-ESM4": [2]})
    with pytest.raises(DataError, match="(?s)--symbol or --instrument-id.*ESH4 .*id 1 .*30 records.*ESH4-ESM4.*id 2"):
        load(path)
    by_symbol, by_id = load(path, symbol="ESH4"), load(path, instrument_id=1)
    assert len(by_symbol) == 30 and same_records(by_symbol, by_id)
    with pytest.raises(DataError, match="symbol 'NQH4' is not in the file; it names ESH4, ESH4-ESM4"):
        load(path, symbol="NQH4")
    with pytest.raises(DataError, match="cannot tell the instrument"):
        load(path, symbol="ESH4-ESM4")


def test_an_absent_instrument_id_is_an_error(tmp_path):
    with pytest.raises(DataError, match=r"instrument id 77 is not in the file; it names 1 \(ESH4\)"):
        load(write_dbn(tmp_path / "es.dbn", quotes()), instrument_id=77)


def test_a_roll_of_the_contract_is_a_session_break(tmp_path):
    rolled = [message(k) for k in range(5)] + [message(5 + k, 4850.0, 4850.25, instrument_id=2) for k in range(5)]
    data = load(write_dbn(tmp_path / "es.dbn", rolled, symbols={"ES.c.0": [1, 2]}))
    assert data.session_start.tolist() == [0, 5]
    assert data.records["prev_mid"][5] == 200.5, "nothing is carried over the roll"
    assert data.report.count("session break: another contract") == 1


def test_off_grid_price_names_record_field_and_remedy(tmp_path):
    path = write_dbn(tmp_path / "es.dbn", [message(0), message(1, 4800.13, 4800.38)])
    with pytest.raises(DataError) as caught:
        load(path)
    assert (
        str(caught.value) == "es.dbn record 1: bid_px_00 4800.13 is not on ES's 0.25 tick grid; "
        "pass --tick-size 0.01 or the right --instrument"
    )
    data = load(path, tick_size="0.01")
    assert data.reference_ticks + data.records["bid_px"][1, 0] == 480_013


@pytest.mark.parametrize(
    "symbol, tick, bid", [("ZNH4", 1 / 64, 110 + 31 / 64), ("ZTH4", 1 / 256, 102 + 5 / 256), ("SR3H5", 0.0025, 95.3475)]
)
def test_fractional_ticks_are_exact(tmp_path, symbol, tick, bid):
    books = [message(k, book=levels(bid + k * tick, bid + (k + 1) * tick, tick=tick)) for k in range(3)]
    data = load(write_dbn(tmp_path / "f.dbn", books, symbols={symbol: [1]}))
    assert data.records["bid_px"][:, 0].tolist() == [0, 1, 2]
    assert data.reference_ticks == round(bid / tick)


def test_negative_prices_are_prices(tmp_path):
    books = [message(k, book=levels(-37.63 + 0.01 * k, -37.62 + 0.01 * k, tick=0.01)) for k in range(3)]
    data = load(write_dbn(tmp_path / "cl.dbn", books, symbols={"CLK0": [1]}))
    assert data.reference_ticks == -3763 and data.records["bid_px"][:, 0].tolist() == [0, 1, 2]


@pytest.mark.parametrize("cut", [1, 367])
def test_truncated_file_yields_its_whole_records(tmp_path, cut):
    path = write_dbn(tmp_path / "es.dbn", quotes())
    path.write_bytes(path.read_bytes()[:-cut])
    data = load(path)
    assert len(data) == 39
    assert data.report.warnings == ["es.dbn: the file ends early, inside record 39; its 39 whole records are used"]


def test_truncated_zstd_yields_its_whole_records(tmp_path):
    packed = zstandard.ZstdCompressor().compress(header() + b"".join(bytes(m) for m in quotes(4000)))
    path = tmp_path / "es.dbn.zst"
    path.write_bytes(packed[: len(packed) * 2 // 3])
    try:
        data = load(path)
    except DataError as error:  # a single zstd block: nothing could be decompressed
        assert "es.dbn.zst" in str(error)
    else:
        assert 0 < len(data) < 4000 and "ends early" in data.report.warnings[0]


@pytest.mark.parametrize("frames", ["one", "two"])
def test_a_zstd_file_cut_anywhere_says_that_it_ends_early(tmp_path, frames):
    """Also where the cut lies inside the first compressed block, before anything could be decompressed."""
    records = b"".join(bytes(m) for m in quotes(40))
    parts = [header() + records] if frames == "one" else [header(), records]
    packed = [zstandard.ZstdCompressor().compress(part) for part in parts]
    whole, path = b"".join(packed), tmp_path / "es.dbn.zst"
    for size in range(4, len(whole)):
        if size == len(packed[0]):
            continue  # a whole file without a record
        path.write_bytes(whole[:size])
        try:
            data = load(path)
        except DataError as error:
            told = str(error)
        else:
            told = "; ".join(data.report.warnings)
        assert "ends early" in told or "ends inside its header" in told or "whole records" in told, (size, told)


def test_header_and_records_in_frames_of_their_own(tmp_path):
    parts = [header(), *(bytes(m) for m in quotes())]
    path = tmp_path / "es.dbn.zst"
    path.write_bytes(b"".join(zstandard.ZstdCompressor().compress(p) for p in parts))
    assert len(load(path)) == 40


def test_mixed_record_types_go_through_the_decoder(tmp_path):
    system = bytes(dbn.SystemMsg(ts_event=T0, msg="heartbeat"))
    records = [bytes(m) for m in quotes()]
    path = write_dbn(tmp_path / "live.dbn", [*records[:10], system, *records[10:], system], schema=None)
    data = load(path)
    assert len(data) == 40
    assert any("2 records of other types" in w for w in data.report.warnings)


def test_empty_and_headless_files(tmp_path):
    empty = tmp_path / "es.dbn"
    empty.write_bytes(b"")
    with pytest.raises(DataError, match="es.dbn: the file is empty"):
        load(empty)
    with pytest.raises(DataError, match="no usable snapshot"):
        load(write_dbn(tmp_path / "none.dbn", []))
    (tmp_path / "cut.dbn").write_bytes(header()[:50])
    with pytest.raises(DataError, match="ends inside its header"):
        load(tmp_path / "cut.dbn")
    (tmp_path / "noise.dbn").write_bytes(b"hello, world")
    with pytest.raises(DataError, match="format not recognised"):
        load(tmp_path / "noise.dbn")


def test_one_record(tmp_path):
    data = load(write_dbn(tmp_path / "es.dbn", [message(0)]))
    assert len(data) == 1 and data.session_start.tolist() == [0] and np.isfinite(data.records["regime"]).all()


def test_files_that_cannot_be_opened(tmp_path):
    with pytest.raises(DataFileError, match="no such file"):
        load(tmp_path / "absent.dbn")
    with pytest.raises(DataFileError, match="is a folder"):
        load(tmp_path)


def test_newer_version_is_refused(tmp_path):
    path = write_dbn(tmp_path / "es.dbn", quotes())
    path.write_bytes(b"DBN\x09" + path.read_bytes()[4:])
    with pytest.raises(DataError, match="DBN version 9"):
        load(path)


def test_several_files_are_read_in_the_order_of_time(tmp_path):
    early = write_dbn(tmp_path / "b.dbn", [message(k) for k in range(5)])
    late = write_dbn(tmp_path / "a.dbn", [message(10_000 + k, 4801.0, 4801.25) for k in range(5)])
    data = load((late, early))
    assert len(data) == 10 and data.session_start.tolist() == [0, 5]
    other = write_dbn(tmp_path / "c.dbn", quotes(), symbols={"NQH4": [1]})
    with pytest.raises(DataError, match="several instruments"):
        load((early, other))


def test_vendor_dtype_has_the_size_the_reader_assumes():
    assert MBP10.itemsize == 368
