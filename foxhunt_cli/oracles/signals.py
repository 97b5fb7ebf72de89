"""Signals of the market side: executed-action entropy, event counters, trade averages, market statistics."""

from __future__ import annotations

import numpy as np

from foxhunt_cli.isv.table import number
from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.env_rig import (
    CONFIDENCE,
    DRAWDOWN_STOP,
    FRD,
    HEAT_CAP,
    MIN_HOLD,
    PENDING,
    TRAIL_STOP,
    isv_vector,
)

ALPHA = 0.05  # SIGNAL_ALPHA
_SIZES = ((1, 1), (16, 1), (16, 16), (3, 100))  # T, B


def _slots(isv: np.ndarray, *names: str) -> np.ndarray:
    return isv[[number(name) for name in names]]


def _entropy(trial: Trial, rows: np.ndarray, share: np.ndarray, isv: np.ndarray, overridden: np.ndarray) -> dict:
    """rows [T, B, 3]: action, position before, target."""
    arrays = {
        "action": rows[..., 0].astype(np.int8), "position_before": rows[..., 1].astype(np.int32),
        "market_target": rows[..., 2].astype(np.int32), "overridden": overridden, "action_share_ema": share, "isv": isv,
    }  # fmt: skip
    return trial.run("action_entropy_per_step", arrays, T=rows.shape[0], B=rows.shape[1])


@oracle("signals")
def action_entropy_merges_aliases_of_hold(trial: Trial) -> None:
    """Of eight moments four do what Hold does; the others are 0, 0, 7 and 9."""
    moments = [(2, 1, 1), (3, 0, 0), (10, 2, 2), (7, 0, 0), (0, 0, -2), (0, 1, -2), (7, 1, 1), (9, 2, 1)]
    rows = np.array(moments).reshape(2, 4, 3)
    got = _entropy(
        trial, rows, np.zeros(11, np.float32), isv_vector(), np.array([[1, 0, 0, 0], [0, 1, 0, 0]], np.uint8)
    )
    share = np.zeros(11)
    share[[2, 0, 7, 9]] = [0.5, 0.25, 0.125, 0.125]
    trial.close("shares", share, got["isv"][588:599], 1e-7)
    trial.close("entropy", 1.75 * np.log(2.0), got["isv"][number("ACTION_ENTROPY_EMA")], 1e-6)
    trial.close("overridden", 0.25, got["isv"][number("OVERRIDDEN_SHARE")], 0.0)


@oracle("signals")
def action_entropy_lives_with_one_row(trial: Trial) -> None:
    """B = T = 1, opening and closing in turn: every histogram is a single action, their average has entropy ln 2."""
    share, isv = np.zeros(11, np.float32), isv_vector()
    for step in range(200):
        moment = (6, 0, 2) if step % 2 else (3, 2, 0)
        got = _entropy(trial, np.array([[moment]]), share, isv, np.zeros((1, 1), np.uint8))
        share, isv = got["action_share_ema"], got["isv"]
        if step == 0:
            trial.close("one action so far", 0.0, isv[583], 0.0)
    trial.close("entropy", np.log(2.0), isv[583], 1e-2)
    trial.close("shares add up", 1.0, share.sum(), 1e-5)


@oracle("signals")
def action_entropy_matches_numpy(trial: Trial) -> None:
    rng = np.random.default_rng(0)
    for steps, rows in _SIZES:
        moments = np.stack([rng.integers(0, 11, (steps, rows)), rng.integers(-2, 3, (steps, rows)),
                            rng.integers(-2, 3, (steps, rows))], axis=-1)  # fmt: skip
        before = rng.dirichlet(np.ones(11)).astype(np.float32)
        got = _entropy(trial, moments, before, isv_vector(), np.zeros((steps, rows), np.uint8))
        action, position, target = moments[..., 0], moments[..., 1], moments[..., 2]
        acts = np.where((action == 7) | (action == 8), position != 0, position != target)
        share = np.bincount(np.where(acts, action, 2).ravel(), minlength=11) / (steps * rows)
        smooth = before + ALPHA * (share - before)
        trial.close(f"T {steps}, B {rows}: shares", share, got["isv"][588:599], 1e-6)
        trial.close(f"T {steps}, B {rows}: entropy", -(smooth * np.log(smooth)).sum(), got["isv"][583], 1e-5)


