"""Where episodes may start, how long they are, and how wide forward returns spread: host arithmetic on sessions.

Functions from arrays to values. No window, episode or return crosses a session's end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foxhunt_cli.config.dims import FRD_HORIZONS, WARMUP_SNAPSHOTS
from foxhunt_cli.data.errors import DataError

EPISODE_LEN_MAX = 4096
"""Default length of an episode where the data allow it, steps."""
SIGMA_BLOCK = 1 << 20
"""Snapshots whose mids are held on the host at a time."""
SIGMA_MIN_SAMPLES = 32
"""Forward returns that a standard deviation needs at least."""
HALF_TICK = 0.5
"""Smallest move of a mid, ticks: the sigma of a market that never moved."""
SEGMENT_SNAPSHOTS = 1024
"""Snapshots of one serial walk of the multi-resolution features; results depend on it in the last bits only."""


@dataclass(frozen=True)
class Spans:
    """Legal episode starts: span j holds first[j], first[j] + 1, ...; cumulative[j] starts lie before it."""

    first: np.ndarray  # [N_SPANS] int32
    cumulative: np.ndarray  # [N_SPANS + 1] int32

    @property
    def total(self) -> int:
        """Legal starts in all."""
        return int(self.cumulative[-1])


def snapshots_needed(episode_len: int, latency: int) -> int:
    """Snapshots of the shortest session that holds an episode: K before it, the last fill's book behind it."""
    return WARMUP_SNAPSHOTS + episode_len + latency + 1


def choose_episode_len(longest: int, rollout: int, latency: int, wanted: int | None, role: str) -> int:
    """Steps of an episode: a whole number of rollouts that the longest session holds. Raises DataError.

    wanted: a length given, rounded down to whole rollouts, at least one; None: as long as possible up to
    EPISODE_LEN_MAX, at least two rollouts.
    """
    possible = longest - snapshots_needed(0, latency)
    least = rollout if wanted is not None else 2 * rollout
    length = min(EPISODE_LEN_MAX, possible) if wanted is None else wanted
    length -= length % rollout
    if possible < least:
        raise DataError(
            f"{role} data: the longest session has {longest:,} snapshots, an episode of {least} steps "
            f"(rollout {rollout}) needs {snapshots_needed(least, latency):,} ({WARMUP_SNAPSHOTS} before it, "
            f"{latency} of latency, one behind it); give more data, or a smaller --rollout"
        )
    if length < least:
        raise DataError(f"episode_len {wanted} is shorter than a rollout, {rollout} steps; give at least {2 * rollout}")
    if length > possible:
        raise DataError(
            f"{role} data: episode_len {wanted} needs a session of {snapshots_needed(length, latency):,} snapshots, "
            f"the longest has {longest:,}; give episode_len {possible - possible % rollout} or less, or more data"
        )
    return length


def legal_spans(session_start: np.ndarray, n_snap: int, episode_len: int, latency: int) -> Spans:
    """Every start with K snapshots behind it and episode_len + latency ahead of it in its session."""
    lengths = np.diff(np.append(session_start, n_snap))
    counts = lengths - snapshots_needed(episode_len, latency) + 1
    usable = counts > 0
    first = (session_start[usable] + WARMUP_SNAPSHOTS).astype(np.int32)
    return Spans(first, np.concatenate([[0], np.cumsum(counts[usable])]).astype(np.int32))


def segments(session_start: np.ndarray, n_snap: int, length: int = SEGMENT_SNAPSHOTS) -> tuple[np.ndarray, np.ndarray]:
    """Sessions cut into pieces of at most ``length``: (first [N + 1] int32, the last = n_snap; restart [N] uint8)."""
    bounds = np.append(session_start, n_snap)
    pieces = [np.arange(a, b, length) for a, b in zip(bounds[:-1], bounds[1:], strict=True)]
    first = np.concatenate([*pieces, [n_snap]]).astype(np.int32)
    return first, np.isin(first[:-1], session_start).astype(np.uint8)


def forward_sigmas(
    records: np.ndarray, session_start: np.ndarray, horizons: Sequence[int] = FRD_HORIZONS
) -> tuple[np.ndarray, tuple[int, ...]]:
    """Standard deviation of the forward mid change at each horizon, ticks: (float32 [H], horizons not realised).

    Returns are whole half-ticks, so the sums are integers and the result does not depend on their order. A horizon
    that no session realises takes the longest realised one (or single steps) x sqrt(ratio).
    """
    lags = (1, *horizons)
    sums = _return_sums(records, session_start, lags)
    realised = [lag for lag in lags if sums[lag][0] >= SIGMA_MIN_SAMPLES]
    sigmas = {lag: _deviation(*sums[lag]) for lag in realised}
    missing = tuple(h for h in horizons if h not in sigmas)
    longest = max(realised, default=None)
    for h in missing:
        sigmas[h] = sigmas[longest] * math.sqrt(h / longest) if longest else HALF_TICK * math.sqrt(h)
    return np.array([sigmas[h] for h in horizons], np.float32), missing


def _return_sums(
    records: np.ndarray, session_start: np.ndarray, lags: Sequence[int]
) -> dict[int, tuple[int, int, int]]:
    """For each lag: number, sum and sum of squares of mid changes inside sessions, in half-ticks."""
    sums = {lag: (0, 0, 0) for lag in lags}
    bounds = np.append(session_start, len(records))
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        for start in range(begin, end, SIGMA_BLOCK):
            held = records[start : min(start + SIGMA_BLOCK + max(lags), end)]
            doubled = held["bid_px"][:, 0].astype(np.int64) + held["ask_px"][:, 0].astype(np.int64)
            for lag in lags:
                change = doubled[lag : lag + SIGMA_BLOCK] - doubled[: max(0, min(SIGMA_BLOCK, len(doubled) - lag))]
                n, total, squares = sums[lag]
                sums[lag] = (n + len(change), total + int(change.sum()), squares + int(np.dot(change, change)))
    return sums


def _deviation(n: int, total: int, squares: int) -> float:
    """Population standard deviation in ticks from integer sums in half-ticks."""
    return math.sqrt((n * squares - total * total) / (n * n)) / 2 or HALF_TICK
