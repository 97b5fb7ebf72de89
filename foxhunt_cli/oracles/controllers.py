"""The controllers: cold start, first target, blend, bounds, bounded step, schedules. Expected values by hand.

``Panel`` holds the state vector and the controllers' own memory between calls, as a run does.
"""

from __future__ import annotations

import math

import numpy as np

from foxhunt_cli.buffers.control import N_CONTROLLER_AGES
from foxhunt_cli.isv.table import by_name, number
from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.env_rig import isv_vector
from foxhunt_cli.pipeline.control import CONTROLLERS

FLOAT = 2e-6  # relative: some roundings of float32
BLEND = (1.0, 0.5, 0.4, 0.4)  # share of the way in updates 1, 2, 3, 4
_LN11 = math.log(11.0)


class Panel:
    """A state vector and the controllers' memory; ``run`` is one launch, ``panel["GAMMA"]`` a slot."""

    def __init__(self, trial: Trial, **slots: float) -> None:
        self.trial = trial
        self.isv = isv_vector(**slots)
        self.memory = {
            "isv_seed": self.isv.copy(),
            "controller_age": np.zeros(N_CONTROLLER_AGES, np.uint32),
            "loss_abs_ema": np.zeros(3, np.float32),
            "lr_halvings": np.zeros(3, np.uint32),
            "atom_span_window": np.zeros(2, np.float32),
            "atom_span_before": np.zeros(2, np.float32),
            "adam_step": np.zeros((2, 6), np.uint32),
        }

    def set(self, **slots: float) -> None:
        """Overwrite slots, as a signal's owner would."""
        for name, value in slots.items():
            self.isv[number(name)] = value

    def run(self, controller: str, times: int = 1, **scalars: int) -> Panel:
        """One or more iterations of the controller with these inputs."""
        for _ in range(times):
            got = self.trial.run(CONTROLLERS[controller], {"isv": self.isv, **self.memory}, **scalars)
            self.isv = got.pop("isv")
            self.memory.update(got)
        return self

    def __getitem__(self, name: str) -> float:
        return float(self.isv[number(name)])


def _near(trial: Trial, label: str, expected: float, got: float) -> None:
    trial.close(label, expected, got, FLOAT * max(abs(expected), 1e-3))


def _follows(trial: Trial, panel: Panel, controller: str, slot: str, target: float) -> None:
    """The slot takes the target as it is, and after a change of it (made by the caller) blends towards the new one."""
    panel.run(controller)
    _near(trial, f"{slot}: first target as it is", target, panel[slot])


def _blends(trial: Trial, panel: Panel, controller: str, slot: str, target: float) -> None:
    value = panel[slot]
    for update, rate in enumerate(BLEND[1:], start=2):
        value += rate * (target - value)
        _near(trial, f"{slot}: update {update}", value, panel.run(controller)[slot])


@oracle("controllers")
def controllers_hold_their_bootstrap_when_cold(trial: Trial) -> None:
    """No input is live: every controlled slot keeps its seed, for as long as it takes; 400 to 406 as tabled."""
    panel = Panel(trial)
    owned = [
        slot.number for slot in by_name().values() if slot.owner in CONTROLLERS.values() and slot.kind == "control"
    ]
    schedules = {number("PER_BETA"), *range(number("LR_BCE"), number("LR_AUX") + 1)}
    ratchets = {number("C51_V_MAX"), number("C51_V_MIN")}
    for controller in CONTROLLERS:
        panel.run(controller, 3, plateau=1, realised_reward=0)
    kept = sorted(set(owned) - schedules)
    trial.equal("seeds are kept", isv_vector()[kept], panel.isv[kept])
    trial.equal("400 .. 406", np.float32([0.99, 0.005, 0.2, 0.01, 2048, 0.6, 1.0]), panel.isv[400:407])
    trial.true("the list is not empty", len(kept) > 20 and ratchets <= set(kept), len(kept))
    trial.equal("no live update was counted", 0, panel.memory["controller_age"])


