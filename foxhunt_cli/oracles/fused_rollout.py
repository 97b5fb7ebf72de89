"""Oracles of the rollout in one kernel: rollouts played at once and step by step leave the same bits everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from foxhunt_cli.buffers import env
from foxhunt_cli.buffers.table import shape
from foxhunt_cli.device.rng import seed_states
from foxhunt_cli.kernels.registry import kernel
from foxhunt_cli.nets import policy
from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.env_rig import Market, isv_vector, random_market
from foxhunt_cli.pipeline.build import build, kernels_of, names_of
from foxhunt_cli.pipeline.iteration import environment_steps
from foxhunt_cli.pipeline.rollout import iteration_begin
from foxhunt_cli.pipeline.shape import Shape
from foxhunt_cli.pipeline.stage import Stage, chosen
from foxhunt_cli.pipeline.tables import buffers

N_SNAP, ROLLOUT, ITERATIONS, LOT_LIMIT = 400, 6, 5, 4
# Slots under which every override acts now and then: tight trails, a hard stop, a heat cap, a minimum hold, sizes that
# depend on outcomes.
_LIVELY = {
    "TRAIL_MIN": 1.0, "TRAIL_MAX": 40.0, "TRAIL_K_INIT": 1.5, "HARD_STOP_R": 0.7, "HEAT_CAP_USD": 400.0,
    "MIN_HOLD_STEPS": 3.0, "ANTI_MARTINGALE_GAIN": 0.8, "SIZE_SMALL": 1.0, "SIZE_LARGE": 2.0, "P_MIN": 0.01,
    "OUTCOME_ALPHA": 0.3, "PYRAMID_MAX_UNITS": 3.0, "GATE_WARMUP_STEPS": 0.0, "GATE_BYPASS": 0.2,
    "CONF_GATE_THRESHOLD": 0.0, "CONF_GATE_LAMBDA": 0.5, "FRD_GATE_THR_LONG": 0.3, "FRD_GATE_THR_SHORT": 0.3,
}  # fmt: skip
_NETWORK = ("pi_all", "b_pi", "w_pi_ctx", "ensemble_q", "target_h", "w_c51", "b_c51", "frd_prob")


def _host(names: set[str], dims: dict[str, Any], market: Market, seed: int) -> dict[str, np.ndarray]:
    """Flat accounts, random networks' outputs, random starts; rows leave their episodes at different times."""
    rng = np.random.default_rng(seed)
    rows, classes = int(dims["B"]), int(dims["P"])
    table = buffers()
    tensors = {"b_pi": (classes * 11,), "w_pi_ctx": (3, classes * 11), "w_c51": (128, classes * 231)}
    tensors |= {"b_c51": (classes * 231,)}
    host = {name: np.zeros(tensors[name], np.float32) for name in names & tensors.keys()}
    for row in (table[name] for name in (names | {row.name for row in env.ROWS}) & table.keys()):
        host[row.name] = np.zeros(shape(row, {**dims, "N_SNAP": N_SNAP}), row.dtype)
    host.update(market.columns())
    host["isv"] = isv_vector(**_LIVELY)
    for name in sorted(set(_NETWORK) & names):
        host[name][...] = rng.normal(0, 1.0 if name in ("pi_all", "ensemble_q", "target_h") else 0.3, host[name].shape)
    if "frd_prob" in names:
        host["frd_prob"] = rng.dirichlet(np.ones(21), host["frd_prob"].shape[:-1]).astype(np.float32)
    if "signal" in names:
        host["signal"] = rng.choice([-1, 0, 1, 2], N_SNAP, p=[0.1, 0.1, 0.1, 0.7]).astype(np.int8)
    for name in sorted({"rng_action", "rng_gate"} & names):
        host[name] = seed_states(seed, name, rows)
    host["cursor"] = rng.integers(40, N_SNAP - 60, rows).astype(np.int32)
    host["episode_end"] = host["cursor"] + ROLLOUT * rng.integers(1, 8, rows).astype(np.int32)
    host["new_episode"] = np.ones(rows, np.uint8)
    if "next_class" in names:
        host["next_class"][...] = rng.integers(0, classes, host["next_class"].shape)
    return host


