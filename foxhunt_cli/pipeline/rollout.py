"""The environment's part of the ordered list: begin of an iteration, one environment step, the end of a rollout.

Owns the order of overrides, fill and bookkeeping, and which kernels do all steps of a rollout at once. The draw of the
action comes before ``environment_step`` (the policy in training, a rule in a baseline). A later override wins: safety
comes last.
"""

from __future__ import annotations

from collections.abc import Sequence

from foxhunt_cli.pipeline.stage import Stage, Step, at

# Kernels of one environment step. The entry gates (confidence, forward return) stand behind ``rl_action_begin``: they
# act on what the policy drew, and everything below may override them.
_OVERRIDES = ("rl_min_hold_check", "rl_trail_mutate", "rl_trail_stop_check", "rl_drawdown_stop", "rl_heat_cap")
_EXECUTION = (
    "actions_to_market_targets",
    "lobsim_fill",
    "extract_realized_pnl_delta",
    "rl_unit_state_update",
    "rl_trade_context_update",
    "rl_recent_outcome_update",
)
_STATISTICS = (
    "rl_fused_reward_pipeline",
    "rl_reward_statistics",
    "action_entropy_per_step",
    "rl_event_counters",
    "rl_market_statistics",
    "rl_unit_statistics",
    "rl_dones_ema",
    "rl_step_counter_update",
)


# Draw of an action -> kernel that plays all steps of an iteration by it.
_WHOLE_ROLLOUT = {
    "rl_pi_action_kernel": "rl_rollout_policy",
    "rl_q_action_kernel": "rl_rollout_value",
    "rl_signal_action": "rl_rollout_signal",
}

WARPS = 1024  # of rl_rollout_policy that fit on a GPU at once with room beside them


def iteration_begin() -> list[Step]:
    """Before the first environment step: carry the trade context over, clear rows on a new episode."""
    return [Stage("rl_rollout_begin")]


def environment_step(t: int, gates: Sequence[Step] = ()) -> list[Step]:
    """Environment step ``t`` of the iteration, after ``action_drawn[t]`` has been written; ``gates`` judge the draw."""
    names = (*_OVERRIDES, *_EXECUTION)
    return [Stage("rl_action_begin", at(t)), *gates, *(Stage(name, at(t)) for name in names)]


def whole_rollout(draw: Stage) -> list[Step]:
    """All environment steps of an iteration whose actions come from ``draw``, without entry gates, in one kernel."""
    name = _WHOLE_ROLLOUT[draw.kernel]
    lanes = {"lanes": f"32 if B <= {WARPS} else 16"} if name == "rl_rollout_policy" else {}
    return [Stage(name, {**draw.remap, **lanes})]


def after_rollout(scale: Sequence[Step] = ()) -> list[Step]:
    """Once all T steps are played: trade averages, ``scale`` (what reads them before the reward), reward, signals."""
    return [*averages_and(scale), *(Stage(name) for name in _STATISTICS)]


def averages_and(scale: Sequence[Step]) -> list[Step]:
    """Trade averages, and what reads them before the reward."""
    return [Stage("ema_update_on_done"), *scale]
