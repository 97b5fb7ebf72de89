"""The numbers of a run that the peer computes with: slots of the ISV at its start, sizes and the instrument's figures.

Frozen: the peer has no controllers, so what is a slot for us is a constant for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from foxhunt_cli.isv.table import number
from foxhunt_cli.nets.frd import FRD_HIDDEN
from foxhunt_cli.nets.outcome import N_OUTCOMES

ACTIONS, ATOMS, HORIZONS, BUCKETS = 11, 21, 3, 21


@dataclass(frozen=True)
class Rules:
    """Slots by lower-case name; meanings and units are the table's (``foxhunt diag slots``)."""

    gamma: float
    gae_lambda: float
    v_target_clamp: float
    p_min: float
    ppo_clip_eps: float
    ppo_ratio_clamp_max: float
    entropy_coef: float
    kl_ref_beta: float
    kl_ref_hold: float
    q_distill_lambda: float
    q_distill_temperature: float
    loss_lambda_pi: float
    loss_lambda_v: float
    loss_lambda_q: float
    loss_lambda_aux: float
    loss_lambda_bce: float
    frd_lambda: float
    outcome_lambda: float
    popart_mean: float
    popart_second_moment: float
    c51_v_min: float
    c51_v_max: float
    ensemble_alpha: float
    n_step: float
    per_alpha: float
    per_beta: float
    per_max_priority: float
    target_tau: float
    grad_clip_norm: float
    adam_beta1: float
    adam_beta2: float
    adam_eps: float
    reward_scale: float
    reward_clamp_win: float
    reward_clamp_loss: float
    trail_k_init: float
    trail_min: float
    trail_max: float
    frd_sigma_medium: float

    @classmethod
    def of(cls, isv: Sequence[float]) -> Rules:
        """The slots of an ISV, [640]."""
        return cls(**{field.name: float(isv[number(field.name.upper())]) for field in fields(cls)})

    @property
    def value_sigma(self) -> float:
        """PopArt's standard deviation of the returns."""
        return max(math.sqrt(max(self.popart_second_moment - self.popart_mean**2, 0.0)), 1e-4)


@dataclass(frozen=True)
class Sizes:
    """B rows, T steps, K snapshots of warm-up, P position classes of the heads, R rows and C slots of the replay, U
    updates, N_TAU taus of IQN; the lot limit and what a tick and a side cost in USD."""

    B: int
    T: int
    K: int
    P: int
    R: int
    C: int
    U: int
    N_TAU: int
    lot_limit: int
    tick_value_usd: float
    fee_usd: float
    realised_reward: bool

    @classmethod
    def of(cls, dims: Mapping[str, int | float], updates: int) -> Sizes:
        """From an engine's dimensions."""
        whole = {name: int(dims[name]) for name in ("B", "T", "K", "P", "R", "C", "N_TAU", "lot_limit")}
        usd = {name: float(dims[name]) for name in ("tick_value_usd", "fee_usd")}
        return cls(**whole, **usd, U=updates, realised_reward=bool(dims["realised_reward"]))

    @property
    def head_widths(self) -> tuple[int, int, int, int, int]:
        """Columns of policy, value, FRD's first layer, direction, outcome: the parts of ``w_heads``."""
        return self.P * ACTIONS, self.P, FRD_HIDDEN, HORIZONS, self.P * N_OUTCOMES
