"""Oracles of the data columns: record layout, the 40 features of a snapshot, multi-resolution features.

References are float64 numpy written from the definitions in market.md and in the kernels' comments.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from foxhunt_cli.config.dims import ENCODER_INPUT_DIM, FEATURE_DIM, MULTIRES_DIM
from foxhunt_cli.data.record import SNAPSHOT
from foxhunt_cli.isv.seeds import seed_values
from foxhunt_cli.isv.table import number
from foxhunt_cli.market.windows import segments
from foxhunt_cli.oracles.base import Trial, oracle

COLUMNS = tuple(name for name in SNAPSHOT.names if name != "padding")
# Features are of order 1 and at most 16; a few float32 roundings of 2^-24 each, and ln(1 + v) rounds 1 + v once more.
FEATURE_TOLERANCE = 1e-5
# Sums are float64 on both sides; what is left is the rounding of the result to float32 (values up to 16: 2^-20).
MULTIRES_TOLERANCE = 2e-6


def random_columns(seed: int, n: int, session_start: tuple[int, ...] = (0,)) -> dict[str, np.ndarray]:
    """Columns of a plausible market: moving mid, absent levels at the back, bursts, equal and distant time stamps."""
    rng = np.random.default_rng(seed)
    bid = 100.0 + np.cumsum(rng.integers(-1, 2, n))
    spread = rng.integers(1, 4, n)
    columns: dict[str, np.ndarray] = {}
    for side, best, sign in (("bid", bid, -1), ("ask", bid + spread, 1)):
        steps = rng.integers(1, 3, (n, 10))
        steps[:, 0] = 0
        px = best[:, None] + sign * np.cumsum(steps, axis=1)
        sz = rng.integers(1, 400, (n, 10)).astype(np.float32)
        present = rng.integers(1, 11, n)[:, None]
        absent = np.arange(10)[None, :] >= present
        worst = np.take_along_axis(px, present - 1, axis=1)
        columns[f"{side}_px"] = np.where(absent, worst, px).astype(np.float32)
        columns[f"{side}_sz"] = np.where(absent, 0, sz).astype(np.float32)
    ts = 1_700_000_000_000_000_000 + np.cumsum(rng.choice([0, 10_000, 3_000_000, 900_000_000], n))
    previous = np.maximum(np.arange(n) - 1, 0)
    previous[list(session_start)] = list(session_start)
    mid = (columns["bid_px"][:, 0] + columns["ask_px"][:, 0]) / 2
    columns["prev_mid"] = mid[previous].astype(np.float32)
    columns["trade_signed_vol"] = rng.integers(-50, 51, n).astype(np.float32)
    columns["trade_count"] = rng.integers(0, 5, n).astype(np.uint32)
    columns["ts_ns"], columns["prev_ts_ns"] = ts.astype(np.uint64), ts[previous].astype(np.uint64)
    columns["regime"] = rng.uniform(0.0, 3.0, (n, 6)).astype(np.float32)
    return columns


def assemble(
    trial: Trial,
    columns: dict[str, np.ndarray],
    multires: np.ndarray,
    cursor: Any,
    offset: int,
    window: tuple[int, int],
) -> np.ndarray:
    """x [K + T, B, 56] by the kernel; window = (K, T)."""
    cursor = np.asarray(cursor, np.int32)
    k, t = window
    x = np.zeros((k + t, len(cursor), ENCODER_INPUT_DIM), np.float32)
    arrays = {**columns, "multires": multires, "cursor": cursor, "x": x}
    sizes = {"offset": offset, "K": k, "W": k + t, "B": len(cursor), "N_SNAP": len(multires)}
    return trial.run("snap_feature_assemble_batched", arrays, **sizes)["x"]


def reference_features(columns: dict[str, np.ndarray]) -> np.ndarray:
    """[N, 40] float64 from the definitions."""
    c = {name: value.astype(np.float64) for name, value in columns.items() if not name.endswith("ts_ns")}
    f = np.zeros((len(c["prev_mid"]), FEATURE_DIM))
    bid_px, bid_sz, ask_px, ask_sz = (c[name] for name in ("bid_px", "bid_sz", "ask_px", "ask_sz"))
    mid = (bid_px[:, 0] + ask_px[:, 0]) / 2
    f[:, 0:10], f[:, 10:20] = 0.25 * np.log1p(bid_sz), 0.25 * np.log1p(ask_sz)
    f[:, 20] = ask_px[:, 0] - bid_px[:, 0]
    weight = bid_sz[:, 0] + ask_sz[:, 0]
    f[:, 21] = 2 * ((bid_px[:, 0] * ask_sz[:, 0] + ask_px[:, 0] * bid_sz[:, 0]) / weight - mid)
    for column, depth in zip(range(22, 26), (1, 3, 5, 10), strict=True):
        bids, asks = bid_sz[:, :depth].sum(axis=1), ask_sz[:, :depth].sum(axis=1)
        f[:, column] = (bids - asks) / (bids + asks)
    f[:, 26] = mid - c["prev_mid"]
    f[:, 27] = 0.5 * np.sign(c["trade_signed_vol"]) * np.log1p(np.abs(c["trade_signed_vol"]))
    f[:, 28] = np.log1p(c["trade_count"])
    f[:, 29] = 0.1 * np.log1p((columns["ts_ns"] - columns["prev_ts_ns"]).astype(np.float64) / 1000)
    for column, px, sz in ((30, bid_px, bid_sz), (31, ask_px, ask_sz)):
        distance, present = np.abs(px[:, 9] - px[:, 0]), (sz > 0).sum(axis=1)
        growth = np.log1p(sz.sum(axis=1)) - np.log1p(sz[:, 0])
        f[:, column] = np.where(distance > 0, 3 * growth / np.maximum(distance, 1), 0)
        f[:, column + 2] = np.where(present > 1, distance / np.maximum(present - 1, 1), 0)
    f[:, 34:40] = c["regime"]
    f[:, 37] = 0.5 * np.log1p(c["regime"][:, 3])
    return np.clip(f, -16, 16)


@oracle("features")
def features_match_the_float64_reference(trial: Trial) -> None:
    columns = random_columns(1, 300)
    multires = np.random.default_rng(2).normal(size=(300, MULTIRES_DIM)).astype(np.float32)
    cursor, k, t = np.array([40, 7, 250, 123, 290]), 8, 9
    x = assemble(trial, columns, multires, cursor, 0, (k, t))
    at = cursor[None, :] - (k - 1) + np.arange(k + t)[:, None]
    trial.close("40 features", reference_features(columns)[at], x[..., :FEATURE_DIM], FEATURE_TOLERANCE)
    trial.equal("place of the trade context", 0.0, x[..., FEATURE_DIM : FEATURE_DIM + 4])
    trial.equal("multi-resolution columns", multires[at], x[..., FEATURE_DIM + 4 :])


def _plain_book() -> dict[str, np.ndarray]:
    """One snapshot: ten levels one tick apart, bids 30 lots, asks 10 lots, best prices 99 and 101."""
    level = np.arange(10, dtype=np.float32)
    return {
        "bid_px": (99 - level)[None],
        "bid_sz": np.full((1, 10), 30, np.float32),
        "ask_px": (101 + level)[None],
        "ask_sz": np.full((1, 10), 10, np.float32),
        "prev_mid": np.array([99.5], np.float32),
        "trade_signed_vol": np.array([-7], np.float32),
        "trade_count": np.array([2], np.uint32),
        "ts_ns": np.array([5_000_000], np.uint64),
        "prev_ts_ns": np.array([4_000_000], np.uint64),
        "regime": np.array([[0.5, 0.4, 0.2, 3.0, 1.5, 0.75]], np.float32),
    }


def _one(trial: Trial, columns: dict[str, np.ndarray]) -> np.ndarray:
    """Features of a single snapshot."""
    return assemble(trial, columns, np.zeros((1, MULTIRES_DIM), np.float32), [0], 0, (1, 0))[0, 0]


@oracle("features")
def features_of_a_hand_computed_book(trial: Trial) -> None:
    f = _one(trial, _plain_book())
    trial.close("bid sizes: ln(31) / 4", 0.8584968, f[0:10], FEATURE_TOLERANCE)
    trial.close("ask sizes: ln(11) / 4", 0.5994738, f[10:20], FEATURE_TOLERANCE)
    trial.equal("spread", 2.0, f[20])
    trial.close("microprice 100.5, mid 100, scale 2", 1.0, f[21], FEATURE_TOLERANCE)
    trial.close("imbalance (30 - 10) / 40 at any depth", 0.5, f[22:26], FEATURE_TOLERANCE)
    trial.equal("mid change", 0.5, f[26])
    trial.close("-ln(8) / 2", -1.0397208, f[27], FEATURE_TOLERANCE)
    trial.close("ln 3", 1.0986123, f[28], FEATURE_TOLERANCE)
    trial.close("ln(1001) / 10", 0.6908755, f[29], FEATURE_TOLERANCE)
    trial.close("bid slope: 3 ln(301 / 31) / 9", 0.7577078, f[30], FEATURE_TOLERANCE)
    trial.close("ask slope: 3 ln(101 / 11) / 9", 0.7390751, f[31], FEATURE_TOLERANCE)
    trial.equal("gaps", 1.0, f[32:34])
    regime = [0.5, 0.4, 0.2, 0.6931472, 1.5, 0.75]
    trial.close("regime, ln(4) / 2 for the trade rate", regime, f[34:40], FEATURE_TOLERANCE)


@oracle("features")
def features_of_a_book_with_one_level(trial: Trial) -> None:
    book = _plain_book()
    for side, best in (("bid", 99), ("ask", 101)):
        book[f"{side}_px"][:] = best
        book[f"{side}_sz"][:, 1:] = 0
    f = _one(trial, book)
    trial.equal("absent sizes", 0.0, np.concatenate([f[1:10], f[11:20]]))
    trial.close("imbalance at every depth is that of level 0", 0.5, f[22:26], FEATURE_TOLERANCE)
    trial.equal("no slope, no gap", 0.0, f[30:34])


@oracle("features")
def features_are_bounded_and_keep_nan(trial: Trial) -> None:
    book = _plain_book()
    book["ask_px"] += 500
    book["ts_ns"][:] = 1  # before prev_ts_ns
    f = _one(trial, book)
    trial.equal("a halt's spread", 16.0, f[20])
    trial.equal("time that runs back", 0.0, f[29])
    book["bid_sz"][0, 4] = np.nan
    trial.true("a NaN size is not turned into a number", np.isnan(_one(trial, book)[4]))


@oracle("features")
def snapshot_aos_to_soa_keeps_every_bit(trial: Trial) -> None:
    n, blocks = 300, ((0, 128), (128, 128), (256, 44))
    rng = np.random.default_rng(3)
    records = rng.integers(0, 256, n * SNAPSHOT.itemsize, dtype=np.uint8).view(SNAPSHOT)
    columns = {name: np.zeros((n, *SNAPSHOT[name].shape), SNAPSHOT[name].base) for name in COLUMNS}
    for first, count in blocks:
        arrays = {**columns, "records": records[first : first + count].view(np.uint8)}
        columns = trial.run("snapshot_aos_to_soa", arrays, first=first, N_BLOCK=count, N_SNAP=n)
    for name in COLUMNS:
        trial.equal(name, records[name].ravel().view(np.uint8), columns[name].ravel().view(np.uint8))


@oracle("features")
def session_end_is_the_next_sessions_start(trial: Trial) -> None:
    first = np.array([0, 1, 70, 71, 200], np.int32)
    out = np.zeros(200, np.int32)
    got = trial.run("gpu_session_end", {"session_first": first, "session_end": out}, N_SESSIONS=4, N_SNAP=200)
    trial.equal("session_end", np.repeat(first[1:], np.diff(first)), got["session_end"])


# Multi-resolution features -------------------------------------------------------------------------------------------


def run_multires(
    trial: Trial, columns: dict[str, np.ndarray], session_start: tuple[int, ...], length: int
) -> np.ndarray:
    """[N, 12] by the three passes, with segments of ``length`` snapshots."""
    n = len(columns["ts_ns"])
    first, restart = segments(np.array(session_start), n, length)
    arrays = {**columns, "isv": seed_values({}), "segment_first": first, "segment_restart": restart}
    arrays["segment_sum"] = np.zeros((len(restart), 18))
    arrays["segment_decay"] = np.zeros((len(restart), 3))
    arrays["segment_carry"] = np.zeros((len(restart), 18))
    arrays["multires"] = np.zeros((n, MULTIRES_DIM), np.float32)
    for name in ("multires_segment_sums", "multires_carry", "multires_column"):
        arrays.update(trial.run(name, arrays, N_SEGMENTS=len(restart)))
    return arrays["multires"]


def reference_multires(columns: dict[str, np.ndarray], session_start: tuple[int, ...]) -> np.ndarray:
    """[N, 12] float64, one snapshot after another. The price change is mid minus its EMA, not the kernel's form."""
    isv = seed_values({}).astype(np.float64)
    tau = isv[number("MULTIRES_HORIZON_FAST") : number("MULTIRES_HORIZON_SLOW") + 1]
    bid, ask, bid_sz, ask_sz = (columns[n][:, 0].astype(np.float64) for n in ("bid_px", "ask_px", "bid_sz", "ask_sz"))
    mid, out = (bid + ask) / 2, np.zeros((len(bid), MULTIRES_DIM))
    least = tau * (1 - np.exp(-1 / tau))
    for i in range(len(bid)):
        if i in session_start:
            average, square, flow, flow_abs, trades, mass = mid[i] + np.zeros(3), *(np.zeros(3) for _ in range(5))
            continue
        dt = (int(columns["ts_ns"][i]) - int(columns["ts_ns"][i - 1])) * 1e-9
        a, j = np.exp(-dt / tau), i - 1
        e = (bid[i] >= bid[j]) * bid_sz[i] - (bid[i] <= bid[j]) * bid_sz[j]
        e += (ask[i] >= ask[j]) * ask_sz[j] - (ask[i] <= ask[j]) * ask_sz[i]
        average = average + (1 - a) * (mid[j] - average)
        square, flow = a * square + (mid[i] - mid[j]) ** 2, a * flow + e
        flow_abs, trades = a * flow_abs + abs(e), a * trades + float(columns["trade_count"][i])
        mass = mass + (1 - a) * (tau - mass)
        known = np.maximum(mass, least)
        ratio = np.divide(flow, flow_abs, out=np.zeros(3), where=flow_abs > 1e-9)
        features = ((mid[i] - average) / np.sqrt(tau), np.sqrt(square / known), ratio, np.log1p(trades / known) / 2)
        out[i] = np.stack(features, axis=1).ravel()
    return out


