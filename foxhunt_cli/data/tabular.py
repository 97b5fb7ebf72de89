"""CSV and Parquet tables of snapshots, read by column name in any order.

Understands Databento's own exports (`ts_recv`, `action`, `side`, `bid_px_00`, ...; prices as decimals or as
1e-9 integers, times as integers or ISO 8601) and plain tables: `ts_ns, bid_px_00, bid_sz_00, ask_px_00, ...`
with, where there are trades, `trade_signed_vol` and `trade_count`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from foxhunt_cli.config.instruments import Instrument, infer_instrument
from foxhunt_cli.data.actions import read_acts
from foxhunt_cli.data.block import NO_TIME, UNDEFINED_PRICE, Block
from foxhunt_cli.data.csv_columns import MISSING_INT, Column, read_csv
from foxhunt_cli.data.errors import DataError
from foxhunt_cli.data.options import DataOptions
from foxhunt_cli.data.parquet_columns import parquet_blocks, parquet_head
from foxhunt_cli.data.record import LEVELS
from foxhunt_cli.data.streams import ByteStream

TIME_COLUMNS = ("ts_recv", "ts_ns", "ts_event", "timestamp", "time")
FIXED_POINT_FROM = 100_000_000
"""Integer prices at or above this are 1e-9 fixed point; below, whole units of currency."""
_FLOAT_PRICE_LIMIT = 9e9
_SAMPLE_LINES = 200
# The least that the newest of a table's times may be in ns: microseconds of today are below it.
_NS_LEAST = 10**16
_LEVEL = re.compile(r"(bid|ask)_(px|sz)_(\d{1,2})$")


class TabularSource:
    """One table. Raises DataError on construction if needed columns are missing."""

    def __init__(self, path: Path, options: DataOptions, parquet: bool) -> None:
        self.path, self.name, self.options = path, path.name, options
        self.warnings: list[str] = []
        self.sort = False  # tables are read as they come; rows that go back are dropped and counted
        self.parquet = parquet
        names, sample = parquet_head(path, _SAMPLE_LINES) if self.parquet else _csv_head(path)
        self.columns = {name.strip().lower(): place for place, name in enumerate(names)}
        self.time = next((c for c in TIME_COLUMNS if c in self.columns), None)
        self.levels = self._check_levels()
        self.sample = {
            name: [line[place] for line in sample if place < len(line)] for name, place in self.columns.items()
        }
        self.symbol = options.symbol or next((str(s) for s in self.sample.get("symbol", []) if s), None)
        self.inferred: Instrument | None = infer_instrument(self.symbol) if self.symbol else None
        kind = "Databento export" if "action" in self.columns and "ts_recv" in self.columns else "table of snapshots"
        self.description = (
            f"{'Parquet' if self.parquet else 'CSV'} {kind}, {self.levels} levels, {self.symbol or 'symbol unknown'}"
        )

    def _check_levels(self) -> int:
        """Number of levels present from 0 on; names what is missing."""
        if self.time is None:
            raise DataError(
                f"{self.name}: no time column; expected one of {', '.join(TIME_COLUMNS)}, got {_some(self.columns)}"
            )
        levels = 0
        while levels < LEVELS and all(
            f"{s}_{f}_{levels:02d}" in self.columns for s in ("bid", "ask") for f in ("px", "sz")
        ):
            levels += 1
        if levels == 0:
            raise DataError(
                f"{self.name}: expected columns bid_px_00, bid_sz_00, ask_px_00, ask_sz_00 (to _09), "
                f"got {_some(self.columns)}; "
                "for Databento data request schema mbp-10"
            )
        return levels

    def blocks(self) -> Iterator[Block]:
        """Blocks in file order, each of one contract."""
        wanted = self._wanted()
        fixed = self._fixed_point()
        done, only = 0, None
        for table in self._tables(wanted):
            n = len(table[self.time])
            row = np.arange(done, done + n)
            done += n
            mask = self._selected(table)
            if not mask.all():
                table, row = {k: v[mask] for k, v in table.items()}, row[mask]
            if not len(row):
                continue
            ids = _contracts(table)
            only = self._one_contract(table, only)
            edges = [0, *(np.flatnonzero(ids[1:] != ids[:-1]) + 1).tolist(), len(row)]
            for a, b in zip(edges[:-1], edges[1:], strict=True):
                part = {k: v[a:b] for k, v in table.items()}
                yield self._block(part, row[a:b], fixed, int(ids[a]))

    def _wanted(self) -> list[str]:
        names = [self.time]
        names += [f"{s}_{f}_{k:02d}" for k in range(self.levels) for s in ("bid", "ask") for f in ("px", "sz")]
        if "action" in self.columns:
            names += [c for c in ("action", "side", "size", "flags") if c in self.columns]
        names += [c for c in ("trade_signed_vol", "trade_count", "symbol", "instrument_id") if c in self.columns]
        return names

    def _tables(self, wanted: list[str]) -> Iterator[dict[str, np.ndarray]]:
        if self.parquet:
            return parquet_blocks(self.path, {n: self.columns[n] for n in wanted})
        return read_csv(self.path, [Column(self.columns[n], n, self._kind(n)) for n in wanted], header=True)

    def _kind(self, name: str) -> str:
        """Type of a CSV column, by its name and its first values."""
        if name in ("action", "side", "symbol"):
            return "text"
        whole = [v for v in self.sample[name] if v != ""]
        is_int = bool(whole) and all(re.fullmatch(r"-?\d+", v) for v in whole)
        if name == self.time:
            return "int" if is_int else "text"
        if name in ("instrument_id", "flags", "trade_count"):
            return "int"
        if "_px_" in name:
            return "int" if self._fixed_point() else "float"
        return "float"

    def _fixed_point(self) -> bool:
        """Whether prices are integers of 1e-9."""
        values = [
            v
            for k in range(self.levels)
            for s in ("bid", "ask")
            for v in self.sample[f"{s}_px_{k:02d}"]
            if v not in ("", None)
        ]
        if not values or not all(
            isinstance(v, int) or (isinstance(v, str) and re.fullmatch(r"-?\d+", v)) for v in values
        ):
            return False
        return bool(np.median([abs(int(v)) for v in values]) >= FIXED_POINT_FROM)

    def _selected(self, table: dict[str, np.ndarray]) -> np.ndarray:
        mask = np.ones(len(table[self.time]), bool)
        if self.options.symbol is not None and "symbol" in table:
            mask &= table["symbol"] == self.options.symbol
        if self.options.instrument_id is not None and "instrument_id" in table:
            mask &= table["instrument_id"] == self.options.instrument_id
        return mask

    def _one_contract(self, table: dict[str, np.ndarray], only: object) -> object:
        """Refuses a second instrument: by symbol where there is one, else by instrument id."""
        name = next((c for c in ("symbol", "instrument_id") if c in table), None)
        if name is None or (name == "instrument_id" and self.options.symbol is not None):
            return only
        found = list(dict.fromkeys(table[name].tolist()))
        only = found[0] if only is None else only
        if any(f != only for f in found):
            several = list(dict.fromkeys([only, *found]))
            raise DataError(
                f"{self.name}: holds several instruments ({', '.join(str(f) for f in several[:20])}); "
                "choose one with --symbol or --instrument-id"
            )
        return only

    def _block(self, table: dict[str, np.ndarray], row: np.ndarray, fixed: bool, contract: int) -> Block:
        n = len(row)
        price = np.full((n, LEVELS, 2), UNDEFINED_PRICE, np.int64)
        size = np.zeros((n, LEVELS, 2), np.float64)
        for level in range(self.levels):
            for side, word in enumerate(("bid", "ask")):
                price[:, level, side] = _to_nano(table[f"{word}_px_{level:02d}"], fixed)
                raw = table[f"{word}_sz_{level:02d}"].astype(np.float64)
                size[:, level, side] = np.where(np.isfinite(raw), raw, 0)
        ts = _to_ns(table[self.time], self.name, row)
        block = Block(
            row=row,
            ts=ts,
            price=price,
            size=size,
            has_book=np.ones(n, bool),
            trade_volume=np.zeros(n),
            trade_count=np.zeros(n, np.int64),
            masked=np.zeros(n, np.uint8),
            instrument_id=contract,
        )
        if "action" in table:
            _apply_actions(block, table)
        elif "trade_signed_vol" in table:
            volume = table["trade_signed_vol"].astype(np.float64)
            block.trade_volume = np.where(np.isfinite(volume), volume, 0)
            count = table.get("trade_count")
            block.trade_count = (
                (block.trade_volume != 0).astype(np.int64)
                if count is None
                else np.where(count == MISSING_INT, 0, np.maximum(count, 0)).astype(np.int64)
            )
        return block


def _apply_actions(block: Block, table: dict[str, np.ndarray]) -> None:
    """Databento's action, side, size and flags, as in the binary files."""
    n = len(block)
    size = np.nan_to_num(table["size"].astype(np.float64)) if "size" in table else np.zeros(n)
    flags = table.get("flags")
    if flags is not None:
        flags = np.where(flags == MISSING_INT, 0, flags) if np.issubdtype(flags.dtype, np.integer) else None
    side = table["side"] if "side" in table else np.full(n, "N")
    acts = read_acts(_letters(table["action"]), _letters(side), size, flags)
    for column, values in vars(acts).items():
        setattr(block, column, values)


