"""The learning-rate controller and the gates' controller: schedules with state, played update by update."""

from __future__ import annotations

import numpy as np

from foxhunt_cli.isv.table import number
from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.controllers import FLOAT, Panel

_RATES = slice(412, 417)


def _learn(panel: Panel, updates: int | tuple[int, ...], times: int = 1, plateau: int = 1, **slots: float) -> Panel:
    """``times`` iterations of ``updates`` updates (of every group, or by group) each."""
    panel.set(**slots)
    for _ in range(times):
        owned = np.uint32([[1, 0, 1, 1, 1], [0, 1, 0, 0, 0]])  # Q learns with the critic
        panel.memory["adam_step"][:, :5] += np.asarray(updates, np.uint32) * owned
        panel.run("learning_rate", plateau=plateau)
    return panel


@oracle("controllers")
def learning_rate_warms_up_by_updates(trial: Trial) -> None:
    """Each head by its own updates, from its own seed; full from the last warm-up update on."""
    seeds = np.array([5e-4, 5e-4, 1e-3, 2e-3, 1e-3])
    names = ("LR_BCE", "LR_Q", "LR_PI", "LR_V", "LR_AUX")
    panel = Panel(trial, LR_WARMUP_STEPS=100, **dict(zip(names, seeds, strict=True)))
    panel.run("learning_rate", plateau=1)
    trial.close("before the first update", np.maximum(seeds / 100, 1e-5), panel.isv[_RATES], 1e-9)
    _learn(panel, (0, 49, 9, 99, 200))
    share = np.array([0.01, 0.5, 0.1, 1.0, 1.0])
    trial.close("by each head's updates", np.maximum(seeds * share, 1e-5), panel.isv[_RATES], 1e-8)
    trial.equal("updates are shown", [49, 9, 99], panel.isv[[430, 434, 438]])
    _learn(panel, 900)
    trial.equal("full", seeds.astype(np.float32), panel.isv[_RATES])


@oracle("controllers")
def learning_rate_declines_to_its_final_share(trial: Trial) -> None:
    """Linear over the run for every head, IQN's too, constant behind its end; a share of 1 changes nothing."""
    panel = Panel(trial, LR_WARMUP_STEPS=1, LR_FINAL_SHARE=0.2, RUN_STEPS=1000, IQN_LR=5e-4)
    _learn(panel, 1)
    for step, share in ((0, 1.0), (250, 0.8), (1000, 0.2), (5000, 0.2)):
        _learn(panel, 1, TRAIN_STEP=step)
        trial.close(f"step {step}", share * 1e-3, panel.isv[_RATES], 1e-9)
        trial.close(f"step {step}: IQN", share * 5e-4, panel.isv[number("IQN_LR")], 1e-9)
    _learn(panel, 1, TRAIN_STEP=500, LR_FINAL_SHARE=1.0)
    trial.equal("no decline", np.float32(1e-3), panel.isv[_RATES])


@oracle("controllers")
def learning_rate_trusts_small_gradients(trial: Trial) -> None:
    panel = Panel(trial, LR_WARMUP_STEPS=1)
    _learn(panel, 1, Q_GRAD_NORM_EMA=4.0, PI_GRAD_NORM_EMA=0.5, V_GRAD_NORM_EMA=1e6)
    want = np.array([1e-3, 2.5e-4, 1e-3, 1e-5, 1e-3])
    trial.close("x min(1, 1 / norm), at least 1e-5; BCE and AUX untouched", want, panel.isv[_RATES], 1e-9)
    _learn(panel, 1, Q_GRAD_NORM_EMA=float("nan"))
    trial.true("a NaN norm asks for nothing", np.isfinite(panel.isv[_RATES]).all())


@oracle("controllers")
def learning_rate_halves_on_a_plateau(trial: Trial) -> None:
    """Patience 20 updates in iterations of 4; Q stands still, PI improves, V has no update at all."""
    panel = Panel(trial, LR_WARMUP_STEPS=4, PLATEAU_PATIENCE=20)
    updates = (4, 4, 4, 0, 4)
    _learn(panel, updates, LOSS_Q=2.0, LOSS_PI=-1.0, LOSS_V=3.0)
    trial.equal("first loss is average and best", [2, 2, -1, -1], panel.isv[[427, 428, 431, 432]])
    for i in range(5):
        trial.equal(f"iteration {i + 2}: not yet", np.float32(1e-3), panel.isv[413])
        _learn(panel, updates, LOSS_PI=-1.0 - i)
    trial.close("20 updates without improvement: half", 5e-4, panel.isv[413], 5e-4 * FLOAT)
    trial.equal("the count starts anew", 0.0, panel.isv[429])
    trial.equal("PI improved", np.float32(1e-3), panel.isv[414])
    trial.equal("no update, no event", [0, 0, 0, 0], panel.isv[435:439])
    _learn(panel, updates, 5)
    trial.close("and again", 2.5e-4, panel.isv[413], 2.5e-4 * FLOAT)
    _learn(panel, updates, 1, plateau=0)
    trial.equal("the rule switched off", np.float32(1e-3), panel.isv[413])
    _learn(panel, updates, 500)
    trial.equal("lower bound", np.float32(1e-5), panel.isv[413])


