"""Chooses how a matrix product runs on a GPU: tile shape and number of splits, from its sizes alone.

Owns the table of tile kernels (``cuda_src/cuda_only/gemm_*.cu``) and the rules. It neither imports CuPy nor looks at
the GPU: the same product is cut the same way on every card, so its order of addition is the same too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from foxhunt_cli.device.base import DeviceError, Product

DEPTH = 32  # splits are whole numbers of pipeline stages (gemm_tf32.cuh)
BUSY_BLOCKS = 264  # two blocks on each of 132 multiprocessors: enough to keep a large GPU's memory busy
ENOUGH_BLOCKS = 128  # with fewer blocks, smaller tiles are faster

# Tiles from the widest down: (rows, columns, blocks below which the next is tried). Measured on one H200.
TILES = {
    "tf32": ((128, 128, ENOUGH_BLOCKS), (128, 64, ENOUGH_BLOCKS), (64, 64, ENOUGH_BLOCKS), (32, 64, 64), (16, 32, 0)),
    "fp32": ((128, 128, ENOUGH_BLOCKS), (64, 64, ENOUGH_BLOCKS), (32, 32, 0)),
}

MANY_ROWS, MANY_K = 32768, 8192  # from which on the kernels of Hopper are the faster ones
MULTIPROCESSORS = 132  # of a Hopper GPU: how many blocks share the rows, whatever the card has
# What stays on a multiprocessor while the rows pass, from the smallest up. gemm_rows.cu: (columns, k) of b.
# gemm_tall.cu: (rows, columns, blocks a multiprocessor) of a tile of the result.
ROWS = ((56, 304), (128, 128), (128, 304), (304, 128))
TALL = ((56, 56, 3), (128, 128, 2), (56, 296, 1), (128, 256, 1))


@dataclass(frozen=True)
class Shape:
    """out[m, n] over k, with row strides in elements."""

    m: int
    n: int
    k: int
    lda: int
    ldb: int
    ldo: int


@dataclass(frozen=True)
class Cut:
    """Tile kernel, tile sizes, and how many splits of how many k."""

    kernel: str
    rows: int
    cols: int
    k_chunk: int
    splits: int
    persistent: int = 0  # blocks that share all tiles, where a block takes more than one

    def blocks(self, shape: Shape) -> int:
        """Blocks of the launch."""
        if self.persistent:
            return self.persistent
        return -(-shape.m // self.rows) * -(-shape.n // self.cols) * self.splits

    def workspace(self, shape: Shape, column_sums: bool = False) -> int:
        """Floats of partial sums between the two passes; 0 where one pass does."""
        return (shape.m + column_sums) * shape.n * self.splits if self.splits > 1 else 0

    @property
    def family(self) -> str:
        """Of its kernels: ``tf32``, ``fp32``, ``rows`` or ``tall``."""
        return self.kernel.split("_")[1]


def shape_of(product: Product) -> Shape:
    """Sizes of a product. Raises DeviceError naming operand, expected and got."""
    a, b, out = product.a, product.b, product.out
    for name, array in (("a", a), ("b", b), ("out", out)):
        if array.ndim != 2 or array.dtype != np.float32:
            raise DeviceError(f"product: {name} must be a 2-D float32 array, got {array.ndim}-D {array.dtype}")
        if 0 in array.shape:
            raise DeviceError(f"product: {name} is empty, shape {array.shape}")
    m, k = a.shape[::-1] if product.trans_a else a.shape
    depth, n = b.shape[::-1] if product.trans_b else b.shape
    if k != depth or out.shape != (m, n):
        raise DeviceError(
            f"product: op(a) is [{m}, {k}] and op(b) [{depth}, {n}], so out must be [{m}, {n}] and the inner "
            f"sizes equal; out is {list(out.shape)}"
        )
    return Shape(m, n, k, row_stride("a", a), row_stride("b", b), row_stride("out", out))


def row_stride(name: str, array: Any) -> int:
    """Elements from one row to the next. Raises DeviceError where a row's own elements are not adjacent."""
    rows, cols = array.shape
    across, along = array.strides[0] // 4, array.strides[1] // 4
    if rows == 1:
        across = cols
    if (cols > 1 and along != 1) or across < cols:
        raise DeviceError(
            f"product: rows of {name} must be adjacent elements (a transposed view? use trans_{name[0]}); "
            f"strides are {array.strides} bytes"
        )
    return across


