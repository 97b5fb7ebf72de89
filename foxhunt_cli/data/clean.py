"""The one cleaning stage: blocks of raw rows in, snapshots and an account of what was left out.

Every source passes through here, row by row in file order. A row is dropped for the first reason that
holds; the account names the reasons with counts and first examples. Prices become whole ticks in integer
arithmetic; a price off the tick grid is an error, because it means the wrong instrument. Real captures hold
crossed books for half a minute and longer: such rows are masked and counted, never asserted away.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from foxhunt_cli.config.instruments import NANO, Instrument, format_size
from foxhunt_cli.data.block import MASK_REASONS, NO_TIME, UNDEFINED_PRICE, Block
from foxhunt_cli.data.errors import DataError
from foxhunt_cli.data.options import DataOptions
from foxhunt_cli.data.record import LEVELS, MAX_TICKS, SNAPSHOT
from foxhunt_cli.data.report import CleaningReport, Finding, iso_time

MAX_DROPPED_FRACTION = 0.05
_SIDES = ("bid", "ask")
_BACKWARDS = "time going backwards"


class Cleaner:
    """Collects the snapshots of one data set; `add` the blocks in order, then read `result`."""

    def __init__(self, instrument: Instrument, options: DataOptions) -> None:
        self.instrument = instrument
        self.options = options
        self.name = ""
        self._gap_ns = int(options.session_gap_s * 1e9)
        self.rows = 0
        self.book_rows = 0
        self.kept = 0
        self.reference: int | None = None
        self.findings: dict[str, Finding] = {}
        self._off_grid: str | None = None  # what is wrong with the first price off the grid, where no row was kept
        self._seen = (2**63 - 1, -1)  # first and last time of any row, in the span asked for or not
        self._records = np.zeros(0, SNAPSHOT)  # grown in place, so that the data are never in memory twice
        self._breaks: list[np.ndarray] = [np.zeros(1, np.int64)]
        self._break_count = 1
        self._newest = NO_TIME  # newest time stamp of any row
        self._last_ts = NO_TIME  # of the last kept snapshot
        self._last_id = 0
        self._pending = np.zeros(2)  # volume and count of trades not yet given to a snapshot

    @property
    def enough(self) -> bool:
        """Whether `--max-snapshots` is sure to be met, so that reading may stop."""
        limit = self.options.max_snapshots
        return limit is not None and self.kept >= (limit + self._break_count) * self.options.stride

    def note(self, reason: str, count: int, row: int, example: str = "", dropped: bool = False) -> None:
        """Count `reason`; the first call for it fixes the example."""
        if not count:
            return
        found = self.findings.get(reason)
        if found is None:
            self.findings[reason] = Finding(
                reason=reason, count=count, dropped=dropped, first_record=row, example=example
            )
        else:
            found.count += count

    def add(self, block: Block) -> None:
        """Judge one block and keep what is good."""
        block = self._in_span(block)
        if not len(block):
            return
        self.rows += len(block)
        self.book_rows += int(np.count_nonzero(block.has_book))
        ticks, size, present, off_grid = self._to_ticks(block)
        keep = block.has_book.copy()
        for reason, bad in self._reasons(block, ticks, size, present):
            bad &= keep
            if bad.any():
                first = int(np.argmax(bad))
                self.note(
                    reason, int(np.count_nonzero(bad)), int(block.row[first]), _row_text(block, first), dropped=True
                )
                keep &= ~bad
        kept = np.flatnonzero(keep)
        if len(kept):
            self._refuse_off_grid(block, off_grid, kept)
        elif self._off_grid is None and off_grid.any():
            self._off_grid = self._off_grid_text(block, off_grid, np.flatnonzero(block.has_book))
        self._fill_absent(ticks, size, present)
        self._store(block, ticks, size, kept)

    def _in_span(self, block: Block) -> Block:
        """The rows inside --start/--end."""
        if self.options.start is None and self.options.end is None:
            return block
        known = block.ts[block.ts >= 0]
        if len(known):
            self._seen = (min(self._seen[0], int(known.min())), max(self._seen[1], int(known.max())))
        return block[(block.ts >= self.options.start_ns) & (block.ts < self.options.end_ns)]

    def _to_ticks(self, block: Block) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Prices in whole ticks int64, sizes in lots float32, which levels are there, which prices are off the grid."""
        tick = self.instrument.tick_nano
        ticks = block.price // tick
        with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is dropped for it
            size = block.size.astype(np.float32)
        if self.instrument.size_per_lot != 1:
            size /= np.float32(self.instrument.size_per_lot)
        present = block.price != UNDEFINED_PRICE
        off_grid = (ticks * tick != block.price) & present
        # A price with nothing behind it, below the top, is an absent level; at the top it is a bad row.
        empty = present[:, 1:] & ~(size[:, 1:] > 0)
        if empty.any():
            rows = np.flatnonzero(_any_level(empty) & block.has_book)
            self.note("level without size, taken as absent", len(rows), int(block.row[rows[0]]) if len(rows) else 0)
            present[:, 1:] &= ~empty
        return ticks, size, present, off_grid

    def _reasons(self, block: Block, ticks: np.ndarray, size: np.ndarray, present: np.ndarray):
        """(reason, bad rows) in the order of precedence; each array is the caller's to change."""
        for code, reason in enumerate(MASK_REASONS[1:], 1):
            yield reason, block.masked == code
        yield "no time stamp", block.ts < 0
        newest = np.maximum.accumulate(np.concatenate([[self._newest], block.ts]))
        yield _BACKWARDS, block.ts < newest[:-1]
        self._note_pauses(block, newest[:-1])
        self._newest = int(newest[-1])
        bid, ask = ticks[:, 0, 0], ticks[:, 0, 1]
        shown = np.flatnonzero((bid > ask) & present[:, 0].all(axis=1) & ~block.has_book)
        self.note("crossed book shown by a trade", len(shown), int(block.row[shown[0]]) if len(shown) else 0)
        yield "level 0 missing", ~present[:, 0].all(axis=1)
        yield "size not positive", ~(size[:, 0] > 0).all(axis=1) | _any_level(~np.isfinite(size))
        yield "crossed book", bid > ask
        yield "locked book", bid == ask
        yield "levels out of order", _out_of_order(ticks, present)
        if self.reference is None:
            self.reference = self._find_reference(block, ticks, present)
        reference = self.reference if self.reference is not None else 0
        far = (np.abs(ticks - reference) > MAX_TICKS) & present
        yield f"price more than {MAX_TICKS:,} ticks from the first mid", _any_level(far)

    def _note_pauses(self, block: Block, newest: np.ndarray) -> None:
        """Pauses of the source itself, whatever its rows are worth; session breaks follow the kept rows."""
        pause = np.flatnonzero((block.ts - newest > self._gap_ns) & (newest >= 0))
        if len(pause):
            at = int(pause[0])
            text = f"{(block.ts[at] - newest[at]) / 1e9:,.0f} s before {iso_time(int(block.ts[at]))}"
            self.note(f"pause over {self.options.session_gap_s:,.0f} s", len(pause), int(block.row[at]), text)

    @staticmethod
    def _find_reference(block: Block, ticks: np.ndarray, present: np.ndarray) -> int | None:
        """The first valid mid, rounded down to a tick."""
        valid = (
            present[:, 0].all(axis=1)
            & (ticks[:, 0, 0] < ticks[:, 0, 1])
            & block.has_book
            & (block.masked == 0)
            & (block.ts >= 0)
        )
        if not valid.any():
            return None
        first = int(np.argmax(valid))
        return (int(ticks[first, 0, 0]) + int(ticks[first, 0, 1])) // 2

    def _refuse_off_grid(self, block: Block, off_grid: np.ndarray, kept: np.ndarray) -> None:
        text = self._off_grid_text(block, off_grid, kept)
        if text is not None:
            raise DataError(text)

    def _off_grid_text(self, block: Block, off_grid: np.ndarray, rows: np.ndarray) -> str | None:
        """What is wrong with the first price of `rows` that is off the grid; None where all are on it."""
        wrong = off_grid[rows]
        if not wrong.any():
            return None
        at, level, side = (int(i[0]) for i in np.nonzero(wrong))
        row = int(rows[at])
        price = block.price[rows]
        common = Fraction(int(np.gcd.reduce(price[price != UNDEFINED_PRICE])), NANO)
        return (
            f"{self.name} record {int(block.row[row]):,}: {_SIDES[side]}_px_{level:02d} "
            f"{price_text(int(block.price[row, level, side]))} is not on {self.instrument.symbol}'s "
            f"{format_size(self.instrument.tick_size)} tick grid; "
            f"pass --tick-size {format_size(common)} or the right --instrument"
        )

    @staticmethod
    def _fill_absent(ticks: np.ndarray, size: np.ndarray, present: np.ndarray) -> None:
        """An absent level repeats the worst price that is present and has size 0."""
        if present.all():
            return
        for level in range(1, LEVELS):
            np.copyto(ticks[:, level], ticks[:, level - 1], where=~present[:, level])
        size[~present] = 0

    def _store(self, block: Block, ticks: np.ndarray, size: np.ndarray, kept: np.ndarray) -> None:
        """Kept rows into records; each gets the trades since the kept row before it."""
        flow = np.stack([block.trade_volume / self.instrument.size_per_lot, block.trade_count.astype(np.float64)], 1)
        total = np.cumsum(flow, axis=0)
        if not len(kept):
            self._pending += total[-1]
            return
        since = np.diff(total[kept], axis=0, prepend=-self._pending[None])
        self._pending = total[-1] - total[kept[-1]]
        records = self._room(len(kept))
        if len(kept) < len(block):
            ticks, size = ticks[kept], size[kept]
        price = (ticks - self.reference).astype(np.float32)
        records["bid_px"], records["ask_px"] = price[:, :, 0], price[:, :, 1]
        records["bid_sz"], records["ask_sz"] = size[:, :, 0], size[:, :, 1]
        records["trade_signed_vol"], records["trade_count"] = since[:, 0], np.rint(since[:, 1])
        records["ts_ns"] = block.ts[kept]
        self._mark_breaks(block, kept)
        self.kept += len(kept)

    def _room(self, count: int) -> np.ndarray:
        """A zeroed view of the next `count` records."""
        if self.kept + count > len(self._records):
            self._records.resize(max(2 * len(self._records), self.kept + count), refcheck=False)
        return self._records[self.kept : self.kept + count]

    def _mark_breaks(self, block: Block, kept: np.ndarray) -> None:
        """Session breaks before these rows, and duplicate time stamps, against the last kept row."""
        ts = block.ts[kept]
        before = np.concatenate([[self._last_ts if self.kept else ts[0]], ts[:-1]])
        wait = ts - before
        same = np.flatnonzero(wait == 0)
        same = same[(same > 0) | (self.kept > 0)]
        if len(same):
            self.note("duplicate time stamp", len(same), int(block.row[kept[same[0]]]), iso_time(int(ts[same[0]])))
        pause = wait > self._gap_ns
        rolled = bool(self.kept) and block.instrument_id != self._last_id
        for at in np.flatnonzero(pause):
            self.note(
                "session break: no usable book",
                1,
                int(block.row[kept[at]]),
                f"for {wait[at] / 1e9:,.0f} s before {iso_time(int(ts[at]))}",
            )
        if rolled:
            self.note("session break: another contract", 1, int(block.row[kept[0]]), iso_time(int(ts[0])))
            pause[0] = True
        at = np.flatnonzero(pause)
        self._breaks.append(at + self.kept)
        self._break_count += len(at)
        self._last_ts, self._last_id = int(ts[-1]), block.instrument_id

    def result(self) -> tuple[np.ndarray, np.ndarray, CleaningReport]:
        """Records (book, trades and times filled in), session starts, and the account. Raises DataError."""
        findings = sorted(self.findings.values(), key=lambda f: (not f.dropped, -f.count))
        report = CleaningReport(rows=self.rows, book_rows=self.book_rows, kept=self.kept, findings=findings)
        if not self.kept:
            if self._off_grid is not None:  # a wrong tick makes books that are not in order
                raise DataError(self._off_grid)
            why = f"what was read:\n{report.table()}" if findings else self._nothing_read()
            raise DataError(f"{self.name}: no usable snapshot in {self.rows:,} records; {why}")
        if report.dropped_fraction > MAX_DROPPED_FRACTION and not self.options.allow_dirty:
            backwards = findings[0].reason == _BACKWARDS
            remedy = "sort the file by time" if backwards else "pass --allow-dirty to use the rest"
            raise DataError(
                f"{self.name}: {report.dropped:,} of {self.book_rows:,} book records "
                f"({report.dropped_fraction:.1%}) had to be dropped, "
                f"more than {MAX_DROPPED_FRACTION:.0%}; {remedy}:\n{report.table()}"
            )
        records, self._records = self._records, np.zeros(0, SNAPSHOT)
        records.resize(self.kept, refcheck=False)
        return records, np.concatenate(self._breaks), report

    def _nothing_read(self) -> str:
        """Why no record was read."""
        if self._seen[1] < 0:
            return "it holds no record of the instrument"
        first, last = map(iso_time, self._seen)
        return f"it has {first} to {last}, none of it between --start and --end"


