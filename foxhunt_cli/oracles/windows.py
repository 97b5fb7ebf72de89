"""Oracles of episode starts, cursors and windows."""

from __future__ import annotations

import numpy as np

from foxhunt_cli.config.dims import MULTIRES_DIM, WARMUP_SNAPSHOTS
from foxhunt_cli.device.rng import seed_states, xorshift32
from foxhunt_cli.market.windows import Spans, legal_spans
from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.features import assemble, random_columns

EPISODE, LATENCY = 20, 2
SESSIONS, N_SNAP = np.array([0, 60, 100, 155]), 240  # the second is too short, the third holds one start


def _draw(trial: Trial, spans: Spans, cursor: np.ndarray, end: np.ndarray, states: np.ndarray) -> dict[str, np.ndarray]:
    arrays = {"span_first": spans.first, "span_cumulative": spans.cumulative, "rng_episode": states}
    arrays |= {"cursor": cursor, "episode_end": end, "new_episode": np.full(len(cursor), 7, np.uint8)}
    sizes = {"episode_len": EPISODE, "N_SPANS": len(spans.first), "B": len(cursor)}
    return trial.run("gpu_sample_starts", arrays, **sizes)


def _legal_starts() -> np.ndarray:
    """By brute force: K snapshots behind and episode plus latency ahead, in one session."""
    session = np.searchsorted(SESSIONS, np.arange(N_SNAP), side="right")
    reach = range(WARMUP_SNAPSHOTS, N_SNAP - EPISODE - LATENCY)
    return np.array([c for c in reach if session[c - WARMUP_SNAPSHOTS] == session[c + EPISODE + LATENCY]])


@oracle("windows")
def episode_starts_are_legal_and_uniform(trial: Trial) -> None:
    rows, spans, legal = 40_000, legal_spans(SESSIONS, N_SNAP, EPISODE, LATENCY), _legal_starts()
    trial.equal("legal starts", len(legal), spans.total)
    nothing = np.zeros(rows, np.int32)
    got = _draw(trial, spans, nothing, nothing, seed_states(1, "oracle", rows))
    seen, counts = np.unique(got["cursor"], return_counts=True)
    trial.equal("every legal start is drawn, no other", legal, seen)
    freedom, mean = len(legal) - 1, rows / len(legal)
    chi_square = float(np.sum((counts - mean) ** 2) / mean)
    # Mean = degrees of freedom, deviation sqrt(2 x freedom): four deviations, about 1 in 10,000 seeds beyond.
    trial.close("chi-square of the counts", freedom, chi_square, 4 * np.sqrt(2 * freedom))
    trial.equal("episode_end", got["cursor"] + EPISODE, got["episode_end"])
    trial.equal("new_episode", 1, got["new_episode"])


@oracle("windows")
def only_a_row_whose_episode_is_over_draws(trial: Trial) -> None:
    spans = legal_spans(SESSIONS, N_SNAP, EPISODE, LATENCY)
    cursor, end = np.array([40, 52, 60, 0], np.int32), np.array([52, 52, 59, 0], np.int32)
    states = seed_states(2, "oracle", 4)
    got = _draw(trial, spans, cursor, end, states)
    following = xorshift32(states)
    number = (following.astype(np.uint64) * np.uint64(spans.total)) >> np.uint64(32)
    want = _legal_starts()[number.astype(np.int64)]
    trial.equal("new_episode", [0, 1, 1, 1], got["new_episode"])
    trial.equal("cursor", [40, *want[1:]], got["cursor"])
    trial.equal("episode_end", [52, *(want[1:] + EPISODE)], got["episode_end"])
    trial.equal("states: one number each, none for the first row", [states[0], *following[1:]], got["rng_episode"])


@oracle("windows")
def cursors_advance_by_a_rollout(trial: Trial) -> None:
    got = trial.run("gpu_advance_cursor", {"cursor": np.array([0, 7, 90], np.int32)}, T=16, B=3)
    trial.equal("cursor", [16, 23, 106], got["cursor"])


@oracle("windows")
def next_window_is_the_current_one_a_step_later(trial: Trial) -> None:
    columns = random_columns(8, 120)
    multires = np.random.default_rng(9).normal(size=(120, MULTIRES_DIM)).astype(np.float32)
    cursor = np.array([50, 33, 80])
    now = assemble(trial, columns, multires, cursor, 0, (32, 0))
    then = assemble(trial, columns, multires, cursor, 1, (32, 0))
    trial.equal("next = current at cursor + 1", assemble(trial, columns, multires, cursor + 1, 0, (32, 0)), then)
    trial.equal("31 of 32 snapshots are shared", now[1:], then[:-1])
    rollout = assemble(trial, columns, multires, cursor, 0, (32, 16))
    trial.equal("step 0 of a rollout is the current window", now, rollout[:32])
    trial.equal("step 1 the next", then, rollout[1:33])
    shallow = assemble(trial, columns, multires, cursor, 0, (1, 16))
    trial.equal("K = 1: the snapshots from the cursor on", rollout[31:], shallow)


@oracle("windows")
def snapshots_outside_the_data_are_nan(trial: Trial) -> None:
    columns, multires = random_columns(10, 20), np.zeros((20, MULTIRES_DIM), np.float32)
    x = assemble(trial, columns, multires, [1, 18], 0, (3, 2))
    inside = np.array([[False, True, True, True, True], [True, True, True, True, False]]).T
    trial.equal("NaN outside, numbers inside", inside, np.isfinite(x).all(axis=2))
    trial.equal("all 56 of them", ~inside, np.isnan(x).all(axis=2))
