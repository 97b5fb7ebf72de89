"""The cleaning stage: reasons, counts, sessions, stride and cuts."""

from __future__ import annotations

import numpy as np
import pytest
from files import SECOND, T0, UNDEFINED, load, market, message, same_records, write_dbn

from foxhunt_cli.config.instruments import presets
from foxhunt_cli.data.block import Block
from foxhunt_cli.data.clean import Cleaner, price_text
from foxhunt_cli.data.dirty import damage, to_block
from foxhunt_cli.data.errors import DataError
from foxhunt_cli.data.options import DataOptions
from foxhunt_cli.data.source import finish
from foxhunt_cli.data.synthetic import SyntheticOptions, make_market

ES = presets()["ES"]


def book(n: int = 100) -> Block:
    """n clean rows a second apart, one tick wide, a lot of 10 at every level."""
    depth = np.arange(10) * ES.tick_nano
    price = np.empty((n, 10, 2), np.int64)
    price[:, :, 0] = 4800 * 10**9 - depth
    price[:, :, 1] = 4800 * 10**9 + ES.tick_nano + depth
    return Block(
        row=np.arange(n),
        ts=T0 + np.arange(n) * SECOND,
        price=price,
        size=np.full((n, 10, 2), 10),
        has_book=np.ones(n, bool),
        trade_volume=np.zeros(n),
        trade_count=np.zeros(n, np.int64),
        masked=np.zeros(n, np.uint8),
    )


def clean(block: Block, **options):
    """(records, session starts, report)."""
    options = DataOptions(**options)
    cleaner = Cleaner(ES, options)
    cleaner.name = "rows"
    for a in range(0, len(block), 37):  # an odd block size, so that state is carried over edges
        names = ("row", "ts", "price", "size", "has_book", "trade_volume", "trade_count", "masked")
        cleaner.add(Block(**{name: getattr(block, name)[a : a + 37] for name in names}))
    records, starts, report = cleaner.result()
    return *finish(records, starts, ES, options), report


def test_clean_rows_pass_untouched():
    records, starts, report = clean(book())
    assert len(records) == 100 and starts.tolist() == [0] and not report.findings and report.dropped == 0


def test_a_book_crossed_for_long_is_masked_not_asserted():
    block = book(1000)
    block.price[300:330] = block.price[300:330, :, ::-1]
    records, starts, report = clean(block)
    assert report.count("crossed book") == 30 and len(records) == 970 and starts.tolist() == [0]
    assert report.findings[0].first_record == 300 and "bid 4800.25 ask 4800" in report.findings[0].example
    assert records["prev_ts_ns"][300] == T0 + 299 * SECOND


@pytest.mark.parametrize(
    "name, change",
    [
        ("locked book", lambda b: b.price.__setitem__((5, 0, 0), b.price[5, 0, 1])),
        ("level 0 missing", lambda b: b.price.__setitem__((5, 0, 1), UNDEFINED)),
        ("size not positive", lambda b: b.size.__setitem__((5, 0, 0), 0)),
        ("size not positive", lambda b: b.size.__setitem__((5, 0, 1), -3)),
        ("time going backwards", lambda b: b.ts.__setitem__(5, T0)),
        ("no time stamp", lambda b: b.ts.__setitem__(5, -1)),
        ("levels out of order", lambda b: b.price.__setitem__((5, 4, 0), b.price[5, 2, 0])),
        ("levels out of order", lambda b: b.price.__setitem__((5, 9, 1), b.price[5, 8, 1])),
        (
            "price more than 16,777,216 ticks from the first mid",
            lambda b: b.price.__setitem__((5, 9, 1), ES.tick_nano * (1 << 26)),
        ),
    ],
)
def test_each_reason_is_counted_once(name, change):
    block = book()
    change(block)
    records, _, report = clean(block)
    assert [(f.reason, f.count, f.dropped, f.first_record) for f in report.findings] == [(name, 1, True, 5)]
    assert len(records) == 99 and report.dropped_fraction == 0.01


def test_duplicate_times_are_kept_and_counted():
    block = book()
    block.ts[36:39] = block.ts[36]
    records, _, report = clean(block)
    assert len(records) == 100 and report.count("duplicate time stamp") == 2 and report.dropped == 0


def test_a_deep_level_without_size_is_absent():
    block = book()
    block.size[5, 3, 0] = 0
    records, _, report = clean(block)
    assert records["bid_px"][5, 2:5].tolist() == [-2, -2, -4] and records["bid_sz"][5, 2:5].tolist() == [10, 0, 10]
    assert report.count("level without size, taken as absent") == 1


@pytest.mark.parametrize("pause, breaks", [(1800, []), (1801, [50])])
def test_a_pause_over_the_session_gap_is_a_break(pause, breaks):
    block = book()
    block.ts[50:] += (pause - 1) * SECOND
    records, starts, report = clean(block)
    assert starts.tolist() == [0, *breaks]
    if breaks:
        assert "1,801 s" in next(f for f in report.findings if f.reason.startswith("pause")).example
        assert records["prev_mid"][50] == 0.5 and records["prev_ts_ns"][50] == records["ts_ns"][50]


