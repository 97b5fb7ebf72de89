"""A block of rows as a reader hands it over: still in the source's own units, nothing judged yet.

Every reader yields these and `clean.py` alone decides what becomes a snapshot, so that a rule about
bad data exists once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Protocol

import numpy as np

from foxhunt_cli.config.instruments import Instrument

UNDEFINED_PRICE = 2**63 - 1
"""A level that is absent, as Databento writes it."""
NO_TIME = -1

MASK_REASONS = ("", "book snapshot flag", "book may be bad flag", "book cleared", "unknown action", "trading halt")
"""Why a reader asks for a row to be left out; a row's `masked` is an index into this."""
MASK_SNAPSHOT, MASK_BAD_BOOK, MASK_CLEARED, MASK_UNKNOWN, MASK_HALT = range(1, 6)


@dataclass
class Block:
    """n rows of one instrument (of one contract each), in file order."""

    row: np.ndarray
    """[n] int64, number of the row in its file, from 0."""
    ts: np.ndarray
    """[n] int64, ns since 1970; NO_TIME where the source has none."""
    price: np.ndarray
    """[n, 10, 2] int64, bid and ask, units of 1e-9; UNDEFINED_PRICE = absent."""
    size: np.ndarray
    """[n, 10, 2], bid and ask, the source's units."""
    has_book: np.ndarray
    """[n] bool; False for rows that never change the book (trades)."""
    trade_volume: np.ndarray
    """[n] float64, buyer-initiated positive, the source's units."""
    trade_count: np.ndarray
    """[n] int64."""
    masked: np.ndarray
    """[n] uint8, index into MASK_REASONS; 0 = nothing against it."""
    instrument_id: int = 0
    """Contract of these rows; a change of it between blocks is a session break."""

    def __len__(self) -> int:
        return len(self.ts)

    def __getitem__(self, rows: np.ndarray | slice) -> Block:
        """Those of its rows that a mask, an index or a slice names."""
        return replace(self, **{name: getattr(self, name)[rows] for name in _COLUMNS})

    @classmethod
    def joined(cls, blocks: Sequence[Block]) -> Block:
        """Blocks of one contract, one behind the other."""
        return replace(blocks[0], **{name: np.concatenate([getattr(b, name) for b in blocks]) for name in _COLUMNS})


_COLUMNS = tuple(field.name for field in fields(Block) if field.name != "instrument_id")


class Source(Protocol):
    """One opened file (or pair of files) of a known format."""

    name: str
    """File name, for messages."""
    description: str
    """Format and content in one line."""
    inferred: Instrument | None
    warnings: list[str]
    """Filled while `blocks` is consumed."""
    sort: bool
    """Read the whole file and sort it by time; set after an OutOfOrder."""

    def blocks(self) -> Iterator[Block]:
        """The rows, in order."""
        ...


class OutOfOrder(Exception):
    """A source's times go back, which it promises they do not: set its `sort` and read again (few files need it)."""

    def __init__(self, source: Source) -> None:
        self.source = source