@oracle("controllers")
def controllers_hold_on_a_broken_input(trial: Trial) -> None:
    """An input that is not a number moves nothing, and counts as nothing."""
    inputs = {
        "gamma": "MEAN_TRADE_DURATION_EMA", "target_tau": "Q_DIVERGENCE_EMA", "ppo_clip": "KL_PI_EMA",
        "entropy_coef": "ENTROPY_OBSERVED_EMA", "rollout_steps": "ADVANTAGE_VAR_RATIO_EMA",
        "per_alpha": "TD_KURTOSIS_EMA", "reward_scale": "MEAN_ABS_PNL_EMA", "distill_lambda": "Q_DISTILL_KL_EMA",
        "distill_temperature": "ACTION_ENTROPY_EMA",
    }  # fmt: skip
    for controller, signal in inputs.items():
        for bad in (math.nan, math.inf):
            panel = Panel(trial)
            panel.set(**{signal: bad})
            before = panel.isv.copy()
            after = panel.run(controller).isv
            trial.true(f"{controller}, {bad}", np.array_equal(before, after, equal_nan=True))
            trial.equal(f"{controller}, {bad}: not counted", 0, panel.memory["controller_age"])


@oracle("controllers")
def controller_gamma_follows_the_trade_duration(trial: Trial) -> None:
    panel = Panel(trial)
    panel.set(MEAN_TRADE_DURATION_EMA=50.0)
    _follows(trial, panel, "gamma", "GAMMA", 0.98)
    panel.set(MEAN_TRADE_DURATION_EMA=200.0)
    _blends(trial, panel, "gamma", "GAMMA", 0.995)
    for duration, bound in ((1.0, 0.9), (1e6, 0.999)):
        panel.set(MEAN_TRADE_DURATION_EMA=duration)
        _near(trial, f"bound at duration {duration:g}", bound, panel.run("gamma", 60)["GAMMA"])


@oracle("controllers")
def controller_target_tau_follows_the_divergence(trial: Trial) -> None:
    for divergence, ratio in ((0.012, 1.2), (0.1, 1.5), (1e-4, 1 / 1.5)):
        panel = Panel(trial)
        panel.set(Q_DIVERGENCE_EMA=divergence)
        _follows(trial, panel, "target_tau", "TARGET_TAU", 0.005 * ratio)
        tau = panel["TARGET_TAU"]
        _near(trial, "then half of the way", tau + 0.5 * (tau * ratio - tau), panel.run("target_tau")["TARGET_TAU"])
    for divergence, bound in ((1.0, 0.05), (1e-6, 0.001)):
        panel.set(Q_DIVERGENCE_EMA=divergence)
        _near(trial, f"bound at divergence {divergence:g}", bound, panel.run("target_tau", 60)["TARGET_TAU"])


def _bounded_step(
    trial: Trial, controller: str, slot: str, signal: str, levels: tuple[float, float, float], low_grows: bool
) -> None:
    """levels: an input below, inside and above the band; low_grows: below the band the slot is multiplied."""
    down, inside, up = levels
    factors = ((down, 1.2 if low_grows else 1 / 1.2), (inside, 1.0), (up, 1 / 1.2 if low_grows else 1.2))
    for level, factor in factors:
        panel = Panel(trial, **{slot: 0.5 * isv_vector()[number(slot)]})  # far enough from either bound
        panel.set(**{signal: level})
        for update, rate in enumerate(BLEND, start=1):
            want = panel[slot] * (1 + rate * (factor - 1))
            _near(trial, f"{slot}: {signal} {level:g}, update {update}", want, panel.run(controller)[slot])


def _bounds(trial: Trial, controller: str, slot: str, signal: str, ends: tuple[tuple[float, float], ...]) -> None:
    for level, bound in ends:
        panel = Panel(trial)
        panel.set(**{signal: level})
        _near(trial, f"{slot}: bound at {signal} {level:g}", bound, panel.run(controller, 120)[slot])


@oracle("controllers")
def controller_ppo_clip_steps_on_kl(trial: Trial) -> None:
    """Target 0.01: the band is 0.00667 .. 0.015. A negative estimate is a small one."""
    _bounded_step(trial, "ppo_clip", "PPO_CLIP_EPS", "KL_PI_EMA", (0.006, 0.0149, 0.016), low_grows=True)
    _bounds(trial, "ppo_clip", "PPO_CLIP_EPS", "KL_PI_EMA", ((1.0, 0.05), (-1e-4, 0.3)))