def test_a_break_at_the_edge_of_a_block_is_seen():
    block = book()
    block.ts[37:] += 7200 * SECOND
    assert clean(block)[1].tolist() == [0, 37]


def test_a_long_unusable_stretch_is_a_break_too():
    block = book(4000)
    block.ts[:] = T0 + np.arange(4000) * SECOND
    block.price[100:2000] = block.price[100:2000, :, ::-1]
    records, starts, _ = clean(block, allow_dirty=True)
    assert starts.tolist() == [0, 100] and len(records) == 2100


def test_more_than_five_percent_dropped_is_an_error_with_the_table():
    block = book()
    block.price[10:16] = block.price[10:16, :, ::-1]
    with pytest.raises(DataError, match=r"(?s)6 of 100 book records \(6.0%\).*--allow-dirty.*crossed book"):
        clean(block)
    assert len(clean(block, allow_dirty=True)[0]) == 94


def test_nothing_usable_is_an_error_with_the_reason():
    block = book()
    block.price = block.price[:, :, ::-1].copy()
    with pytest.raises(DataError, match="(?s)no usable snapshot in 100 records.*crossed book"):
        clean(block, allow_dirty=True)


def test_trades_of_dropped_rows_go_to_the_next_snapshot():
    block = book()
    block.trade_volume[:] = np.arange(100)
    block.trade_count[:] = 1
    block.price[35:40] = block.price[35:40, :, ::-1]
    records, _, _ = clean(block, allow_dirty=True)
    assert records["trade_signed_vol"][35] == sum(range(35, 41)) and records["trade_count"][35] == 6
    assert records["trade_signed_vol"].sum() == sum(range(100))


def test_stride_keeps_the_last_book_and_sums_trades():
    block = book()
    block.trade_volume[:], block.trade_count[:] = np.arange(100), 1
    block.ts[50:] += 7200 * SECOND
    full, _, _ = clean(block)
    records, starts, _ = clean(block, stride=7)
    assert starts.tolist() == [0, 8] and len(records) == 16, "a session's rest is kept; groups do not cross the break"
    assert records["ts_ns"].tolist() == [int(full["ts_ns"][min(k * 7 + 6, 49) + s]) for s in (0, 50) for k in range(8)]
    assert records["trade_signed_vol"][:2].tolist() == [sum(range(7)), sum(range(7, 14))]
    assert records["trade_count"].sum() == 100 and records["trade_signed_vol"].sum() == sum(range(100))
    assert records["prev_ts_ns"][1] == records["ts_ns"][0] and records["prev_ts_ns"][8] == records["ts_ns"][8]


def test_span_and_cut():
    records, _, report = clean(book(), start="2024-01-02T12:53:40", end="2024-01-02T12:54:00+00:00")
    assert records["ts_ns"].tolist() == [T0 + k * SECOND for k in range(20, 40)] and report.rows == 20
    assert len(clean(book(), max_snapshots=13)[0]) == 13
    assert clean(book(), max_snapshots=13, stride=3)[0]["ts_ns"].tolist() == [
        T0 + (3 * k + 2) * SECOND for k in range(13)
    ]


def test_reading_stops_when_the_cut_is_met(tmp_path):
    path = write_dbn(tmp_path / "es.dbn", [message(k) for k in range(20_000)])
    assert load(path, max_snapshots=100).report.rows < 20_000


def test_a_clean_synthetic_market_is_reproduced_bit_for_bit():
    for preset in ("wavy", "realistic", "noise"):
        made = make_market(SyntheticOptions(preset=preset, snapshots=4000, sessions=2))
        records, starts, report = clean(to_block(made))
        assert records.tobytes() == made.records.tobytes() and starts.tolist() == made.session_start.tolist()
        assert report.dropped == 0


def test_dirty_market_is_survived_and_accounted_for():
    block = to_block(make_market(SyntheticOptions(preset="dirty", snapshots=20_000)))
    damage(block, 1)
    records, starts, report = clean(block)
    assert report.dropped + len(records) == report.book_rows == 20_000
    for reason in ("crossed book", "level 0 missing", "time going backwards", "duplicate time stamp"):
        assert report.count(reason) > 0, reason
    assert len(starts) == 2, "the weekend is a break, the halt of 20 minutes is not"
    assert (records["bid_px"][:, 0] < records["ask_px"][:, 0]).all() and (records["bid_sz"][:, 0] > 0).all()
    assert (np.diff(records["ts_ns"].astype(np.int64)) >= 0).all()
    assert (records["bid_sz"] == 0).any() and np.isfinite(records["regime"]).all()


def test_range_rebases_sessions():
    data = market(9000, sessions=3)
    part = data.range(2000, 8000)
    assert part.session_start.tolist() == [0, 1000, 4000] and len(part) == 6000 and part.digest != data.digest
    assert data.range(3000, 6000).session_start.tolist() == [0]
    with pytest.raises(ValueError, match="outside"):
        data.range(5, 5)
    assert same_records(data.range(0, 9000), data)


def test_prices_for_people():
    assert [price_text(v) for v in (4800_250000000, -37_630000000, 0, UNDEFINED, 15_625_000)] == [
        "4800.25",
        "-37.63",
        "0",
        "none",
        "0.015625",
    ]
