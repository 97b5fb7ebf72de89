"""Writing market data: DBN and Parquet that our readers, and others', take back; `.fhx` as it is.

A DBN file carries trades as records of their own before the snapshot they belong to, as the vendor does.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from foxhunt_cli.data.block import UNDEFINED_PRICE, Block
from foxhunt_cli.data.errors import DataError
from foxhunt_cli.data.fhx import write_fhx
from foxhunt_cli.data.market_data import MarketData
from foxhunt_cli.data.record import LEVELS
from foxhunt_cli.data.synthetic import SyntheticOptions
from foxhunt_cli.data.whole import whole_file

FORMATS = ("dbn", "parquet", "fhx")
INSTRUMENT_ID = 1
_MONTH = "H4"


def raw_block(data: MarketData) -> Block:
    """Records back in currency and source units."""
    from foxhunt_cli.data.dirty import to_block
    from foxhunt_cli.data.synthetic import SyntheticMarket

    return to_block(SyntheticMarket(data.records, data.session_start, data.instrument, data.reference_ticks))


def write_data(path: Path, data: MarketData, kind: str, block: Block | None = None) -> None:
    """Write `data` as `kind`, under a temporary name first; `block`, raw rows of the same instrument, in its place."""
    if kind == "fhx":
        write_fhx(path, data)
        return
    block = raw_block(data) if block is None else block
    if kind == "dbn":
        content = dbn_bytes(block, data.instrument.symbol)
        if path.suffix == ".zst":
            import zstandard

            content = zstandard.ZstdCompressor(level=3).compress(content)
        with whole_file(path) as part:
            part.write_bytes(content)
    elif kind == "parquet":
        with whole_file(path) as part:
            _write_parquet(part, block, data.instrument.symbol)
    else:
        raise DataError(f"format {kind!r} is not known; expected one of {', '.join(FORMATS)}")


def write_synthetic(path: Path, synthetic: SyntheticOptions, kind: str) -> None:
    """A synthetic market as a file; `dirty` as DBN or Parquet keeps its damage, as .fhx it is cleaned."""
    from foxhunt_cli.data.dirty import dirty_blocks
    from foxhunt_cli.data.options import DataOptions
    from foxhunt_cli.data.source import load_market_data

    data = load_market_data(None, DataOptions(), synthetic)
    block = None
    if synthetic.preset == "dirty" and kind != "fhx":
        block = Block.joined(list(dirty_blocks(synthetic)))
    write_data(path, data, kind, block)


def dbn_bytes(block: Block, symbol: str) -> bytes:
    """A DBN version 3 file, schema mbp-10, of one instrument."""
    import databento_dbn as dbn

    start, end = int(block.ts.min()), int(block.ts.max()) + 1
    raw_symbol = f"{symbol}{_MONTH}"
    meta = dbn.Metadata(
        dataset="GLBX.MDP3",
        start=max(start, 0),
        end=max(end, 1),
        stype_in=dbn.SType.RAW_SYMBOL,
        stype_out=dbn.SType.INSTRUMENT_ID,
        schema=dbn.Schema.MBP_10,
        symbols=[raw_symbol],
        partial=[],
        not_found=[],
        mappings=[_mapping(raw_symbol, start, end)],
        version=3,
    )
    return bytes(meta) + dbn_records(block).tobytes()


def _mapping(raw_symbol: str, start: int, end: int) -> SimpleNamespace:
    """The header's statement that `raw_symbol` is INSTRUMENT_ID over the days of the data."""
    first, last = (datetime.fromtimestamp(max(t, 0) // 1_000_000_000, UTC).date() for t in (start, end))
    interval = SimpleNamespace(start_date=first, end_date=last + timedelta(days=1), symbol=str(INSTRUMENT_ID))
    return SimpleNamespace(raw_symbol=raw_symbol, intervals=[interval])


def dbn_records(block: Block) -> np.ndarray:
    """The rows as MBP-10 records: a snapshot's trades first, then its book."""
    from foxhunt_cli.data.databento import MBP10

    if not (np.all(block.size == np.rint(block.size)) and np.all(block.trade_volume == np.rint(block.trade_volume))):
        raise DataError("sizes are not whole numbers of lots, which DBN requires; name the output *.parquet or *.fhx")
    trades = block.trade_count
    row = np.repeat(np.arange(len(block)), trades + 1)
    is_book = np.zeros(len(row), bool)
    is_book[np.cumsum(trades + 1) - 1] = True
    out = np.zeros(len(row), MBP10)
    out["length"], out["rtype"], out["publisher_id"], out["instrument_id"] = MBP10.itemsize // 4, 10, 1, INSTRUMENT_ID
    out["ts_recv"] = out["ts_event"] = block.ts[row]
    out["sequence"] = np.arange(len(row), dtype=np.uint32)
    out["action"], out["side"], out["flags"] = np.where(is_book, b"M", b"T"), b"N", np.where(is_book, 128, 0)
    # A trade record shows the book before the trade: that of the snapshot before.
    shown = np.where(is_book, row, np.maximum(row - 1, 0))
    for level in range(LEVELS):
        for side, word in enumerate(("bid", "ask")):
            out[f"{word}_px_{level:02d}"] = block.price[shown, level, side]
            out[f"{word}_sz_{level:02d}"] = block.size[shown, level, side]
    _write_trade_sizes(out, block, row, is_book)
    return out


def _write_trade_sizes(out: np.ndarray, block: Block, row: np.ndarray, is_book: np.ndarray) -> None:
    """A snapshot's signed volume over its trades: one lot each, the last takes the rest."""
    at = np.flatnonzero(~is_book)
    volume, count = block.trade_volume[row[at]], block.trade_count[row[at]]
    last = is_book[at + 1]
    size = np.where(last, np.abs(volume) - (count - 1), 1.0)
    if (size < 0).any():
        raise DataError("a snapshot has more trades than its net volume can be split over; write Parquet or fhx")
    out["size"][at] = size
    out["side"][at] = np.where(size == 0, b"N", np.where(volume > 0, b"B", b"A"))
    out["price"][at] = block.price[row[at], 0, 0]


def _write_parquet(path: Path, block: Block, symbol: str) -> None:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise DataError("writing Parquet needs pyarrow; pip install 'foxhunt[parquet]'") from error
    columns: dict[str, object] = {"ts_ns": pa.array(block.ts)}
    for level in range(LEVELS):
        for side, word in enumerate(("bid", "ask")):
            price = block.price[:, level, side]
            absent = price == UNDEFINED_PRICE
            columns[f"{word}_px_{level:02d}"] = pa.array(np.where(absent, 0, price) / 1e9, mask=absent)
            columns[f"{word}_sz_{level:02d}"] = pa.array(block.size[:, level, side])
    columns["trade_signed_vol"], columns["trade_count"] = pa.array(block.trade_volume), pa.array(block.trade_count)
    columns["symbol"] = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(len(block), np.int8)), pa.array([f"{symbol}{_MONTH}"])
    )
    parquet.write_table(pa.table(columns), path, compression="zstd")