def tile_for(shape: Shape, trans_a: bool, trans_b: bool, precision: str) -> tuple[int, int]:
    """(rows, columns) of the tile."""
    if trans_a and trans_b:
        return 64, 64  # the one shape compiled for this rare case
    if shape.n <= 16 and shape.m > 64:
        return 128, 16
    for rows, cols, enough in TILES[precision]:
        if (rows == 128 and shape.m <= 64) or (cols == 128 and shape.n <= 64):
            continue
        # Float32 is bound by arithmetic: columns of a tile that lie outside the matrix cost what the others do.
        if precision == "fp32" and cols == 128 and _tiles(shape.n, cols) * cols > 1.15 * shape.n:
            continue
        # A second pass pays where k is long; where it is short, smaller tiles come first and splits last.
        splits = splits_for(shape, rows, cols) if shape.k >= 2048 or rows <= 32 else 1
        if _tiles(shape.m, rows) * _tiles(shape.n, cols) * splits >= enough:
            wide = precision == "tf32" and cols == 128 and _tiles(shape.n, 160) < _tiles(shape.n, 128)
            return rows, 160 if wide else cols
    raise AssertionError("the last tile takes every shape")


def splits_for(shape: Shape, rows: int, cols: int) -> int:
    """How many splits keep the GPU busy: 1 where the tiles alone do or k is too short for a second pass to pay."""
    tiles = _tiles(shape.m, rows) * _tiles(shape.n, cols)
    if shape.k < 256 or tiles > BUSY_BLOCKS // 4:
        return 1
    shortest = 64 if shape.k <= 1024 else 256
    return max(1, min(BUSY_BLOCKS // tiles, shape.k // shortest))


def cut(
    shape: Shape, trans_a: bool = False, trans_b: bool = False, precision: str = "tf32", hopper: bool = False
) -> Cut:
    """How this product is cut. hopper: its own kernels run, and operands start at multiples of 16 bytes."""
    special = hopper_cut(shape, trans_a, trans_b) if hopper and precision == "tf32" else None
    if special:
        return special
    rows, cols = tile_for(shape, trans_a, trans_b, precision)
    return cut_with(shape, precision, rows, cols, splits_for(shape, rows, cols))


def cut_with(shape: Shape, precision: str, rows: int, cols: int, splits: int) -> Cut:
    """A cut with the given tile and at most ``splits`` splits, none of them empty."""
    chunk = _tiles(_tiles(shape.k, splits), DEPTH) * DEPTH
    return Cut(f"gemm_{precision}_{rows}x{cols}", rows, cols, chunk, _tiles(shape.k, chunk))


def hopper_cut(shape: Shape, trans_a: bool, trans_b: bool) -> Cut | None:
    """The cut where everything but the rows that pass fits on one multiprocessor, and there are many of those."""
    strides = (shape.lda, shape.ldb, *(() if trans_a else (shape.ldo,)))
    if any(stride % 4 for stride in strides) or (trans_a and trans_b):
        return None
    if not trans_a:
        fits = [r for r in ROWS if shape.n <= r[0] and shape.k <= r[1]]
        if shape.m < MANY_ROWS or shape.n % 8 or shape.k % 4 or shape.n < 48 or not fits:
            return None
        cols, depth = fits[0]
        blocks = min(MULTIPROCESSORS, _tiles(shape.m, 64))
        return Cut(f"gemm_rows_{cols}x{depth}", 64, cols, shape.k, 1, blocks)
    if shape.k < MANY_K or shape.m > 128 or shape.n > 512 or shape.m < 48 or shape.n < 48:
        return None
    rows, cols, blocks = next((t for t in TALL if shape.m <= t[0] and shape.n <= t[1]), TALL[-1])
    if _tiles(shape.n, cols) * cols > 1.25 * shape.n:
        return None  # most of the last tile would be outside
    splits = blocks * MULTIPROCESSORS // _tiles(shape.n, cols)
    chunk = _tiles(_tiles(shape.k, splits), DEPTH) * DEPTH
    return Cut(f"gemm_tall_{rows}x{cols}", rows, cols, chunk, _tiles(shape.k, chunk))


def _tiles(size: int, tile: int) -> int:
    return -(-size // tile)