def _play(
    trial: Trial, listed: Sequence[Any], host: dict[str, np.ndarray], dims: dict[str, Any]
) -> dict[str, np.ndarray]:
    """Every buffer after some iterations; between them rows whose episode is over begin another one."""
    device = trial.device
    device.compile([kernel(name) for name in kernels_of(listed)])
    arrays = {name: device.upload(np.ascontiguousarray(array)) for name, array in host.items()}
    plan = device.plan(build(listed, arrays, dims, device), use_graph=False)
    cursor, end = host["cursor"].copy(), host["episode_end"].copy()
    for _ in range(ITERATIONS):
        plan.run_eager()
        device.synchronize()
        cursor += ROLLOUT
        over = cursor >= end
        cursor[over], end[over] = host["cursor"][over], host["episode_end"][over]
        for name, array in (("cursor", cursor), ("episode_end", end), ("new_episode", over.astype(np.uint8))):
            device.write(arrays[name], array)
    return {name: np.array(device.download(array)) for name, array in arrays.items()}


def _compare(
    trial: Trial, label: str, draw: Stage, choice: dict[str, Any], rows: int, lanes: str = "", **scalars: Any
) -> dict[str, Any]:
    """Plays both lists on the same start and checks that no array differs; the buffers of the plain one.

    lanes: of a row, where they are not to be those that its list has.
    """
    listed = environment_steps(Shape(ROLLOUT, rows, **choice), draw, track=True)
    plain, fused = ([*iteration_begin(), *chosen(listed, fusion)] for fusion in ("none", "exact"))
    if lanes:
        fused = [
            replace(step, remap={**step.remap, "lanes": lanes}) if "lanes" in getattr(step, "remap", {}) else step
            for step in fused
        ]
    dims = {
        "B": rows, "T": ROLLOUT, "P": 2 * LOT_LIMIT + 1, "lot_limit": LOT_LIMIT, "latency": 1, "tick_value_usd": 12.5,
        "fee_usd": 2.05, "realised_reward": 0, "ratchet": 1, "since_close": 0, **scalars,
    }  # fmt: skip
    host = _host(names_of(plain) | names_of(fused), dims, random_market(np.random.default_rng(rows), N_SNAP), rows)
    a, b = _play(trial, plain, host, dims), _play(trial, fused, host, dims)
    unused = {"gate_open"}  # only the kernels one by one pass it on
    differing = [name for name in a if a[name].tobytes() != b[name].tobytes() and name not in unused]
    trial.true(f"{label}: no buffer differs", not differing, differing or "none")
    return a


@oracle("fused")
def a_rollout_in_one_kernel_equals_its_steps(trial: Trial) -> None:
    """Latency, reward, ratchet, minimum hold of the recipe of the seeds; rows that fill no block."""
    draw = policy.draw()
    reasons = 0
    for rows in (1, 7, 37):
        for latency in range(4):
            got = _compare(trial, f"B {rows}, latency {latency}", draw, {}, rows, latency=latency)
            reasons |= int(np.bitwise_or.reduce(got["override_reason"].reshape(-1)))
    seeds = {"realised_reward": 1, "ratchet": 0, "since_close": 1}
    got = _compare(trial, "rules of the seeds", draw, {}, 64, **seeds)
    reasons |= int(np.bitwise_or.reduce(got["override_reason"].reshape(-1)))
    _compare(trial, "half a warp a row, more logits than its lanes hold", draw, {}, 7, "16")
    _compare(trial, "half a warp a row, logits ahead", draw, {}, 7, "16", P=5, lot_limit=2)
    trial.equal("every override acted", 1 | 8 | 16 | 32 | 64, reasons)
    trial.true("trades closed", int(got["fee_sides"].sum()) > 100, int(got["fee_sides"].sum()))


@oracle("fused")
def other_draws_in_one_kernel_equal_their_steps(trial: Trial) -> None:
    """Greedy, by the critic's value, by a rule."""
    draws = {
        "greedy": policy.draw(greedy="1"),
        "value": Stage("rl_q_action_kernel", {"by_position": "0"}),
        "value by position": Stage("rl_q_action_kernel", {"by_position": "1"}),
        "rule": Stage("rl_signal_action"),
    }
    for name, draw in draws.items():
        for latency in (0, 2):
            got = _compare(trial, f"{name}, latency {latency}", draw, {}, 21, latency=latency)
            trial.true(f"{name}: trades", int(got["fee_sides"].sum()) > 20, int(got["fee_sides"].sum()))


@oracle("fused")
def a_judged_step_in_one_kernel_equals_its_steps(trial: Trial) -> None:
    """Both entry gates, in training and in evaluation, with drawn and with greedy actions."""
    for evaluation, latency in ((False, 0), (False, 1), (True, 1)):
        draw = policy.draw(greedy=str(int(evaluation)))
        choice = {"entry_gates": True}
        listed = f"evaluation {int(evaluation)}, latency {latency}"
        got = _compare(trial, listed, draw, choice, 45, latency=latency)
        bits = int(np.bitwise_or.reduce(got["override_reason"].reshape(-1)))
        trial.equal(f"{listed}: both gates closed", 2 | 4, bits & 6)