@oracle("controllers")
def controller_entropy_coef_steps_on_entropy(trial: Trial) -> None:
    """Target 0.7 ln 11 = 1.679: the band is 1.119 .. (1.679 + ln 11) / 2 = 2.038; at 0.3 ln 11 up to 1.5 x target."""
    _bounded_step(trial, "entropy_coef", "ENTROPY_COEF", "ENTROPY_OBSERVED_EMA", (1.1, 2.0, 2.05), low_grows=True)
    _bounds(trial, "entropy_coef", "ENTROPY_COEF", "ENTROPY_OBSERVED_EMA", ((0.01, 0.1), (2.39, 1e-4)))
    panel = Panel(trial, ENTROPY_TARGET_FRAC=0.3)
    for entropy, factor in ((0.45 * _LN11 * 0.99, 1.0), (0.45 * _LN11 * 1.01, 1 / 1.2)):
        panel.set(ENTROPY_OBSERVED_EMA=entropy, ENTROPY_COEF=0.01)
        panel.memory["controller_age"][:] = 0
        _near(
            trial, f"target 0.3 ln 11, entropy {entropy:.3f}", 0.01 * factor, panel.run("entropy_coef")["ENTROPY_COEF"]
        )


@oracle("controllers")
def controller_rollout_steps_follow_the_advantage_noise(trial: Trial) -> None:
    panel = Panel(trial)
    panel.set(ADVANTAGE_VAR_RATIO_EMA=10.0)
    _follows(trial, panel, "rollout_steps", "ROLLOUT_STEPS", 4096.0)
    panel.set(ADVANTAGE_VAR_RATIO_EMA=15.0)
    _blends(trial, panel, "rollout_steps", "ROLLOUT_STEPS", 6144.0)
    for ratio, bound in ((1e-3, 2048.0), (100.0, 8192.0)):
        panel.set(ADVANTAGE_VAR_RATIO_EMA=ratio)
        _near(trial, f"bound at ratio {ratio:g}", bound, panel.run("rollout_steps", 60)["ROLLOUT_STEPS"])


@oracle("controllers")
def controller_per_alpha_follows_the_kurtosis(trial: Trial) -> None:
    panel = Panel(trial)
    panel.set(TD_KURTOSIS_EMA=6.5)
    _follows(trial, panel, "per_alpha", "PER_ALPHA", 0.65)
    panel.set(TD_KURTOSIS_EMA=10.0)
    _blends(trial, panel, "per_alpha", "PER_ALPHA", 0.9)
    for kurtosis, bound in ((1.0, 0.4), (30.0, 0.9)):
        panel.set(TD_KURTOSIS_EMA=kurtosis)
        _near(trial, f"bound at kurtosis {kurtosis:g}", bound, panel.run("per_alpha", 60)["PER_ALPHA"])


@oracle("controllers")
def controller_per_beta_ends_at_exactly_one(trial: Trial) -> None:
    """Linear from the seed; exactly 1 at RUN_STEPS and for ever after, also where a run was made longer."""
    for end in (1000.0, 999.0, 7.0):
        panel = Panel(trial, RUN_STEPS=end)
        for share, beta in ((0.0, 0.4), (0.5, 0.7), (0.25, 0.55)):
            panel.set(TRAIN_STEP=end * share)
            _near(trial, f"{share:g} of {end:g}", beta, panel.run("per_beta")["PER_BETA"])
        for step in (end, end + 1, end + 16, 10 * end):
            panel.set(TRAIN_STEP=step)
            trial.equal(f"step {step:g} of {end:g}", 1.0, panel.run("per_beta")["PER_BETA"])
        panel.set(TRAIN_STEP=end - 1)
        trial.true("below 1 before the end", panel.run("per_beta")["PER_BETA"] < 1.0)