def _letters(words: np.ndarray) -> np.ndarray:
    """Code of the first letter of each word, uint32 [n]; 0 where it is empty."""
    return np.ascontiguousarray(words.astype("U1")).view(np.uint32)


def _to_nano(values: np.ndarray, fixed: bool) -> np.ndarray:
    """Prices to 1e-9 integers. A decimal's float64 is within 1e-9 / 2 of it up to about 4,000,000, and rounds to it."""
    if fixed and np.issubdtype(values.dtype, np.integer):
        return values
    values = values.astype(np.float64) * (1e-9 if fixed else 1.0)
    good = np.isfinite(values) & (np.abs(values) < _FLOAT_PRICE_LIMIT)
    return np.where(good, np.rint(np.where(good, values, 0) * 1e9).astype(np.int64), UNDEFINED_PRICE)


def _to_ns(values: np.ndarray, name: str, row: np.ndarray) -> np.ndarray:
    """Time stamps to int64 ns: integers as they are, ISO 8601 text parsed (UTC where no zone is given)."""
    if np.issubdtype(values.dtype, np.datetime64):
        ts = values.astype("datetime64[ns]").astype(np.int64)
        return np.where(np.isnat(values), NO_TIME, ts)
    if np.issubdtype(values.dtype, np.number):
        good = np.isfinite(values) & (values >= 0) & (values < 2**63 - 1)
        if good.any() and 0 < (newest := int(values[good].max())) < _NS_LEAST:
            raise DataError(
                f"{name} records {int(row[0]):,} to {int(row[-1]):,}: expected ns since 1970 as time, got {newest}, a "
                "moment of 1970; multiply seconds by 1e9, milliseconds by 1e6, microseconds by 1,000"
            )
        return np.where(good, values, NO_TIME).astype(np.int64)
    text = np.array([t.strip().removesuffix("Z").removesuffix("+00:00") for t in values.tolist()], "U40")
    text[np.isin(text, ["", "-", "NaT", "nan"])] = "NaT"
    try:
        ts = text.astype("datetime64[ns]")
    except ValueError as error:
        raise DataError(
            f"{name} records {int(row[0]):,} to {int(row[-1]):,}: "
            f"expected ns since 1970 or ISO 8601 in UTC as time ({error})"
        ) from error
    return np.where(np.isnat(ts), NO_TIME, ts.astype(np.int64))


