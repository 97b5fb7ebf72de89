"""Damage, on purpose: what real captures do to readers, injected into a clean market at known rates.

For the readers' and the cleaning stage's tests, and for `--preset dirty`. Never more than 5 % of the
rows are damaged beyond use.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from foxhunt_cli.data.block import UNDEFINED_PRICE, Block
from foxhunt_cli.data.synthetic import SyntheticMarket, SyntheticOptions, make_market

BLOCK_ROWS = 8192
HALT_NS = 20 * 60 * 1_000_000_000
WEEKEND_NS = 49 * 3600 * 1_000_000_000


def to_block(market: SyntheticMarket) -> Block:
    """A clean market as raw rows, in currency and source units."""
    records, instrument = market.records, market.instrument
    price = np.stack([records["bid_px"], records["ask_px"]], axis=2)
    size = np.stack([records["bid_sz"], records["ask_sz"]], axis=2).astype(np.float64)
    nano = (np.rint(price).astype(np.int64) + market.reference_ticks) * instrument.tick_nano
    n = len(records)
    return Block(
        row=np.arange(n),
        ts=records["ts_ns"].astype(np.int64),
        price=np.where(size > 0, nano, UNDEFINED_PRICE),
        size=size * instrument.size_per_lot,
        has_book=np.ones(n, bool),
        trade_volume=records["trade_signed_vol"].astype(np.float64) * instrument.size_per_lot,
        trade_count=records["trade_count"].astype(np.int64),
        masked=np.zeros(n, np.uint8),
    )


def damage(block: Block, seed: int) -> None:
    """Damage a block in place."""
    rng = np.random.default_rng([seed, 0xD1127])
    n = len(block)
    _absent_levels(block, rng)
    for _ in range(max(1, n // 40_000)):  # the book stays crossed for a while
        a = int(rng.integers(0, n))
        b = min(n, a + int(rng.integers(1, max(2, min(300, n // 50)))))
        block.price[a:b] = block.price[a:b, :, ::-1]
    for at, pause in ((n // 3, HALT_NS), (2 * n // 3, WEEKEND_NS)):
        block.ts[at:] += pause
    same = rng.choice(np.arange(1, n), n // 50, replace=False) if n > 100 else np.array([], np.int64)
    block.ts[same] = block.ts[same - 1]
    back = rng.choice(np.arange(1, n), n // 500, replace=False) if n > 500 else np.array([], np.int64)
    block.ts[back] -= rng.integers(1, 1_000_000_000, len(back))


def _absent_levels(block: Block, rng: np.random.Generator) -> None:
    """Tails of the book missing in 5 % of the rows, a whole side in 0.3 %."""
    n = len(block)
    for rows, first in ((np.flatnonzero(rng.random(n) < 0.05), 1), (np.flatnonzero(rng.random(n) < 0.003), 0)):
        start = rng.integers(first, 10, len(rows)) if first else np.zeros(len(rows), np.int64)
        side = rng.integers(0, 2, len(rows))
        for row, level, which in zip(rows, start, side, strict=True):
            block.price[row, level:, which] = UNDEFINED_PRICE
            block.size[row, level:, which] = 0


def dirty_blocks(options: SyntheticOptions) -> Iterator[Block]:
    """The preset `dirty`, as a reader would hand it over."""
    block = to_block(make_market(options))
    damage(block, options.seed)
    for a in range(0, len(block), BLOCK_ROWS):
        yield block[a : a + BLOCK_ROWS]