@oracle("controllers")
def controller_n_step_falls_in_whole_steps(trial: Trial) -> None:
    """From the start at step 0 to the seed at the last step and behind it; constant where it falls over no steps."""
    for start, end, over in ((32, 4, 1000), (8, 3, 48), (32, 1, 31), (5, 5, 10), (9, 2, 1)):
        panel = Panel(trial, N_STEP=end, N_STEP_START=start, N_STEP_ANNEAL_STEPS=over)
        steps = [*np.linspace(0, over, min(over, 97) + 1).astype(int), over + 1, over + 16, 10 * over]
        label, got = f"{start} to {end} over {over}", []
        for step in steps:
            panel.set(TRAIN_STEP=step)
            got.append(panel.run("n_step")["N_STEP"])
        exact = np.array([start + (end - start) * min(step / over, 1.0) for step in steps])
        trial.true(f"{label}: nearest whole", np.abs(np.array(got) - exact).max() <= 0.5 + 1e-5, got)
        trial.equal(f"{label}: whole", np.rint(got), got)
        trial.equal(f"{label}: begins", start, got[0])
        trial.equal(f"{label}: ends and stays", end, got[-4:])
        trial.true(f"{label}: never grows", (np.diff(got) <= 0).all(), got)
    panel = Panel(trial, N_STEP=7.0)
    for step in (0, 5, 5000):
        panel.set(TRAIN_STEP=step)
        trial.equal(f"constant, step {step}", 7.0, panel.run("n_step")["N_STEP"])


@oracle("controllers")
def controller_reward_scale_is_one_over_the_mean_trade(trial: Trial) -> None:
    panel = Panel(trial)
    panel.set(MEAN_ABS_PNL_EMA=50.0)
    _follows(trial, panel, "reward_scale", "REWARD_SCALE", 0.02)
    panel.set(MEAN_ABS_PNL_EMA=200.0)
    _blends(trial, panel, "reward_scale", "REWARD_SCALE", 0.005)
    for pnl, bound in ((1e9, 1e-4), (1e-9, 1.0)):
        fresh = Panel(trial)
        fresh.set(MEAN_ABS_PNL_EMA=pnl)
        trial.equal(f"bound at {pnl:g} USD", np.float32(bound), fresh.run("reward_scale")["REWARD_SCALE"])


@oracle("controllers")
def controller_reward_clamp_is_sparse(trial: Trial) -> None:
    panel = Panel(trial)
    panel.set(POS_SCALED_MAX=4.0, POS_SCALED_MAX_EMA=4.0)
    panel.run("reward_clamp")
    trial.equal("a win, no loss yet: WIN 1.5 x 4, LOSS keeps its seed", [6, 3], panel.isv[452:454])
    panel.set(POS_SCALED_MAX=0.0, NEG_SCALED_MAX=6.0, NEG_SCALED_MAX_EMA=6.0)
    panel.run("reward_clamp")
    trial.close("a loss: LOSS = 6 x 1.1 x 6 / 4, WIN stays", [6, 9.9], panel.isv[452:454], 1e-5)
    panel.set(NEG_SCALED_MAX=0.0, POS_SCALED_MAX_EMA=1.0)
    before = panel.isv.copy()
    trial.equal("a dry iteration moves nothing", before, panel.run("reward_clamp", 20).isv)
    panel.set(POS_SCALED_MAX=8.0, POS_SCALED_MAX_EMA=8.0)
    panel.run("reward_clamp")
    trial.close("WIN half of the way to 12, LOSS towards 9 x 1", [9, 9.45], panel.isv[452:454], 1e-5)


@oracle("controllers")
def controller_reward_clamp_bounds(trial: Trial) -> None:
    for win, loss, ends in ((100.0, 1e4, (20, 60)), (0.01, 0.001, (1, 1)), (4.0, 1e4, (6, 18)), (4.0, 0.1, (6, 6))):
        panel = Panel(trial)
        panel.set(POS_SCALED_MAX=win, POS_SCALED_MAX_EMA=win, NEG_SCALED_MAX=loss, NEG_SCALED_MAX_EMA=loss)
        trial.close(f"win {win:g}, loss {loss:g}", ends, panel.run("reward_clamp").isv[452:454], 1e-5)


