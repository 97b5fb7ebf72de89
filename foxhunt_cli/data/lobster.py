"""LOBSTER's pairs of CSV files: `..._message_N.csv` and `..._orderbook_N.csv`, no header, line by line.

Line k of the order book is the book after event k of the message file. Prices count 1e-4 USD, times are
seconds after midnight in New York, absent levels hold +-9999999999. Either file names the pair.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np

from foxhunt_cli.config.instruments import presets
from foxhunt_cli.data.block import MASK_HALT, UNDEFINED_PRICE, Block
from foxhunt_cli.data.csv_columns import Column, read_csv
from foxhunt_cli.data.errors import DataError
from foxhunt_cli.data.record import LEVELS

PRICE_UNIT_NANO = 100_000
"""LOBSTER's 1e-4 USD in units of 1e-9."""
_ABSENT = 9_999_999_999
_NAME = re.compile(r"(?P<front>.*?)(?P<kind>message|orderbook)(?P<back>_\d+.*\.csv(?:\.zst)?)$")
_EXECUTION_VISIBLE, _EXECUTION_HIDDEN, _HALT = 4, 5, 7
_MESSAGE = ("time", "type", "order_id", "size", "price", "direction")


def is_lobster(path: Path) -> bool:
    """Whether a file's name is one of a LOBSTER pair."""
    return _NAME.match(path.name) is not None


def lobster_pair(path: Path) -> tuple[Path, Path]:
    """(message file, order book file), given either."""
    match = _NAME.match(path.name)
    other = {"message": "orderbook", "orderbook": "message"}[match["kind"]]
    partner = path.with_name(match["front"] + other + match["back"])
    if not partner.exists():
        raise DataError(
            f"{path.name}: its partner {partner.name} is not beside it; LOBSTER data come as a pair of files"
        )
    return (path, partner) if match["kind"] == "message" else (partner, path)


class LobsterSource:
    """One pair of files."""

    def __init__(self, path: Path) -> None:
        self.message, self.book = lobster_pair(path)
        self.name = self.book.name
        self.warnings: list[str] = []
        self.sort = False
        self.inferred = presets()["EQUITY"]
        found = re.search(r"(?:^|_)(?P<symbol>[A-Z.]+)_(?P<day>\d{4}-\d{2}-\d{2})_", path.name)
        if found is None:
            raise DataError(
                f"{path.name}: expected SYMBOL_YYYY-MM-DD_... in a LOBSTER file's name (only it tells the day); rename"
            )
        self.symbol = found["symbol"]
        try:
            midnight = datetime.fromisoformat(found["day"]).replace(tzinfo=ZoneInfo("America/New_York"))
        except ValueError as error:
            raise DataError(f"{path.name}: {found['day']} in its name is no date; rename the file") from error
        self.midnight_ns = int(midnight.astimezone(UTC).timestamp()) * 1_000_000_000
        self.description = f"LOBSTER {self.symbol} {found['day']}"

    def blocks(self) -> Iterator[Block]:
        """Blocks in file order."""
        messages = read_csv(
            self.message,
            [Column(i, n, "float" if n == "time" else "int") for i, n in enumerate(_MESSAGE)],
            header=False,
        )
        levels = self._levels()
        wanted = [
            Column(4 * k + j, f"{n}{k}", "int") for k in range(levels) for j, n in enumerate(("ap", "as", "bp", "bs"))
        ]
        done = 0
        for events, book in _in_step(messages, read_csv(self.book, wanted, header=False), self):
            n = len(events["time"])
            yield self._block(events, book, levels, np.arange(done, done + n))
            done += n

    def _levels(self) -> int:
        """Levels in the order book file, at most ten."""
        with open(self.book, "rb") as file:
            line = file.readline(1 << 16)
        columns = line.count(b",") + 1 if line.strip() else 4
        if self.book.suffix == ".zst":
            columns = 4 * LEVELS
        if columns % 4:
            raise DataError(
                f"{self.name} line 1: expected 4 columns a level (price and size of ask and bid), got {columns} columns"
            )
        return min(columns // 4, LEVELS)

    def _block(self, events: dict[str, np.ndarray], book: dict[str, np.ndarray], levels: int, row: np.ndarray) -> Block:
        n = len(row)
        price = np.full((n, LEVELS, 2), UNDEFINED_PRICE, np.int64)
        size = np.zeros((n, LEVELS, 2), np.int64)
        for level in range(levels):
            for side, letter in enumerate("ba"):
                raw = book[f"{letter}p{level}"]
                there = np.abs(raw) < _ABSENT
                price[:, level, side] = np.where(there, raw * PRICE_UNIT_NANO, UNDEFINED_PRICE)
                size[:, level, side] = book[f"{letter}s{level}"]
        kind = events["type"]
        traded = (kind == _EXECUTION_VISIBLE) | (kind == _EXECUTION_HIDDEN)
        # The direction is that of the resting order: an executed sell order (-1) was bought from.
        volume = np.where(traded, -events["direction"] * events["size"], 0).astype(np.float64)
        seconds = events["time"]
        good = np.isfinite(seconds) & (seconds >= 0) & (seconds < 200_000)
        ts = np.where(good, np.rint(np.where(good, seconds, 0) * 1e9).astype(np.int64) + self.midnight_ns, -1)
        return Block(
            row=row,
            ts=ts,
            price=price,
            size=size,
            has_book=np.ones(n, bool),
            trade_volume=volume,
            trade_count=traded.astype(np.int64),
            masked=np.where(kind == _HALT, MASK_HALT, 0).astype(np.uint8),
        )


def _in_step(left: Iterator[dict], right: Iterator[dict], source: LobsterSource) -> Iterator[tuple[dict, dict]]:
    """Equal stretches of two streams of columns, to the end of the shorter one."""
    a: dict | None = next(left, None)
    b: dict | None = next(right, None)
    done = 0
    while a is not None and b is not None:
        n = min(_length(a), _length(b))
        if n:
            yield {k: v[:n] for k, v in a.items()}, {k: v[:n] for k, v in b.items()}
        done += n
        a = {k: v[n:] for k, v in a.items()} if _length(a) > n else next(left, None)
        b = {k: v[n:] for k, v in b.items()} if _length(b) > n else next(right, None)
    if a is not None or b is not None:
        longer = source.message.name if a is not None else source.book.name
        source.warnings.append(f"{longer} has more lines than its partner; the {done:,} lines they share are used")


def _length(columns: dict[str, np.ndarray]) -> int:
    return len(next(iter(columns.values())))