@oracle("controllers")
def learning_rate_improvement_needs_its_threshold(trial: Trial) -> None:
    """1 % of |best| is an improvement, less is not; a NaN loss is no observation."""
    panel = Panel(trial, LR_WARMUP_STEPS=1, PLATEAU_PATIENCE=10)
    _learn(panel, 1, LOSS_Q=-1.0)
    _learn(panel, 1, LOSS_Q=-1.19)  # average -1.0095
    trial.equal("0.95 %: no", [-1, 1], panel.isv[428:430])
    _learn(panel, 1, LOSS_Q=-1.05)  # average -1.011525
    trial.close("1.15 %: yes", [-1.011525, 0], panel.isv[428:430], 1e-5)
    before = panel.isv.copy()
    _learn(panel, 1, LOSS_Q=float("nan"))
    trial.equal("NaN moves nothing", before[427:430], panel.isv[427:430])
    trial.equal("but the updates count", 4.0, panel.isv[430])


@oracle("controllers")
def learning_rate_ignores_a_loss_that_is_rounding(trial: Trial) -> None:
    """The surrogate of a single pass is 0 by construction: no average, no plateau, no halving."""
    panel = Panel(trial, LR_WARMUP_STEPS=1, PLATEAU_PATIENCE=3)
    for i in range(20):
        _learn(panel, 1, LOSS_PI=1e-8 * (-1) ** i)
    trial.equal("nothing was measured", [0, 0, 0, 20], panel.isv[431:435])
    trial.equal("full rate", np.float32(1e-3), panel.isv[414])
    panel.run("loss_balance")
    trial.equal("and no say in the balance", [1.0, 0.0], [panel["LOSS_LAMBDA_PI"], panel.memory["loss_abs_ema"][1]])


_GATE_SLOTS = [512, 516, 517, 513]


def _gate_panel(trial: Trial, dones: float, **slots: float) -> Panel:
    panel = Panel(trial, **slots)
    panel.set(TRAIN_STEP=1000.0, DONES_EMA=dones)
    return panel


@oracle("controllers")
def gate_controller_relaxes_and_tightens(trial: Trial) -> None:
    """Target 0.02: few below 0.01, many above 0.04."""
    seeds = np.array([0.01, 0.15, 0.15, 1.0])
    for dones, factor in ((0.009, 0.95), (0.0, 0.95), (0.02, 1.0), (0.041, 1 / 0.95)):
        got = _gate_panel(trial, dones).run("gates").isv[_GATE_SLOTS]
        trial.close(f"dones {dones:g}", seeds * [factor, factor, factor, 1], got, 1e-7)
    panel = _gate_panel(trial, 0.001)
    panel.set(TRAIN_STEP=999.0)
    trial.equal("in the warm-up: held", seeds.astype(np.float32), panel.run("gates", 5).isv[_GATE_SLOTS])
    panel = _gate_panel(trial, 0.5).run("gates", 100)
    trial.equal("upper bounds", np.float32([0.5, 0.5, 0.5, 1.0]), panel.isv[_GATE_SLOTS])


@oracle("controllers")
def gate_controller_relaxes_lambda_last_and_tightens_it_first(trial: Trial) -> None:
    panel = _gate_panel(trial, 0.0)
    steps = 0
    floor = np.float32(0.001)
    while panel["CONF_GATE_THRESHOLD"] > floor and steps < 100:
        panel.run("gates")
        steps += 1
        if panel["CONF_GATE_LAMBDA"] != 1.0:
            break
    trial.equal("lambda waits", 1.0, panel["CONF_GATE_LAMBDA"])
    trial.equal("steps to the floor", 45, steps)  # 0.01 x 0.95^44 > 0.001 >= 0.01 x 0.95^45
    panel.run("gates", 3)
    trial.close("then lambda", 0.95**3, panel["CONF_GATE_LAMBDA"], 1e-6)
    trial.equal("floors", np.float32([0.001, 0.05, 0.05]), panel.isv[_GATE_SLOTS[:3]])
    panel.run("gates", 100)
    trial.equal("down to 0", 0.0, panel["CONF_GATE_LAMBDA"])
    panel.set(DONES_EMA=0.5)
    panel.run("gates", 2)
    trial.close("tightens lambda first", 0.01 / 0.95, panel["CONF_GATE_LAMBDA"], 1e-6)
    trial.equal("the threshold waits", floor, panel["CONF_GATE_THRESHOLD"])
    panel.run("gates", 100)
    trial.equal("lambda is back at its seed", 1.0, panel["CONF_GATE_LAMBDA"])
    trial.true("then the threshold", panel["CONF_GATE_THRESHOLD"] > floor, panel["CONF_GATE_THRESHOLD"])


@oracle("controllers")
def gate_controller_returns_lambda_to_its_own_seed(trial: Trial) -> None:
    panel = _gate_panel(trial, 0.0, CONF_GATE_LAMBDA=0.2, CONF_GATE_THRESHOLD=0.001).run("gates", 5)
    trial.close("relaxed", 0.2 * 0.95**5, panel["CONF_GATE_LAMBDA"], 1e-6)
    panel.set(DONES_EMA=0.5)
    trial.equal("and back, no further", np.float32(0.2), panel.run("gates", 20)["CONF_GATE_LAMBDA"])