@oracle("controllers")
def controller_ratio_clamp_waits_for_the_clip(trial: Trial) -> None:
    panel = Panel(trial)
    trial.equal("clip at its seed: bootstrap", 10.0, panel.run("ppo_ratio_clamp", 3)["PPO_RATIO_CLAMP_MAX"])
    panel.set(PPO_CLIP_EPS=0.1)
    _follows(trial, panel, "ppo_ratio_clamp", "PPO_RATIO_CLAMP_MAX", 11.0)
    panel.set(PPO_CLIP_EPS=0.2)  # back at the seed: a value like any other now
    _blends(trial, panel, "ppo_ratio_clamp", "PPO_RATIO_CLAMP_MAX", 12.0)
    for margin, bound in ((1.0, 2.0), (1000.0, 1000.0)):
        fresh = Panel(trial, PPO_CLAMP_MARGIN=margin)
        fresh.set(PPO_CLIP_EPS=0.3)
        trial.equal(f"bound at margin {margin:g}", bound, fresh.run("ppo_ratio_clamp")["PPO_RATIO_CLAMP_MAX"])


@oracle("controllers")
def controller_distill_lambda_steps_on_kl(trial: Trial) -> None:
    _bounded_step(trial, "distill_lambda", "Q_DISTILL_LAMBDA", "Q_DISTILL_KL_EMA", (0.06, 0.1, 0.16), low_grows=False)
    _bounds(trial, "distill_lambda", "Q_DISTILL_LAMBDA", "Q_DISTILL_KL_EMA", ((5.0, 1.0), (1e-4, 0.001)))


@oracle("controllers")
def controller_distill_temperature_follows_the_executed_entropy(trial: Trial) -> None:
    panel = Panel(trial)
    panel.set(ACTION_ENTROPY_EMA=0.5, ENTROPY_OBSERVED_EMA=2.3)
    factor = math.exp(0.01 * (0.7 * _LN11 - 0.5))
    _follows(trial, panel, "distill_temperature", "Q_DISTILL_TEMPERATURE", factor)
    value = panel["Q_DISTILL_TEMPERATURE"]
    wanted = value + 0.5 * (value * factor - value)
    _near(trial, "second", wanted, panel.run("distill_temperature")["Q_DISTILL_TEMPERATURE"])
    for entropy, near, bound in ((0.01, 9.9, 10.0), (2.39, 0.0201, 0.02)):
        panel.set(ACTION_ENTROPY_EMA=entropy, Q_DISTILL_TEMPERATURE=near)
        _near(trial, f"bound {bound}", bound, panel.run("distill_temperature", 60)["Q_DISTILL_TEMPERATURE"])


@oracle("controllers")
def controller_loss_balance_gives_every_loss_a_say(trial: Trial) -> None:
    panel = Panel(trial)
    panel.set(LOSS_Q=3.0, LOSS_IQN=1.0, LOSS_PI=-0.5, LOSS_V=0.001)
    panel.run("loss_balance")
    raw = np.array([1 / 4, 1 / 0.5, 1 / 0.05])  # Q, PI, V; the last floored
    trial.close("first as it is, mean 1 over the live", np.clip(raw / raw.mean(), 0.1, 10), panel.isv[408:411], 1e-5)
    trial.equal("not measured: seeds", [1.0, 0.5], panel.isv[[407, 411]])
    panel.set(LOSS_BCE=0.7, LOSS_FRD=1.0, LOSS_OUTCOME=1.0, LOSS_Q=7.0)
    weights = panel.isv[407:412].astype(np.float64)
    panel.run("loss_balance")
    size = np.array([0.7, 4 + 0.05 * 4, 0.5, 0.05, 2.0])  # |Q + IQN| now 8
    target = np.clip((1 / size) / (1 / size).mean(), 0.1, 10)
    rate = np.array([1, 0.5, 0.5, 0.5, 1])
    trial.close("then blends", weights + rate * (target - weights), panel.isv[407:412], 1e-5)
    trial.close("averages", [0.7, 2.0], panel.isv[486:488], 1e-6)
    before = panel.isv.copy()
    panel.set(LOSS_PI=math.nan)
    panel.run("loss_balance")
    trial.true("a NaN loss is no observation", np.isfinite(panel.isv[407:412]).all())
    panel.set(LOSS_PI=float(before[number("LOSS_PI")]), LOSS_BCE=1e4, LOSS_Q=1e4)
    panel.run("loss_balance", 400)
    trial.close("lower bound", [0.1, 0.1], panel.isv[407:409], 1e-6)
