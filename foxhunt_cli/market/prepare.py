"""Puts a data set on the device: columns, features and labels that are computed once, legal episode starts.

Owns the order of that work and its memory. It draws nothing at random and fits nothing but the sigmas of the
forward returns, on the data set it is given: hand it the training range alone, and the held-out range with the
training sigmas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from foxhunt_cli.buffers.data import ROWS, SCRATCH
from foxhunt_cli.buffers.row import Buffer
from foxhunt_cli.buffers.table import shape
from foxhunt_cli.config.dims import FRD_HORIZONS, WARMUP_SNAPSHOTS
from foxhunt_cli.config.instruments import Instrument
from foxhunt_cli.data.errors import DataError
from foxhunt_cli.data.market_data import MarketData
from foxhunt_cli.data.record import SNAPSHOT_BYTES
from foxhunt_cli.device.base import Array, Device
from foxhunt_cli.isv.table import number
from foxhunt_cli.kernels.bind import bind
from foxhunt_cli.kernels.registry import kernel
from foxhunt_cli.market.windows import (
    EPISODE_LEN_MAX,
    Spans,
    choose_episode_len,
    forward_sigmas,
    legal_spans,
    segments,
    snapshots_needed,
)

BLOCK_RECORDS = 1 << 16
"""Records of one upload: 14 MB of staging on host and device."""
MAX_SNAPSHOTS = 2**31 - 1 - 2**20
"""Indices are int32, with room for a window and a block beyond the end."""
UPLOAD_KERNEL = "snapshot_aos_to_soa"
ONCE_KERNELS = ("gpu_session_end", "multires_segment_sums", "multires_carry", "multires_column", "gpu_frd_labels")
"""What runs once behind the upload, in order."""
PREPARE_KERNELS = (UPLOAD_KERNEL, *ONCE_KERNELS)


@dataclass(frozen=True)
class PreparedData:
    """A data set on the device, ready for windows to be cut from it."""

    arrays: dict[str, Array]
    """Device arrays of lifetime "data" by buffer name."""
    instrument: Instrument
    n_snapshots: int
    """N_SNAP."""
    n_spans: int
    """N_SPANS."""
    episode_len: int
    """Steps of an episode, a whole number of rollouts."""
    sigmas: np.ndarray
    """float32 [3], ticks: standard deviation of forward returns; slots FRD_SIGMA_*."""
    notes: tuple[str, ...]
    """Lines for people: what about this data set differs from the ordinary."""


def prepare_data(
    device: Device,
    market: MarketData,
    isv_seed: np.ndarray,
    *,
    rollout: int,
    latency: int,
    episode_len: int | None = None,
    sigmas: np.ndarray | None = None,
    role: str = "training",
) -> PreparedData:
    """Upload ``market`` and compute its columns, labels and legal starts.

    isv_seed: start-up vector, for the time constants and the label span. sigmas: None fits them to this data set.
    role: what messages call the data. Raises DataError.
    """
    n_snap, sessions = len(market), np.asarray(market.session_start, np.int64)
    length = choose_episode_len(int(market.session_lengths.max()), rollout, latency, episode_len, role)
    spans = legal_spans(sessions, n_snap, length, latency)
    segment_first, segment_restart = segments(sessions, n_snap)
    dims = {"N_SNAP": n_snap, "N_SESSIONS": len(sessions), "N_SPANS": len(spans.first)}
    scratch_dims = {**dims, "N_SEGMENTS": len(segment_restart), "BLOCK_RECORDS": min(BLOCK_RECORDS, n_snap)}
    _check_memory(device, market, scratch_dims, role)
    missing: tuple[int, ...] = ()
    if sigmas is None:
        sigmas, missing = forward_sigmas(market.records, sessions)

    device.compile([kernel(name) for name in PREPARE_KERNELS])
    arrays = _allocate(device, _data_rows(), dims)
    scratch = _allocate(device, SCRATCH, scratch_dims)
    device.write(arrays["span_first"], spans.first)
    device.write(arrays["span_cumulative"], spans.cumulative)
    device.write(scratch["session_first"], np.append(sessions, n_snap).astype(np.int32))
    device.write(scratch["segment_first"], segment_first)
    device.write(scratch["segment_restart"], segment_restart)
    _upload(device, market.records, {**arrays, **scratch})
    scratch["isv"] = device.upload(with_sigmas(isv_seed, sigmas))
    _run_once(device, {**arrays, **scratch}, scratch_dims)
    return PreparedData(
        arrays=arrays,
        instrument=market.instrument,
        n_snapshots=n_snap,
        n_spans=len(spans.first),
        episode_len=length,
        sigmas=np.array(sigmas, np.float32),
        notes=_notes(market, length, latency, spans, missing, episode_len, role),
    )


def with_sigmas(isv: np.ndarray, sigmas: np.ndarray) -> np.ndarray:
    """A copy of the start-up vector with the forward-return sigmas in their slots."""
    filled = np.array(isv, np.float32)
    for name, sigma in zip(("SHORT", "MEDIUM", "LONG"), sigmas, strict=True):
        filled[number(f"FRD_SIGMA_{name}")] = sigma
    return filled


def _data_rows() -> tuple[Buffer, ...]:
    return tuple(row for row in ROWS if row.lifetime == "data")


def _allocate(device: Device, rows: tuple[Buffer, ...], dims: dict[str, int]) -> dict[str, Array]:
    return {row.name: device.zeros(shape(row, dims), row.dtype) for row in rows}


def _bytes(rows: tuple[Buffer, ...], dims: dict[str, int]) -> int:
    return sum(math.prod(shape(row, dims)) * np.dtype(row.dtype).itemsize for row in rows)


def _check_memory(device: Device, market: MarketData, dims: dict[str, int], role: str) -> None:
    """Raises DataError where columns and scratch are more than the device has free."""
    n_snap = dims["N_SNAP"]
    if n_snap > MAX_SNAPSHOTS:
        raise DataError(f"{role} data: {n_snap:,} snapshots, the limit is {MAX_SNAPSHOTS:,}; cut with --start/--end")
    need = _bytes(_data_rows(), dims) + _bytes(SCRATCH, dims)
    free, _ = device.memory()
    if need <= free:
        return
    raise DataError(
        f"{role} data ({market.source}): {n_snap:,} snapshots need {_gib(need)} of memory on {device.name}, and "
        f"{_gib(free)} are free; cut the data with --max-snapshots {int(n_snap * free / need)} or --start/--end"
    )


def _gib(count: int) -> str:
    return f"{count / 2**30:.2f} GiB" if count >= 2**27 else f"{count / 2**20:.1f} MiB"


def _upload(device: Device, records: np.ndarray, arrays: dict[str, Any]) -> None:
    """Records to columns, one block at a time through one staging array."""
    contract, n_snap = kernel(UPLOAD_KERNEL), len(records)
    for first in range(0, n_snap, BLOCK_RECORDS):
        block = records[first : first + BLOCK_RECORDS]
        staging = arrays["records"][: len(block) * SNAPSHOT_BYTES]
        device.write(staging, block.view(np.uint8))
        sizes = {"first": first, "N_BLOCK": len(block), "N_SNAP": n_snap}
        device.plan([bind(contract, {**arrays, "records": staging}, sizes)], use_graph=False).run()
        device.synchronize()  # the staging array is about to be overwritten


def _run_once(device: Device, arrays: dict[str, Any], dims: dict[str, int]) -> None:
    """Session ends, multi-resolution features and labels."""
    names = ("horizon_short", "horizon_medium", "horizon_long")
    sizes = {**dims, **dict(zip(names, FRD_HORIZONS, strict=True))}
    launches = [bind(kernel(name), arrays, sizes) for name in ONCE_KERNELS]
    device.plan(launches, use_graph=False).run()
    device.synchronize()


def _notes(
    market: MarketData,
    length: int,
    latency: int,
    spans: Spans,
    missing: tuple[int, ...],
    wanted: int | None,
    role: str,
) -> tuple[str, ...]:
    notes = []
    lengths = market.session_lengths
    if wanted is None and length < EPISODE_LEN_MAX - EPISODE_LEN_MAX // 4:
        notes.append(
            f"{role} data are short: the longest session has {int(lengths.max()):,} snapshots, so an episode has "
            f"{length:,} steps (usually {EPISODE_LEN_MAX:,}) and {spans.total:,} possible starts"
        )
    if wanted is not None and wanted != length:
        notes.append(f"episode_len {wanted} rounded down to {length}, a whole number of rollouts")
    unused = lengths[lengths < snapshots_needed(length, latency)]
    if len(unused):
        notes.append(
            f"{len(unused):,} of {len(lengths):,} sessions ({unused.sum() / len(market):.1%} of the {role} data) are "
            f"too short for an episode of {length:,} steps after {WARMUP_SNAPSHOTS} snapshots, and are never sampled"
        )
    if missing:
        steps = ", ".join(str(h) for h in missing)
        notes.append(f"no session of the {role} data is long enough for returns over {steps} snapshots: no such labels")
    return tuple(notes)
