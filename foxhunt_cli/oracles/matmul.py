"""Oracles of the device's matrix products: every transpose, odd sizes, strided rows, accumulation, against float64.

On CUDA the same cases judge the float32 path (``--precision fp32``) and the tensor cores (``tf32``); the tolerance
follows the precision. ``--precision tf32`` states the error that TF32 has.
"""

from __future__ import annotations

import itertools

import numpy as np

from foxhunt_cli.device.base import Product
from foxhunt_cli.oracles.base import Trial, oracle

# max |error| / (K-norm of the operands). float32: rounding of a sum of K products, at most a few 2^-24 sqrt(K), with
# |a||b| divided out: below 1e-6 for K up to 4096. TF32 keeps 10 bits of each operand: 2 x 2^-11 a product, averaged.
FP32_TOLERANCE, TF32_TOLERANCE = 1e-6, 1e-3
# Many rows, and weight gradients over many rows: the shapes of the encoder, their last tile cut.
WIDE = ((32_805, 296, 128), (33_333, 128, 296), (40_000, 128, 128), (32_800, 56, 56))
TALL = ((128, 296, 9001), (56, 296, 8195), (128, 512, 8209), (128, 128, 8260), (56, 56, 33_000))
SHAPES = ((1, 1, 1), (1, 99, 272), (17, 11, 128), (56, 128, 300), (272, 99, 128), (257, 231, 33), (64, 2079, 128))


def tolerance(trial: Trial) -> float:
    """The bound that this device's precision deserves."""
    return trial.bound(FP32_TOLERANCE, TF32_TOLERANCE)


def product(trial: Trial, m: int, n: int, k: int, trans_a: bool, trans_b: bool, start: np.ndarray | None) -> np.ndarray:
    """One product on the device and in float64: the scaled error of every element."""
    rng = np.random.default_rng(m * 7919 + n * 31 + k)
    a = rng.standard_normal((k, m) if trans_a else (m, k)).astype(np.float32)
    b = rng.standard_normal((n, k) if trans_b else (k, n)).astype(np.float32)
    out = np.full((m, n), np.nan, np.float32) if start is None else start
    held = [trial.device.upload(x) for x in (a, b, out)]
    plan = trial.device.plan([Product(*held, trans_a, trans_b, start is not None)], use_graph=False)
    plan.run_eager()
    got = np.array(trial.device.download(held[2]), np.float64)
    wide_a, wide_b = (
        x.T if flag else x for x, flag in ((a.astype(np.float64), trans_a), (b.astype(np.float64), trans_b))
    )
    want = wide_a @ wide_b + (0.0 if start is None else start)
    scale = np.linalg.norm(wide_a, axis=1)[:, None] * np.linalg.norm(wide_b, axis=0)[None, :]
    return np.abs(got - want) / np.maximum(scale, 1e-30)


@oracle("matmul")
def products_match_float64_in_every_transpose(trial: Trial) -> None:
    """Seven shapes of the networks, all four transposes; an element that nobody wrote is NaN and fails."""
    for m, n, k in SHAPES:
        for trans_a, trans_b in itertools.product((False, True), repeat=2):
            label = f"{m}x{n}x{k}{' aT' if trans_a else ''}{' bT' if trans_b else ''}, scaled error"
            trial.close(label, 0.0, product(trial, m, n, k, trans_a, trans_b, None).max(), tolerance(trial))


@oracle("matmul")
def products_accumulate(trial: Trial) -> None:
    """out += a b keeps what was there."""
    start = np.random.default_rng(1).standard_normal((48, 99)).astype(np.float32)
    trial.close("scaled error", 0.0, product(trial, 48, 99, 64, True, False, start).max(), tolerance(trial))


@oracle("matmul")
def long_sums_are_as_exact_as_short_ones(trial: Trial) -> None:
    """A weight gradient over 40,000 tokens: split sums, added in a fixed order, twice the same bits."""
    first, second = (product(trial, 56, 99, 40_000, True, False, None) for _ in range(2))
    trial.close("scaled error", 0.0, first.max(), tolerance(trial))
    trial.equal("two runs", first, second)


