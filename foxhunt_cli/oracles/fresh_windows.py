"""Windows of sampled moments, the encodings picked from them, and the drift: against numpy."""

from __future__ import annotations

import numpy as np

from foxhunt_cli.isv.table import ISV_SIZE, number
from foxhunt_cli.oracles.base import Trial, oracle

_T, _K, _C = 4, 32, 64


@oracle("replay")
def replay_windows_begin_where_the_iteration_did(trial: Trial) -> None:
    """Start and state add up to the moment; the state is birth mod T, more where the data set ends."""
    rng = np.random.default_rng(3)
    for rows, fw, snapshots in ((1, 35, 400), (100, 35, 400), (300, 43, 90)):
        birth = rng.integers(0, 1000, _C).astype(np.uint32)
        slot = rng.integers(0, _C, rows).astype(np.uint32)
        index = rng.integers(_K + _T, snapshots - 1, rows).astype(np.uint32)
        arrays = {"replay_index": index, "sample_slot": slot, "store_birth": birth,
                  "window_start": np.zeros(rows, np.int32), "window_state": np.zeros(rows, np.int32)}  # fmt: skip
        got = trial.run("rl_sample_windows", arrays, T=_T, K=_K, FW=fw, N_SNAP=snapshots, rows=rows)
        start = np.minimum(index.astype(np.int64) - birth[slot] % _T, snapshots - 1 - (fw - _K))
        trial.equal(f"{rows} rows: start", start, got["window_start"])
        trial.equal(f"{rows} rows: state", index - start, got["window_state"])


def _encodings(rng: np.random.Generator, behind: int, rows: int) -> dict[str, np.ndarray]:
    return {
        "fresh_h": rng.standard_normal((behind + 1, rows, 128)).astype(np.float32),
        "replay_h": rng.standard_normal((rows, 128)).astype(np.float32),
        "window_state": rng.integers(0, behind, rows).astype(np.int32),
    }


@oracle("replay")
def replay_fresh_encodings_of_a_moment_and_its_end(trial: Trial) -> None:
    """An end behind the sequence keeps what was stored."""
    rng = np.random.default_rng(4)
    rows, behind = 37, 11
    arrays = _encodings(rng, behind, rows) | {
        "replay_n": rng.integers(1, 14, rows).astype(np.uint16),
        "replay_next_h": rng.standard_normal((rows, 128)).astype(np.float32),
    }
    got = trial.run("rl_fresh_pick", arrays, FT=behind, rows=rows)
    state, each = arrays["window_state"], np.arange(rows)
    end = state + arrays["replay_n"]
    inside = end <= behind
    wanted = np.where(inside[:, None], arrays["fresh_h"][np.minimum(end, behind), each], arrays["replay_next_h"])
    trial.equal("h", arrays["fresh_h"][state, each], got["replay_h"])
    trial.equal("h at the end", wanted, got["replay_next_h"])
    trial.equal("some ends lie behind the sequence", np.array(True), np.array((~inside).any() and inside.any()))


@oracle("replay")
def replay_drift_is_a_relative_distance(trial: Trial) -> None:
    """Nothing moved: 0. Everything scaled by 0.8: a fifth. Else the norm of the difference over that of now."""
    rng = np.random.default_rng(5)
    for rows in (1, 16, 256):
        arrays = _encodings(rng, 5, rows)
        now = arrays["fresh_h"][arrays["window_state"], np.arange(rows)]
        for label, stored, wanted in (
            ("same", now, 0.0),
            ("scaled", now * np.float32(0.8), 0.2),
            ("other", arrays["replay_h"], np.linalg.norm(arrays["replay_h"] - now) / np.linalg.norm(now)),
        ):
            inputs = {**arrays, "replay_h": stored, "isv": np.zeros(ISV_SIZE, np.float32)}
            got = trial.run("rl_encoding_drift", inputs, rows=rows)["isv"][number("ENCODING_DRIFT")]
            trial.close(f"{rows} rows, {label}", wanted, got, 1e-5)