@oracle("multires")
def multires_chunked_equals_streaming_float64(trial: Trial) -> None:
    sessions = (0, 700, 701, 1500)
    columns = random_columns(4, 2500, sessions)
    want = reference_multires(columns, sessions)
    trial.close("segments of 256", want, run_multires(trial, columns, sessions, 256), MULTIRES_TOLERANCE)
    trial.close("one segment a session", want, run_multires(trial, columns, sessions, 4096), MULTIRES_TOLERANCE)


@oracle("multires")
def multires_session_knows_nothing_of_the_one_before(trial: Trial) -> None:
    columns = random_columns(5, 600, (0, 200))
    whole = run_multires(trial, columns, (0, 200), 64)
    alone = run_multires(trial, {name: value[200:] for name, value in columns.items()}, (0,), 64)
    trial.equal("second session alone", alone, whole[200:])
    trial.equal("first snapshot of a session", 0.0, whole[[0, 200]])
    trial.true("the rest is not zero", np.any(whole[201:] != 0))


@oracle("multires")
def multires_streaming_kernel_equals_the_column(trial: Trial) -> None:
    n = 40
    columns = random_columns(6, n)
    column = run_multires(trial, columns, (0,), n)
    arrays = {**columns, "isv": seed_values({}), "multires_row": np.zeros((1, MULTIRES_DIM), np.float32)}
    arrays["multires_state"] = np.full((1, 18), np.nan)  # what a new episode must not read
    rows = []
    for s in range(n):
        arrays |= {"cursor": np.array([s], np.int32), "new_episode": np.array([s == 0], np.uint8)}
        arrays |= trial.run("rl_multires_features_update", arrays, B=1, offset=0)
        rows.append(arrays["multires_row"][0].copy())
        if s + 1 < n:
            arrays |= trial.run("rl_multires_features_update", arrays, B=1, offset=1)
    trial.equal("the same operations in the same order", column, np.array(rows))


