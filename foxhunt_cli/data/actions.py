"""What Databento's action, side and flags say of a row, whatever file it came in.

Trades, fills and "none" never change the book: such a row shows the book as it was before.
"""

from __future__ import annotations

from dataclasses import dataclass

import databento_dbn as dbn
import numpy as np

from foxhunt_cli.data.block import MASK_BAD_BOOK, MASK_CLEARED, MASK_SNAPSHOT, MASK_UNKNOWN

_KNOWN = np.frombuffer(b"ACMRTFN", np.uint8)


@dataclass(frozen=True)
class Acts:
    """Columns of a ``Block``, [n] each."""

    has_book: np.ndarray
    trade_volume: np.ndarray
    trade_count: np.ndarray
    masked: np.ndarray


def read_acts(action: np.ndarray, side: np.ndarray, size: np.ndarray, flags: np.ndarray | None) -> Acts:
    """action, side: [n] unsigned, code of the letter; size: [n], the source's units; flags: [n] integer, or None.

    Side B is a buyer's trade, A a seller's; the last reason to leave a row out wins.
    """
    traded = action == ord("T")
    no_book = traded | (action == ord("F")) | (action == ord("N"))
    sign = (side == ord("B")).astype(np.float64) - (side == ord("A"))
    masked = np.zeros(len(action), np.uint8)
    masked[~np.isin(action, _KNOWN)] = MASK_UNKNOWN
    masked[action == ord("R")] = MASK_CLEARED
    if flags is not None:
        masked[(flags & dbn.F_MAYBE_BAD_BOOK) != 0] = MASK_BAD_BOOK
        masked[(flags & dbn.F_SNAPSHOT) != 0] = MASK_SNAPSHOT
    volume = np.where(traded, sign * size, 0.0)
    return Acts(~no_book, volume, traded.astype(np.int64), masked)
