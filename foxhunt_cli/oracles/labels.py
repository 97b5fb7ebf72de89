"""Oracles of the supervised labels and of the sigmas they are measured in, against brute force."""

from __future__ import annotations

import numpy as np

from foxhunt_cli.config.dims import FRD_HORIZONS, N_HORIZONS
from foxhunt_cli.data.record import SNAPSHOT
from foxhunt_cli.isv.seeds import seed_values
from foxhunt_cli.market.prepare import with_sigmas
from foxhunt_cli.market.windows import forward_sigmas
from foxhunt_cli.oracles.base import Trial, oracle

# Sigmas leave float64 as float32: half of 2^-23, relative.
SIGMA_TOLERANCE = 6e-8


def _book(mid: np.ndarray) -> dict[str, np.ndarray]:
    """Level 0 at mid -+ 0.5 tick or -+ 1 tick, so that prices are whole ticks; the other levels must not matter."""
    half = np.where(mid % 1 == 0, 1.0, 0.5)
    bid, ask = np.full((len(mid), 10), -1e6, np.float32), np.full((len(mid), 10), 1e6, np.float32)
    bid[:, 0], ask[:, 0] = mid - half, mid + half
    return {"bid_px": bid, "ask_px": ask}


def _labels(
    trial: Trial, mid: np.ndarray, session_first: np.ndarray, sigmas: tuple[float, ...], horizons: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    n = len(mid)
    arrays = {**_book(mid), "isv": with_sigmas(seed_values({}), np.array(sigmas))}
    arrays["session_end"] = np.repeat(session_first[1:], np.diff(session_first)).astype(np.int32)
    arrays["frd_label"] = np.zeros((n, N_HORIZONS), np.int8)
    arrays["direction_label"] = np.zeros((n, N_HORIZONS), np.int8)
    sizes = dict(zip(("horizon_short", "horizon_medium", "horizon_long"), horizons, strict=True))
    got = trial.run("gpu_frd_labels", arrays, N_SNAP=n, **sizes)
    return got["frd_label"], got["direction_label"]


def _walk(seed: int, n: int) -> np.ndarray:
    return 1000 + np.cumsum(np.random.default_rng(seed).integers(-1, 2, n)) / 2


@oracle("labels")
def frd_labels_match_brute_force(trial: Trial) -> None:
    n, first, sigmas = 3000, np.array([0, 1200, 1290, 3000]), (1.3, 3.7, 6.1)
    mid = _walk(1, n)
    buckets, directions = _labels(trial, mid, first, sigmas, FRD_HORIZONS)
    want_bucket, want_direction = np.full((n, 3), -1), np.full((n, 3), -1)
    centres = np.linspace(-3.0, 3.0, 21)
    for s in range(n):
        end = first[first > s][0]
        for h, horizon in enumerate(FRD_HORIZONS):
            if s + horizon < end:
                change = mid[s + horizon] - mid[s]
                want_bucket[s, h] = np.argmin(np.abs(centres - change / sigmas[h]))
                want_direction[s, h] = -1 if change == 0 else int(change > 0)
    # Sigmas are chosen so that no half-tick change lies midway between two centres: the buckets must agree exactly.
    trial.equal("buckets", want_bucket, buckets)
    trial.equal("directions", want_direction, directions)
    trial.true("both ends and the middle are there", {0, 10, 20} <= set(np.unique(buckets).tolist()))


@oracle("labels")
def frd_labels_by_hand(trial: Trial) -> None:
    mid = np.array([100, 100, 100.5, 101.5, 90, 130, 130.5])
    buckets, directions = _labels(trial, mid, np.array([0, 7]), (1.0, 1.0, 1.0), (1, 2, 3))
    # Step 0.3 sigma: 0.5 -> 3.5 / 0.3 = 11.67 -> 12; 1 -> 13.33 -> 13; 1.5 -> 15; beyond 3 sigma -> the open ends.
    trial.equal("one ahead", [10, 12, 13, 0, 20, 12, -1], buckets[:, 0])
    trial.equal("two ahead", [12, 15, 0, 20, 20, -1, -1], buckets[:, 1])
    trial.equal("three ahead", [15, 0, 20, 20, -1, -1, -1], buckets[:, 2])
    trial.equal("direction: unchanged is unknown", [-1, 1, 1, 0, 1, 1, -1], directions[:, 0])


@oracle("labels")
def frd_labels_without_a_sigma(trial: Trial) -> None:
    buckets, _ = _labels(trial, np.array([5.0, 6.0, 6.0, 5.0]), np.array([0, 4]), (0.0, 0.0, 0.0), (1, 2, 3))
    trial.equal("a move ends in an open end, no move has no label", [20, -1, 0, -1], buckets[:, 0])


@oracle("labels")
def gathered_labels_are_those_at_cursor_plus_t(trial: Trial) -> None:
    n, steps, cursor = 50, 4, np.array([3, 20, 48], np.int32)
    rng = np.random.default_rng(2)
    arrays = {name: rng.integers(-1, 21, (n, 3)).astype(np.int8) for name in ("frd_label", "direction_label")}
    arrays["cursor"] = cursor
    for name in ("frd_target", "direction_target"):
        arrays[name] = np.full((steps, 3, 3), 99, np.int8)
    got = trial.run("gpu_gather_frd_labels", arrays, T=steps, B=3, N_SNAP=n)
    at = cursor[None, :] + np.arange(steps)[:, None]
    for name, source in (("frd_target", "frd_label"), ("direction_target", "direction_label")):
        want = np.where((at < n)[..., None], arrays[source][np.minimum(at, n - 1)], -1)
        trial.equal(name, want, got[name])


def _records(mid: np.ndarray) -> np.ndarray:
    records = np.zeros(len(mid), SNAPSHOT)
    for name, value in _book(mid).items():
        records[name] = value
    return records


@oracle("labels")
def sigmas_are_standard_deviations_inside_sessions(trial: Trial) -> None:
    mid, starts = _walk(3, 5000), np.array([0, 1500, 1530])
    sigmas, missing = forward_sigmas(_records(mid), starts)
    for h, horizon in enumerate(FRD_HORIZONS):
        pieces = [mid[0:1500], mid[1500:1530], mid[1530:]]
        changes = np.concatenate([p[horizon:] - p[:-horizon] for p in pieces if len(p) > horizon])
        trial.close(f"sigma over {horizon}", changes.std(), sigmas[h], SIGMA_TOLERANCE * changes.std())
    trial.equal("all horizons are realised", 0, len(missing))


@oracle("labels")
def sigma_of_an_unrealisable_horizon_scales_the_longest(trial: Trial) -> None:
    mid = _walk(4, 800)
    sigmas, missing = forward_sigmas(_records(mid), np.array([0]))
    trial.equal("horizon 1000 is not realised", [1000], list(missing))
    want = np.std(mid[300:] - mid[:-300]) * np.sqrt(1000 / 300)
    trial.close("sigma_300 x sqrt(1000 / 300)", want, sigmas[2], SIGMA_TOLERANCE * want)
    buckets, _ = _labels(trial, mid, np.array([0, 800]), tuple(sigmas.tolist()), FRD_HORIZONS)
    trial.equal("and has no labels", -1, buckets[:, 2])
    flat, _ = forward_sigmas(_records(np.full(2000, 7.0)), np.array([0]))
    trial.equal("a market that never moves: half a tick", 0.5, flat)