@oracle("multires")
def multires_of_one_move_then_silence(trial: Trial) -> None:
    n = 4
    columns = random_columns(7, n)
    for name, start in (("bid_px", 99.0), ("ask_px", 101.0)):
        columns[name][:] = start
        columns[name][1:] += 1  # both sides up one tick at snapshot 1
    columns["bid_sz"][:, 0], columns["ask_sz"][:, 0] = 10, 20
    columns["trade_count"][:] = [5, 3, 0, 0]
    columns["ts_ns"][:] = np.array([0, 1, 3, 7]) * 1_000_000_000
    got = run_multires(trial, columns, (0,), 2).reshape(n, 3, 4)
    age, elapsed, tau = np.array([0, 2, 6.0])[:, None], np.array([1, 3, 7.0])[:, None], np.array([1, 10, 600.0])
    left, mass = np.exp(-age / tau), tau * (1 - np.exp(-elapsed / tau))
    trial.close("price change: e^(-age / tau) / sqrt(tau)", left / np.sqrt(tau), got[1:, :, 0], MULTIRES_TOLERANCE)
    trial.close("volatility: sqrt(e^(-age / tau) / mass)", np.sqrt(left / mass), got[1:, :, 1], MULTIRES_TOLERANCE)
    # +10 lots of a higher bid, +20 of a lifted ask: all flow is buying.
    trial.close("order flow", 1.0, got[1:, :, 2], MULTIRES_TOLERANCE)
    burst = np.log1p(3 * left / mass) / 2
    trial.close("burst: ln(1 + 3 e^(-age / tau) / mass) / 2", burst, got[1:, :, 3], MULTIRES_TOLERANCE)
