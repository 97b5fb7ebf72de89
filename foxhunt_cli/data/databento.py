"""Databento MBP-10 files, `.dbn` and `.dbn.zst`, versions 1 to 3.

Records lie in the file as they lie in memory, so a block of them is one `numpy.frombuffer`; a record of
another type (live captures hold a few) is stepped over by its length byte. `DBNDecoder` would do that as
well, at a tenth of the speed, and aborts on damaged records. Facts that readers get wrong, and this one
must not: trades, fills and "none" never change the book (a trade record shows the book *before* it); `ts_out`
files have records of 376 bytes; the price 2^63 - 1 is an absent level; the order is that of `ts_recv`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import databento_dbn as dbn
import numpy as np

from foxhunt_cli.config.instruments import Instrument, infer_instrument
from foxhunt_cli.data.actions import read_acts
from foxhunt_cli.data.block import NO_TIME, Block, OutOfOrder
from foxhunt_cli.data.errors import DataError
from foxhunt_cli.data.options import DataOptions
from foxhunt_cli.data.record import LEVELS
from foxhunt_cli.data.streams import ByteStream

MBP10 = np.dtype(dbn.MBP10Msg._dtypes)
"""368 bytes; 16 of header, then the message and ten levels of 32 bytes."""
MBP10_TS_OUT = np.dtype([*dbn.MBP10Msg._dtypes, ("ts_out", "<u8")])
RTYPE_MBP10 = 10
HEADER_BYTES = 16
_RTYPES = frozenset(int(r.value) for r in dbn.RType.variants())
BLOCK_RECORDS = 8192
MAX_HEADER_BYTES = 64 << 20
_FIRST_LEVEL = MBP10.fields["bid_px_00"][1]
_LEVEL_BYTES = 32


@dataclass(frozen=True)
class Header:
    """What the file says of itself."""

    version: int
    dataset: str
    schema: str | None
    ts_out: bool
    symbols: dict[str, tuple[int, ...]]
    """Raw symbol -> the instrument ids it had, in the order of time."""

    def symbol_of(self, instrument_id: int) -> str | None:
        """The symbol that an instrument id belongs to, if the file says so."""
        return next((symbol for symbol, ids in self.symbols.items() if instrument_id in ids), None)


class DatabentoSource:
    """One file. Raises DataError on construction for a wrong schema or a selection that matches nothing."""

    def __init__(self, path: Path, options: DataOptions) -> None:
        self.path, self.name = path, path.name
        self.warnings: list[str] = []
        self.sort = False
        self.options = options
        with ByteStream(path) as stream:
            self.header = read_header(stream, self.name)
            first = stream.take(MBP10.itemsize)
        _check_schema(self.header, self.name)
        self.dtype = MBP10_TS_OUT if self.header.ts_out else MBP10
        self._wanted = self._selection()
        self.symbol = self._symbol(first)
        self.inferred: Instrument | None = infer_instrument(self.symbol) if self.symbol else None
        version = f"DBN version {self.header.version}"
        self.description = f"Databento {self.header.dataset} mbp-10, {version}, {self.symbol or 'symbol unknown'}"

    def _selection(self) -> np.ndarray | None:
        """Instrument ids to read, ascending; None = whatever the file holds, if that is one instrument."""
        if self.options.instrument_id is not None:
            wanted = self.options.instrument_id
            if self.header.symbols and self.header.symbol_of(wanted) is None:
                ids = (f"{id_} ({symbol})" for symbol, found in self.header.symbols.items() for id_ in sorted(found))
                have = ", ".join(islice(ids, 20))
                raise DataError(f"{self.name}: instrument id {wanted} is not in the file; it names {have}")
            return np.array([wanted], np.uint32)
        if self.options.symbol is not None:
            ids = self.header.symbols.get(self.options.symbol)
            if not ids:
                have = ", ".join(sorted(self.header.symbols)[:20]) or "no symbol at all"
                raise DataError(f"{self.name}: symbol {self.options.symbol!r} is not in the file; it names {have}")
            return np.array(sorted(ids), np.uint32)
        if len(self.header.symbols) == 1:
            return np.array(sorted(next(iter(self.header.symbols.values()))), np.uint32)
        return None

    def _symbol(self, first_record: memoryview) -> str | None:
        if self.options.symbol is not None:
            return self.options.symbol
        if self._wanted is not None and len(self._wanted):
            return self.header.symbol_of(int(self._wanted[0]))
        if len(first_record) == MBP10.itemsize:
            return self.header.symbol_of(int(np.frombuffer(first_record, MBP10)["instrument_id"][0]))
        return None

    def blocks(self) -> Iterator[Block]:
        """Blocks in the order of ts_recv, each of one contract."""
        raws = self._sorted_blocks() if self.sort else self._ordered_blocks()
        only: int | None = None
        for raw, row in raws:
            raw, row = self._select(raw, row)
            if not len(raw):
                continue
            ids = raw["instrument_id"]
            if self._wanted is None:
                only = int(ids[0]) if only is None else only
                if (ids != only).any():
                    raise DataError(self._several())
            for a, b in _runs(ids):
                yield _decode(raw[a:b], row[a:b])

    def _select(self, raw: np.ndarray, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self._wanted is None:
            return raw, row
        ids = raw["instrument_id"]
        mask = ids == self._wanted[0] if len(self._wanted) == 1 else np.isin(ids, self._wanted)
        return (raw, row) if mask.all() else (raw[mask], row[mask])

    def _ordered_blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The blocks of a file in the order of ts_recv; raises OutOfOrder where it is not."""
        newest = 0
        for raw, row in self._raw_blocks():
            ts = raw["ts_recv"][raw["ts_recv"] < 2**63]
            if len(ts):
                if ts[0] < newest or (ts[1:] < ts[:-1]).any():
                    raise OutOfOrder(self)
                newest = int(ts[-1])
            yield raw, row

    def _raw_blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(records, row numbers) as they lie in the file; records of other types are stepped over and counted."""
        size, done, others = self.dtype.itemsize, 0, 0
        rest: bytes | memoryview = b""
        with ByteStream(self.path) as stream:
            read_header(stream, self.name)
            while chunk := stream.take(size * BLOCK_RECORDS):
                data = b"".join((rest, chunk)) if len(rest) else chunk
                at = 0
                while True:
                    raw = np.frombuffer(data, self.dtype, (len(data) - at) // size, at)
                    ours = (raw["length"] == size // 4) & (raw["rtype"] == RTYPE_MBP10)
                    whole = len(raw) if ours.all() else int(np.argmin(ours))
                    if whole:
                        yield raw[:whole], np.arange(done, done + whole)
                    done, at = done + whole, at + whole * size
                    step = self._other_record(data[at:], done)
                    if step == 0:
                        break
                    done, at, others = done + 1, at + step, others + 1
                rest = data[at:]
            if len(rest) or stream.truncated:
                self.warnings.append(
                    f"{self.name}: the file ends early, inside record {done:,}; its {done:,} whole records are used"
                )
        if others:
            self.warnings.append(f"{self.name}: {others:,} records of other types (mappings, status) were skipped")

    def _other_record(self, data: bytes | memoryview, number: int) -> int:
        """Bytes of the record of another type at the front of `data`; 0 for one of ours or only a part of one."""
        if len(data) < 2:
            return 0
        length, rtype = data[0] * 4, data[1]
        if (rtype == RTYPE_MBP10 and length != self.dtype.itemsize) or rtype not in _RTYPES or length < HEADER_BYTES:
            raise DataError(
                f"{self.name} record {number:,}: expected {self.dtype.itemsize} bytes and type {RTYPE_MBP10}, "
                f"got {length} bytes and type {rtype}; the file is damaged there, fetch it again"
            )
        return length if rtype != RTYPE_MBP10 and length <= len(data) else 0

    def _sorted_blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        parts = list(self._raw_blocks())
        raw, row = np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])
        order = np.argsort(raw["ts_recv"], kind="stable")
        moved = int(np.count_nonzero(raw["ts_recv"][1:] < raw["ts_recv"][:-1]))
        self.warnings.append(f"{self.name}: ts_recv went back {moved:,} times; the records were sorted by it")
        for a in range(0, len(order), BLOCK_RECORDS):
            at = order[a : a + BLOCK_RECORDS]
            yield raw[at], row[at]

    def instruments(self) -> list[tuple[int, str | None, int]]:
        """(instrument id, symbol, records) of everything in the file, the most frequent first."""
        counts: dict[int, int] = {}
        for raw, _ in self._raw_blocks():
            for key, count in zip(*np.unique(raw["instrument_id"], return_counts=True), strict=True):
                counts[int(key)] = counts.get(int(key), 0) + int(count)
        self.warnings.clear()
        return sorted(((i, self.header.symbol_of(i), n) for i, n in counts.items()), key=lambda t: -t[2])

    def _several(self) -> str:
        found = self.instruments()
        table = "\n".join(
            f"  {symbol or '?':<24} id {number:<10} {count:>12,} records" for number, symbol, count in found[:20]
        )
        more = f"\n  and {len(found) - 20} more" if len(found) > 20 else ""
        return (
            f"{self.name}: holds {len(found)} instruments; choose one with --symbol or --instrument-id:\n{table}{more}"
        )


def _runs(ids: np.ndarray) -> Iterator[tuple[int, int]]:
    """(start, stop) of the stretches of one instrument id."""
    edges = np.flatnonzero(np.diff(ids)) + 1
    bounds = [0, *edges.tolist(), len(ids)]
    return zip(bounds[:-1], bounds[1:], strict=True)


def read_header(stream: ByteStream, name: str) -> Header:
    """The metadata at the front of a DBN stream, which is left at the first record."""
    lead = bytes(stream.take(8))
    if len(lead) < 8 or lead[:3] != b"DBN":
        raise DataError(
            f"{name}: expected a DBN file (it starts with 'DBN'), got {lead[:8]!r}; see 'foxhunt data info --help'"
        )
    version, length = lead[3], int.from_bytes(lead[4:8], "little")
    if not 1 <= version <= 3:
        raise DataError(
            f"{name}: DBN version {version} is not known here; versions 1 to 3 are (a newer file needs a newer foxhunt)"
        )
    body = bytes(stream.take(min(length, MAX_HEADER_BYTES)))
    if len(body) < length:
        raise DataError(f"{name}: the file ends inside its header ({len(body):,} of {length:,} bytes); fetch it again")
    try:
        meta = dbn.Metadata.decode(lead + body)
        schema = str(meta.schema) if meta.schema is not None else None
        return Header(version, meta.dataset, schema, bool(meta.ts_out), _symbols(meta))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the decoder is native code: its panics are not Exceptions
        raise DataError(f"{name}: the DBN header is damaged ({error}); fetch the file again") from error


def _symbols(meta: dbn.Metadata) -> dict[str, tuple[int, ...]]:
    """Raw symbol -> ids, from the header's mappings, whichever way round they are."""
    out: dict[str, list[int]] = {}
    for key, intervals in meta.mappings.items():
        for interval in intervals:
            value = interval["symbol"]
            symbol, number = (value, key) if key.isdigit() else (key, value)
            if number.isdigit() and int(number) not in out.setdefault(symbol, []):
                out[symbol].append(int(number))
    return {symbol: tuple(ids) for symbol, ids in out.items()}


