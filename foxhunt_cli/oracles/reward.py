"""The reward pipeline: both modes, shaping, scale, clamp, statistics."""

from __future__ import annotations

import numpy as np

from foxhunt_cli.isv.table import number
from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.env_rig import FLAT_LONG, HOLD, LONG_LARGE, QUIET, Rig, isv_vector, ladder

_MOMENTS = 6
_SEED = {"ENTRY_COST_USD": 15.0, "SHORT_HOLD_PENALTY": 0.5, "SHORT_HOLD_STEPS": 20.0, "HOLD_BONUS_USD": 0.5,
         "DRAWDOWN_RATE": 0.01}  # fmt: skip


def _moments() -> dict[str, np.ndarray]:
    """An opening; a hold in profit; a hold in loss; an early win; a late win; a flip out of an early loss."""
    return {
        "pnl_step_usd": np.array([-8.25, 50.0, -30.0, 20.0, 10.0, -40.0], np.float32),
        "closed": np.array([0, 0, 0, 1, 1, 1], np.uint8),
        "closed_trade_pnl_usd": np.array([0, 0, 0, 120.0, 200.0, -90.0], np.float32),
        "closed_trade_steps": np.array([0, 0, 0, 19, 20, 3], np.int32),
        "position_before": np.array([0, 2, 2, 2, -1, 1], np.int32),
        "position_after": np.array([2, 2, 2, 0, 0, -1], np.int32),
        "unrealised_usd": np.array([0, 80.0, -60.0, 0.0, 0.0, -50.0], np.float32),
        "held_steps": np.array([0, 16, 9, 18, 19, 2], np.int32),
    }


def _pipeline(trial: Trial, realised: int, **slots: float) -> dict[str, np.ndarray]:
    out = {name: np.zeros(_MOMENTS, np.float32) for name in ("reward_usd", "reward_scaled", "reward")}
    arrays = {**_moments(), **out, "isv": isv_vector(**{**QUIET, "REWARD_SCALE": 0.05, **slots})}
    return trial.run("rl_fused_reward_pipeline", arrays, realised_reward=realised, T=2, B=3)


@oracle("reward")
def reward_mark_to_market_is_the_change_of_equity(trial: Trial) -> None:
    got = _pipeline(trial, 0, REWARD_CLAMP_WIN=2.0, REWARD_CLAMP_LOSS=1.0)
    usd = _moments()["pnl_step_usd"]
    trial.close("USD", usd, got["reward_usd"], 0.0)
    trial.close("scaled", usd * 0.05, got["reward_scaled"], 1e-6)
    trial.close("clamped", np.clip(usd * 0.05, -1.0, 2.0), got["reward"], 1e-6)


@oracle("reward")
def reward_realised_pays_at_closes(trial: Trial) -> None:
    got = _pipeline(trial, 1, REWARD_CLAMP_WIN=5.0, REWARD_CLAMP_LOSS=3.0)
    usd = np.array([0, 0, 0, 120.0, 200.0, -90.0])
    trial.close("USD", usd, got["reward_usd"], 0.0)
    trial.close("clamped", np.clip(usd * 0.05, -3.0, 5.0), got["reward"], 1e-6)


@oracle("reward")
def reward_shaping_in_both_modes(trial: Trial) -> None:
    shaping = np.array([-15.0, 0.5 * 4.0, -0.6, -60.0, 0.0, -15.0 - 0.5])
    realised = np.array([0, 0, 0, 120.0, 200.0, -90.0])
    trial.close("realised", realised + shaping, _pipeline(trial, 1, **_SEED)["reward_usd"], 1e-5)
    equity = _moments()["pnl_step_usd"]
    trial.close("mark to market", equity + shaping, _pipeline(trial, 0, **_SEED)["reward_usd"], 1e-5)


