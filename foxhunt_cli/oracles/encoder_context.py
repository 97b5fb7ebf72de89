"""The position in the encoder's input, and heads of one block: what an iteration of preset seed adds to the list."""

from __future__ import annotations

import numpy as np

from foxhunt_cli.isv.table import number
from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.env_rig import isv_vector, ladder

_K, _COLUMNS, _CONTEXT, _MULTIRES = 3, 56, slice(40, 44), slice(44, 56)
_LOT_LIMIT, _SIGMA = 4, 5.0
TOLERANCE = 1e-6


def _broadcast(trial: Trial, offset: int, **state: np.ndarray) -> np.ndarray:
    """x [K, B, 56] behind the kernel, from a window of sevens; books climb one tick a snapshot from a mid of 100.5."""
    rows = len(state["position_lots"])
    market = ladder(np.arange(100, 140))
    rng = np.random.default_rng(5)
    arrays = {
        "bid_px": market.bid_px,
        "ask_px": market.ask_px,
        "cursor": np.arange(rows, dtype=np.int32) * 2,
        "multires_row": rng.normal(scale=8.0, size=(rows, 12)).astype(np.float32),
        "isv": isv_vector(FRD_SIGMA_MEDIUM=_SIGMA),
        "x": np.full((_K, rows, _COLUMNS), 7.0, np.float32),
        **state,
    }
    out = trial.run("rl_encoder_context_broadcast", arrays, K=_K, B=rows, lot_limit=_LOT_LIMIT, offset=offset)["x"]
    trial.equal(f"offset {offset}: market columns are left alone", 7.0, out[..., :40])
    want = np.clip(arrays["multires_row"], -16, 16)
    trial.equal(
        f"offset {offset}: multi-resolution columns", np.broadcast_to(want, (_K, rows, 12)), out[..., _MULTIRES]
    )
    return out[..., _CONTEXT]


def _units(entry: list[float], risk: list[float], age: list[int]) -> dict[str, np.ndarray]:
    """Oldest unit as given; the younger ones hold numbers that must not be read."""
    held = {"unit_entry": (entry, np.float32), "unit_initial_r": (risk, np.float32), "unit_age": (age, np.int32)}
    return {name: np.array([[v, 999, 999, 999] for v in values], dtype) for name, (values, dtype) in held.items()}


@oracle("encoder")
def encoder_context_is_the_oldest_unit_in_every_snapshot(trial: Trial) -> None:
    """Flat, long, short and one beyond the bounds; mids 100.5 + cursor + offset, cursors 0, 2, 4, 6."""
    lots = np.array([0, 3, -2, 4], np.int32)
    units = _units([100.0, 98.5, 106.5, 0.0], [2.0, 4.0, 3.0, 0.0], [9, 64, 512, 1])
    for offset in (0, 1):
        got = _broadcast(trial, offset, position_lots=lots, **units)
        up = float(offset)
        want = np.array(
            [
                [0, 0, 0, 0],
                [64 / 256, (4 + up) / 4, 3 / 4, (4 + up) / _SIGMA],
                [2, (2 - up) / 3, -2 / 4, (up - 2) / _SIGMA],
                [1 / 256, 10, 1, 16],
            ]
        )
        trial.close(f"offset {offset}: age, R, lots, distance", np.broadcast_to(want, got.shape), got, TOLERANCE)


@oracle("encoder")
def encoder_next_state_fills_the_last_slice_alone(trial: Trial) -> None:
    rng = np.random.default_rng(6)
    h, fresh = (rng.normal(size=shape).astype(np.float32) for shape in ((2, 5, 128), (5, 128)))
    out = trial.run("rl_encoder_next_state", {"next_h": fresh, "h": h}, T=1, B=5)["h"]
    trial.equal("state before the step", h[0], out[0])
    trial.equal("state behind it", fresh, out[1])


@oracle("encoder")
def heads_of_one_block_serve_every_class(trial: Trial) -> None:
    """P = 1: draw, value, value gradient, surrogate and greedy value do not depend on the position's class."""
    rng, rows = np.random.default_rng(7), 64
    isv = isv_vector(POPART_MEAN=0.3, POPART_SECOND_MOMENT=4.0, P_MIN=0.01)
    shared = {
        "isv": isv,
        "context": np.zeros((2, rows, 3), np.float32),
        "pi_all": rng.normal(size=(2, rows, 11)).astype(np.float32),
        "v_all": rng.normal(size=(rows, 1)).astype(np.float32),
        "b_pi": rng.normal(size=11).astype(np.float32),
        "b_v": rng.normal(size=1).astype(np.float32),
        "w_pi_ctx": np.zeros((3, 11), np.float32),
        "w_v_ctx": np.zeros((3, 1), np.float32),
        "ensemble_q": rng.normal(size=(1, rows, 11)).astype(np.float32),
        "value_target": rng.normal(size=rows).astype(np.float32),
        "rng_action": rng.integers(1, 2**32, rows, dtype=np.uint32),
        "next_class": np.zeros((1, 11), np.int8),
    }
    outputs = {"action_drawn": np.int8, "log_prob": np.float32, "value": np.float32, "row_loss_v": np.float32}
    shared |= {name: np.zeros(rows, kind) for name, kind in outputs.items()}
    shared["grad_v_all"] = np.full((rows, 1), np.nan, np.float32)
    classes = {"flat": np.zeros((2, rows), np.int32), "any": rng.integers(0, 9, (2, rows)).astype(np.int32)}
    for kernel, sizes in {
        "rl_pi_action_kernel": {"B": rows, "t": 0, "greedy": 0},
        "rl_value_rows": {"rows": rows},
        "rl_value_loss_grad": {"rows": rows},
        "rl_q_action_kernel": {"B": rows, "t": 0, "by_position": 0},
    }.items():
        flat, other = (trial.run(kernel, {**shared, "position_class": c}, P=1, **sizes) for c in classes.values())
        for name in flat:
            trial.equal(f"{kernel}: {name}", flat[name], other[name])
    raw = shared["v_all"][:, 0].astype(np.float64) + shared["b_v"][0]
    sigma = np.sqrt(isv[number("POPART_SECOND_MOMENT")] - isv[number("POPART_MEAN")].astype(np.float64) ** 2)
    value = trial.run("rl_value_rows", {**shared, "position_class": classes["any"]}, P=1, rows=rows)["value"]
    trial.close("value = mean + sigma (v + b)", isv[number("POPART_MEAN")] + sigma * raw, value, 1e-5)