@oracle("signals")
def event_counters_count_bits(trial: Trial) -> None:
    rng = np.random.default_rng(1)
    names = (
        "HEAT_CAP_FIRED",
        "TRAIL_STOP_FIRED",
        "MIN_HOLD_FIRED",
        "CONF_GATE_FIRED",
        "FRD_GATE_FIRED",
        "DRAWDOWN_STOP_FIRED",
    )
    bits = (HEAT_CAP, TRAIL_STOP, MIN_HOLD, CONFIDENCE, FRD, DRAWDOWN_STOP)
    for steps, rows in _SIZES:
        reason = rng.integers(0, 128, (steps, rows)).astype(np.uint8)
        isv = trial.run("rl_event_counters", {"override_reason": reason, "isv": isv_vector()}, T=steps, B=rows)["isv"]
        trial.equal(f"T {steps}, B {rows}", [((reason & bit) > 0).sum() for bit in bits], _slots(isv, *names))
    pending = {"override_reason": np.full((1, 1), PENDING, np.uint8), "isv": isv}
    isv = trial.run("rl_event_counters", pending, T=1, B=1)["isv"]
    trial.equal("an order under way is no gate; counts start at zero", 0, _slots(isv, *names))


_TRADES = ("MEAN_TRADE_DURATION_EMA", "MEAN_ABS_PNL_EMA", "CLOSED_LOTS_EMA", "OUTCOME_WIN_RATE", "OUTCOME_AVG_WIN",
           "OUTCOME_AVG_LOSS")  # fmt: skip


def _on_done(trial: Trial, isv: np.ndarray, rows: int, trades: list[tuple[float, int, int]]) -> np.ndarray:
    shape = (4, rows)
    arrays = {
        "closed": np.zeros(shape, np.uint8), "closed_trade_pnl_usd": np.zeros(shape, np.float32),
        "closed_trade_steps": np.zeros(shape, np.int32), "closed_trade_lots": np.zeros(shape, np.int32), "isv": isv,
    }  # fmt: skip
    for i, (pnl, steps, lots) in enumerate(trades):
        at = (i, (5 * i) % rows)
        arrays["closed"][at], arrays["closed_trade_pnl_usd"][at] = 1, pnl
        arrays["closed_trade_steps"][at], arrays["closed_trade_lots"][at] = steps, lots
    return trial.run("ema_update_on_done", arrays, T=4, B=rows)["isv"]


@oracle("signals")
def trade_averages_are_sparse_and_bootstrap(trial: Trial) -> None:
    for rows in (1, 16):
        cold = _on_done(trial, isv_vector(), rows, [])
        trial.equal(f"B = {rows}: no close, no signal", 0.0, _slots(cold, *_TRADES))
        first = _on_done(trial, cold, rows, [(100.0, 10, 2), (-40.0, 30, 1)])
        trial.close(f"B = {rows}: first as it is", [20, 70, 1.5, 0.5, 100, -40], _slots(first, *_TRADES), 1e-5)
        dry = _on_done(trial, first, rows, [])
        trial.equal(f"B = {rows}: a dry iteration changes nothing", first, dry)
        second = _on_done(trial, first, rows, [(-20.0, 40, 1)])
        blended = [20 + ALPHA * 20, 70 - ALPHA * 50, 1.5 - ALPHA * 0.5, 0.5 - ALPHA * 0.5, 100, -40 + ALPHA * 20]
        trial.close(f"B = {rows}: blended; no win, the mean win stays", blended, _slots(second, *_TRADES), 1e-4)


@oracle("signals")
def dones_ema_counts_dry_steps(trial: Trial) -> None:
    """A share: no close is an observation of zero, once there was a first."""
    for rows in (1, 16):
        closed = np.zeros((4, rows), np.uint8)
        isv = trial.run("rl_dones_ema", {"closed": closed, "isv": isv_vector()}, T=4, B=rows)["isv"]
        trial.equal(f"B = {rows}: nothing yet", 0.0, isv[531])
        closed[1, 0] = 1
        share = 1 / (4 * rows)
        isv = trial.run("rl_dones_ema", {"closed": closed, "isv": isv}, T=4, B=rows)["isv"]
        trial.close(f"B = {rows}: first as it is", share, isv[531], 1e-8)
        isv = trial.run("rl_dones_ema", {"closed": closed * 0, "isv": isv}, T=4, B=rows)["isv"]
        trial.close(f"B = {rows}: then blended", share * (1 - ALPHA), isv[531], 1e-8)