@oracle("matmul")
def many_rows_match_float64(trial: Trial) -> None:
    """out = a b + addend: alone, onto another array, onto itself; the rows behind the last whole tile too."""
    rng = np.random.default_rng(3)
    for m, n, k in WIDE:
        a, addend = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((m, n)).astype(np.float32)
        for trans_b, mode in ((False, "alone"), (True, "alone"), (False, "addend"), (True, "accumulate")):
            b = rng.standard_normal((n, k) if trans_b else (k, n)).astype(np.float32)
            start = addend if mode == "accumulate" else np.full((m, n), np.nan, np.float32)
            held = [trial.device.upload(x) for x in (a, b, start, addend)]
            extra = held[3] if mode == "addend" else None
            step = Product(*held[:3], False, trans_b, mode == "accumulate", addend=extra)
            trial.device.plan([step], use_graph=False).run_eager()
            right = (b.T if trans_b else b).astype(np.float64)
            want = a.astype(np.float64) @ right + (0.0 if mode == "alone" else addend)
            scale = np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(right, axis=0)[None, :]
            error = np.abs(np.array(trial.device.download(held[2]), np.float64) - want) / scale
            trial.close(
                f"{m}x{n}x{k}{' bT' if trans_b else ''} {mode}, scaled error", 0.0, error.max(), tolerance(trial)
            )


@oracle("matmul")
def weight_gradients_come_with_the_sums_of_columns(trial: Trial) -> None:
    """out = aT b over many rows and few, and the sums of b's columns beside it."""
    rng = np.random.default_rng(4)
    for m, n, k in (*TALL, (128, 512, 40), (3, 11, 9)):
        a, b = rng.standard_normal((k, m)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
        empty = (np.full((rows, n), np.nan, np.float32) for rows in (m, 1))
        held = [trial.device.upload(x) for x in (a, b, *empty)]
        plan = trial.device.plan([Product(*held[:3], True, column_sums=held[3])], use_graph=False)
        plan.run_eager()
        out, sums = (np.array(trial.device.download(x), np.float64) for x in held[2:])
        scale = np.linalg.norm(a, axis=0)[:, None] * np.linalg.norm(b, axis=0)[None, :]
        error = np.abs(out - a.T.astype(np.float64) @ b) / scale
        trial.close(f"{m}x{n}x{k}, scaled error", 0.0, error.max(), tolerance(trial))
        error = np.abs(sums[0] - b.sum(0, np.float64)) / (np.linalg.norm(b, axis=0) * k**0.5)
        trial.close(f"{m}x{n}x{k} column sums, scaled error", 0.0, error.max(), tolerance(trial))
        plan.run_eager()
        trial.equal(f"{m}x{n}x{k}, two runs", out, np.array(trial.device.download(held[2]), np.float64))


@oracle("matmul")
def strided_rows_read_and_write_their_block_alone(trial: Trial) -> None:
    """A block of columns of a wider matrix, as an operand and as the output; the columns beside it stay."""
    rng = np.random.default_rng(2)
    wide, b = rng.standard_normal((40, 50)).astype(np.float32), rng.standard_normal((20, 8)).astype(np.float32)
    out = np.full((40, 16), 7.0, np.float32)
    held = [trial.device.upload(x) for x in (wide, b, out)]
    trial.device.plan([Product(held[0][:, 8:28], held[1], held[2][:, 4:12])], use_graph=False).run_eager()
    got = np.array(trial.device.download(held[2]))
    want = wide[:, 8:28].astype(np.float64) @ b
    scale = np.linalg.norm(wide[:, 8:28], axis=1)[:, None] * np.linalg.norm(b, axis=0)[None, :]
    trial.close("scaled error", 0.0, (np.abs(got[:, 4:12] - want) / scale).max(), tolerance(trial))
    trial.equal("columns beside it", 7.0, np.delete(got, np.s_[4:12], axis=1))


@oracle("matmul")
def a_nan_stays_visible(trial: Trial) -> None:
    """One NaN in a reaches its whole row of the product and nothing else."""
    a, b = np.ones((9, 33), np.float32), np.ones((33, 12), np.float32)
    a[4, 20] = np.nan
    held = [trial.device.upload(x) for x in (a, b, np.zeros((9, 12), np.float32))]
    trial.device.plan([Product(*held)], use_graph=False).run_eager()
    got = np.array(trial.device.download(held[2]))
    trial.true("its row", bool(np.isnan(got[4]).all()))
    trial.close("the others", 33.0, np.delete(got, 4, axis=0), 1e-4)