@oracle("reward")
def reward_nan_stays_nan(trial: Trial) -> None:
    arrays = {**_moments(), "isv": isv_vector(**QUIET)}
    arrays["pnl_step_usd"][1] = np.nan
    out = {name: np.zeros(_MOMENTS, np.float32) for name in ("reward_usd", "reward_scaled", "reward")}
    got = trial.run("rl_fused_reward_pipeline", {**arrays, **out}, realised_reward=0, T=2, B=3)
    trial.true("the clamp does not hide it", np.isnan(got["reward"][1]))
    trial.equal("neighbours are numbers", 5, np.isfinite(got["reward"]).sum())


def _statistics(trial: Trial, scaled: np.ndarray, closed: np.ndarray, isv: np.ndarray, realised: int) -> np.ndarray:
    clamp = np.clip(scaled, -isv[number("REWARD_CLAMP_LOSS")], isv[number("REWARD_CLAMP_WIN")])
    arrays = {"reward_scaled": scaled, "reward": clamp.astype(np.float32), "closed": closed, "isv": isv}
    steps, rows = scaled.shape
    return trial.run("rl_reward_statistics", arrays, realised_reward=realised, T=steps, B=rows)["isv"]


@oracle("reward")
def reward_statistics_sparse_and_bootstrapped(trial: Trial) -> None:
    """Seed clamps: +1, -3. A side without rewards leaves its EMA alone."""
    for rows in (1, 16):
        scaled = np.zeros((4, rows), np.float32)
        scaled[:, 0] = [2.0, -4.0, 0.5, -1.0]
        closed = np.zeros((4, rows), np.uint8)
        isv = _statistics(trial, scaled, closed, isv_vector(), 0)
        values = [isv[number(n)] for n in ("REWARD_SCALED_ABS_MAX", "POS_SCALED_MAX", "NEG_SCALED_MAX")]
        trial.close(f"B = {rows}: maxima", [4.0, 2.0, 4.0], values, 0.0)
        trial.close(f"B = {rows}: first EMA", [2.0, 4.0], isv[[479, 483]], 0.0)
        trial.close(f"B = {rows}: clipped share", 2 / (4 * rows), isv[450], 1e-7)
        after = _statistics(trial, np.abs(scaled) * 0.5, closed, isv, 0)
        trial.close(f"B = {rows}: no loss", [2.0, 0.0], after[[478, 482]], 0.0)
        trial.close(f"B = {rows}: blend; untouched", [2.0, 4.0], after[[479, 483]], 1e-6)
        losses = _statistics(trial, -np.abs(scaled), closed, isv, 0)
        trial.close(f"B = {rows}: no win", [0.0, 2.0, 4.0], losses[[478, 479, 483]], 1e-6)
        dry = _statistics(trial, scaled, closed, isv, 1)
        trial.close(f"B = {rows}: realised, no close", isv[450], dry[450], 0.0)
        closed[:2, 0] = 1
        dones = _statistics(trial, scaled, closed, isv_vector(), 1)
        trial.close(f"B = {rows}: realised, both closes clipped", 1.0, dones[450], 0.0)


@oracle("reward")
def reward_rides_on_the_rollout(trial: Trial) -> None:
    """Realised mode through the whole list: closes are terminal, the reward is the trade's net PnL, steps count on."""
    rig = Rig(trial.device, ladder([100, 100, 120, 120]), [0], 3, isv={"REWARD_CLAMP_WIN": 60.0},
              scalars={"realised_reward": 1})  # fmt: skip
    got = rig.play([LONG_LARGE, HOLD, FLAT_LONG])
    pnl = 2 * (120 - 101) * 12.5 - 8.0
    trial.close("reward USD", [0.0, 0.0, pnl], got["reward_usd"][:, 0], 1e-4)
    trial.close("clamped at 60", [0.0, 0.0, 60.0], got["reward"][:, 0], 0.0)
    trial.equal("terminal", [0, 0, 1], got["terminal"][:, 0])
    trial.close("environment steps", 3.0, got["isv"][608], 0.0)