@oracle("signals")
def market_statistics_match_numpy(trial: Trial) -> None:
    rng = np.random.default_rng(2)
    names = ("POSITION_MEAN", "POSITION_ABS_MEAN", "EQUITY_MEAN", "EQUITY_MIN", "TRADES_CLOSED", "WINS", "PNL_STEP_USD",
             "FEES_STEP_USD", "UNFILLED_LOTS", "HOLD_STEPS_MEAN")  # fmt: skip
    for steps, rows in _SIZES:
        shape = (steps, rows)
        a = {
            "position_after": rng.integers(-4, 5, shape).astype(np.int32),
            "fill_lots": rng.integers(-4, 5, shape).astype(np.int32),
            "unfilled_lots": rng.integers(0, 3, shape).astype(np.int32),
            "closed": rng.integers(0, 2, shape).astype(np.uint8),
            "pnl_step_usd": rng.normal(0, 50, shape).astype(np.float32),
            "equity_usd": rng.normal(0, 500, rows).astype(np.float32),
            "trade_open_step": rng.integers(0, 90, rows).astype(np.int32), "isv": isv_vector(),
        }  # fmt: skip
        a["closed_trade_pnl_usd"] = (a["closed"] * rng.normal(0, 50, shape)).astype(np.float32)
        a["position_lots"] = a["position_after"][-1].copy()
        isv = trial.run("rl_market_statistics", a, fee_usd=2.05, T=steps, B=rows)["isv"]
        held = a["trade_open_step"][a["position_lots"] != 0]
        want = [
            a["position_after"].mean(), np.abs(a["position_after"]).mean(), a["equity_usd"].mean(),
            a["equity_usd"].min(),
            a["closed"].sum(), (a["closed_trade_pnl_usd"] > 0).sum(), a["pnl_step_usd"].sum(dtype=np.float64),
            np.abs(a["fill_lots"]).sum() * 2.05, a["unfilled_lots"].sum(), held.mean() if held.size else 0.0,
        ]  # fmt: skip
        trial.close(f"T {steps}, B {rows}", want, _slots(isv, *names), 2e-2)
        flat = {**a, "position_lots": a["position_lots"] * 0, "isv": isv}
        after = trial.run("rl_market_statistics", flat, fee_usd=2.05, T=steps, B=rows)["isv"]
        trial.close("all flat: the mean hold stays", isv[607], after[607], 0.0)


@oracle("signals")
def step_counter_adds_the_rollout(trial: Trial) -> None:
    isv = isv_vector(TRAIN_STEP=100.0)
    for rollout in (1, 16):
        trial.equal(
            f"T {rollout}", 100 + rollout, trial.run("rl_step_counter_update", {"isv": isv}, T=rollout)["isv"][608]
        )


@oracle("signals")
def unit_statistics_match_numpy(trial: Trial) -> None:
    """Means over the rows that hold a unit; what no row holds keeps its last value."""
    rng = np.random.default_rng(5)
    for rows in (1, 3, 16, 300):
        lots = np.where(rng.random((rows, 4)) < [0.9, 0.5, 0.2, 0.0], rng.integers(1, 4, (rows, 4)), 0)
        lots = (lots * rng.choice([-1, 1], (rows, 1))).astype(np.int32)
        trail, age = rng.random((rows, 4)).astype(np.float32) * 20, rng.integers(0, 90, (rows, 4)).astype(np.int32)
        isv = isv_vector()
        isv[number("UNIT_LOTS_0") : number("UNIT_AGE_3") + 1] = -1.0
        arrays = {"unit_lots": lots, "unit_trail": trail, "unit_age": age, "isv": isv}
        got = trial.run("rl_unit_statistics", arrays, B=rows)["isv"]
        held = lots != 0
        trial.close(f"B {rows}: active", held.mean(axis=0), got[number("UNIT_ACTIVE_0") :][:4], 1e-6)
        for name, values in (("LOTS", np.abs(lots)), ("TRAIL", trail), ("AGE", age)):
            wanted = [values[held[:, u], u].mean() if held[:, u].any() else -1.0 for u in range(4)]
            trial.close(f"B {rows}: {name.lower()}", np.array(wanted), got[number(f"UNIT_{name}_0") :][:4], 1e-4)