def _contracts(table: dict[str, np.ndarray]) -> np.ndarray:
    if "instrument_id" in table:
        return np.where(table["instrument_id"] == MISSING_INT, 0, table["instrument_id"]).astype(np.int64)
    return np.zeros(len(next(iter(table.values()))), np.int64)


def _csv_head(path: Path) -> tuple[list[str], list[list[str]]]:
    """Header and the first lines of a CSV file."""
    with ByteStream(path) as stream:
        text = bytes(stream.take(1 << 18)).decode("utf-8", errors="replace")
    text = text.removeprefix("\ufeff")
    lines = [[field.strip('" ') for field in line.split(",")] for line in text.splitlines()[: _SAMPLE_LINES + 1]]
    if not lines or not lines[0]:
        raise DataError(f"{path.name}: the file is empty; expected a header line and snapshots")
    if len(text) == 1 << 18 and len(lines) <= _SAMPLE_LINES:
        lines = lines[:-1]
    seen = [name.strip().lower() for name in lines[0]]
    if not any(_LEVEL.match(name) for name in seen):
        raise DataError(
            f"{path.name}: expected a CSV header with bid_px_00, bid_sz_00, ... "
            "or a LOBSTER file name (..._message_10.csv), "
            f"got {_some(lines[0])}" + ("; put commas between the fields" if ";" in lines[0][0] else "")
        )
    if twice := next((name for name in seen if name and seen.count(name) > 1), None):
        raise DataError(f"{path.name}: column {twice} stands twice in the header; leave one of them out")
    return lines[0], lines[1:]


def _some(names) -> str:
    # A binary file read as text may hold what would drive a terminal.
    names = ["".join(c if c.isprintable() else "?" for c in str(n)[:40]) for n in names]
    return ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