def _check_schema(header: Header, name: str) -> None:
    if header.schema not in (None, "mbp-10"):
        raise DataError(
            f"{name}: expected schema mbp-10 (ten price levels), got {header.schema}; request the data as mbp-10"
        )


def _decode(raw: np.ndarray, row: np.ndarray) -> Block:
    """Records of one contract to a block."""
    price, size = _levels(raw)
    action, side = raw["action"].view(np.uint8), raw["side"].view(np.uint8)
    ts = raw["ts_recv"]
    return Block(
        row=row,
        ts=np.where(ts < 2**63, ts, 0).astype(np.int64) - (ts >= 2**63),
        price=price,
        size=size,
        **vars(read_acts(action, side, raw["size"], raw["flags"])),
        instrument_id=int(raw["instrument_id"][0]),
    )


def _levels(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Prices int64 [n, 10, 2] and sizes uint32 [n, 10, 2], bid and ask.

    A level is 32 bytes: bid and ask price (8 each), bid and ask size (4 each), two counts. A pair is copied
    as one 16-byte or 8-byte element, which is several times faster than two strided columns.
    """
    n, size = len(raw), raw.dtype.itemsize
    data = np.ascontiguousarray(raw).view(np.uint8)
    prices = np.ascontiguousarray(np.ndarray((n, LEVELS), "V16", data, _FIRST_LEVEL, (size, _LEVEL_BYTES)))
    sizes = np.ascontiguousarray(np.ndarray((n, LEVELS), "V8", data, _FIRST_LEVEL + 16, (size, _LEVEL_BYTES)))
    return prices.view("<i8").reshape(n, LEVELS, 2), sizes.view("<u4").reshape(n, LEVELS, 2)


assert NO_TIME == -1  # _decode writes it as 0 - 1