def _out_of_order(ticks: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Rows in which a present level is not worse than the present level above it, bool [n]."""
    if present.all():
        step = ticks[:, 1:] - ticks[:, :-1]
        np.negative(step[:, :, 0], out=step[:, :, 0])
        return _any_level(step <= 0)
    bad = np.zeros(len(ticks), bool)
    worst = ticks[:, 0].copy()
    for level in range(1, LEVELS):
        here = present[:, level]
        bad |= here[:, 0] & (ticks[:, level, 0] >= worst[:, 0])
        bad |= here[:, 1] & (ticks[:, level, 1] <= worst[:, 1])
        np.copyto(worst, ticks[:, level], where=here)
    return bad


def _any_level(bad: np.ndarray) -> np.ndarray:
    """Rows with any bad level, bool [n]. Looks row by row only where there is something to find, which is rare."""
    return bad.any(axis=(1, 2)) if bad.any() else np.zeros(len(bad), bool)


def price_text(nano: int) -> str:
    """A fixed-point price as people write it, exactly."""
    if nano == UNDEFINED_PRICE:
        return "none"
    whole, part = divmod(abs(nano), NANO)
    decimals = f"{part:09d}".rstrip("0")
    return f"{'-' if nano < 0 else ''}{whole}" + (f".{decimals}" if decimals else "")


def _row_text(block: Block, row: int) -> str:
    bid, ask = (price_text(int(p)) for p in block.price[row, 0])
    return f"{iso_time(int(block.ts[row]))} bid {bid} ask {ask}"
