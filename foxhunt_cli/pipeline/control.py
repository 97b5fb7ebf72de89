"""The controllers' part of the ordered list: entry gates, reward scale, controllers, signals of the learning phase.

Owns which controllers run where, and what a frozen one is: its stage is left out, so its slots keep their seeds. Inputs
that the learning phase measures are those of the iteration before; that lag is by design.
"""

from __future__ import annotations

from collections.abc import Collection

from foxhunt_cli.buffers.control import STATE, spare
from foxhunt_cli.kernels.registry import kernel
from foxhunt_cli.nets import c51
from foxhunt_cli.pipeline import rollout
from foxhunt_cli.pipeline.stage import Fused, Matmul, Stage, Step, View, at

# Name in the config (controllers.<name> = "fixed") -> kernel. In the order in which they run.
CONTROLLERS: dict[str, str] = {
    "reward_scale": "rl_controller_reward_scale",
    "reward_clamp": "rl_controller_reward_clamp",
    "gates": "rl_controller_gates",
    "gamma": "rl_controller_gamma",
    "target_tau": "rl_controller_target_tau",
    "ppo_clip": "rl_controller_ppo_clip",
    "ppo_ratio_clamp": "rl_controller_ppo_ratio_clamp",
    "entropy_coef": "rl_controller_entropy_coef",
    "rollout_steps": "rl_controller_rollout_steps",
    "per_alpha": "rl_controller_per_alpha",
    "per_beta": "rl_controller_per_beta",
    "distill_lambda": "rl_controller_distill_lambda",
    "distill_temperature": "rl_controller_distill_temperature",
    "loss_balance": "rl_controller_loss_balance",
    "learning_rate": "rl_controller_learning_rate",
    "atom_span": "rl_controller_atom_span",
    "n_step": "rl_controller_n_step",
}

# What each preset keeps fixed. foxhunt makes one pass over an iteration's rows: with as many as the controller asks for
# (two to three) agents ended worse and iterations took longer. Its entropy bonus stays small: the policy begins at 94 %
# Hold, below the controller's target, and a bonus raised to .05 keeps it from learning (docs/learning.md).
FROZEN: dict[str, frozenset[str]] = {
    "seed": frozenset(),
    "foxhunt": frozenset(
        {
            "gamma",
            "target_tau",
            "reward_scale",
            "reward_clamp",
            "rollout_steps",
            "entropy_coef",
            "loss_balance",
            "distill_lambda",
            "distill_temperature",
            "gates",
        }
    ),
}

_BEFORE_REWARD = ("reward_scale",)
# Not in the kernel of all controllers: where the atom span stands depends on the reward, and a kernel that writes n
# would have every run's push wait for it, also where n is constant.
_APART = ("atom_span", "n_step")
_ROWS = "T*B"


def entry_gates(t: int, features: str = "target_h", *, evaluation: bool = False) -> list[Step]:
    """Both entry gates of environment step ``t``, behind ``rl_action_begin``; needs frd_prob of the whole iteration.

    features: the encodings the critic looks at. evaluation: no warm-up, no bypass, no random number.
    """
    return [
        Stage("rl_gate_open", {**at(t), "evaluation": str(int(evaluation))}),
        _row_q(t, features),
        Stage("rl_confidence_gate", at(t)),
        Stage("rl_frd_gate", at(t)),
    ]


def judged_step(t: int, features: str = "target_h", *, evaluation: bool = False) -> list[Step]:
    """Environment step ``t`` behind its draw, with both entry gates; parameters as of ``entry_gates``."""
    return [_row_q(t, features), Stage("rl_rollout_judged", {**at(t), "evaluation": str(int(evaluation))})]


def atom_span(frozen: Collection[str] = frozenset(), *, reproject: bool) -> list[Step]:
    """The span of the critic's atoms; reproject: its weights follow where the span has grown.

    The symmetric span of mark-to-market rewards looks at the targets of the iteration before alone, so it may stand
    where an iteration begins: what the critic says of this iteration's states need not wait for the rollout. That of
    realised rewards follows the reward's clamp, behind ``end_of_rollout``. Which runs is the dimension
    ``realised_reward``.
    """
    if "atom_span" in _known(frozen):
        return []
    return [Stage(CONTROLLERS["atom_span"]), *([Stage("rl_atom_span_reproject")] if reproject else ())]


def n_step(frozen: Collection[str] = frozenset()) -> list[Step]:
    """The n of replay windows, where it is annealed: a schedule that may stand where an iteration begins."""
    return [] if "n_step" in _known(frozen) else [Stage(CONTROLLERS["n_step"])]


def end_of_rollout(frozen: Collection[str], *, plateau: bool) -> list[Step | Fused]:
    """Between the last environment step and the learning: averages, reward, signals, controllers but those apart.

    plateau: the learning rate halves on a plateau.
    """
    scale = before_reward_controllers(frozen)
    steps = (*rollout.after_rollout(scale), *after_rollout_controllers(frozen, plateau=plateau))
    once = {"averages": str(int(not scale)), "plateau": str(int(plateau)), **_running(frozen)}
    once |= {"blocks_done": "rollout_done"}
    first = rollout.averages_and(scale) if scale else []
    return [Fused((*first, Stage("rl_rollout_end", once)), steps, exact=True)]


def before_reward_controllers(frozen: Collection[str] = frozenset()) -> list[Step]:
    """Between ``ema_update_on_done`` and the reward: the scale that this iteration's reward is measured in."""
    return [Stage(CONTROLLERS[name]) for name in _BEFORE_REWARD if name not in _known(frozen)]


def after_rollout_controllers(frozen: Collection[str] = frozenset(), *, plateau: bool = True) -> list[Step]:
    """Behind the rollout's signals and ``rl_step_counter_update``; parameters as of ``end_of_rollout``."""
    steps: list[Step] = []
    for name, launched in CONTROLLERS.items():
        if name in _known(frozen) or name in (*_BEFORE_REWARD, *_APART):
            continue
        steps.append(Stage(launched, {"plateau": str(int(plateau))} if name == "learning_rate" else {}))
    return steps


def after_updates_controllers(*, critic: bool = True) -> list[Step]:
    """Behind the last Adam step: the signals that the controllers of the next iteration (and people) read.

    One policy head forward on the stored encodings gives the new log-probabilities. critic: this iteration had replay
    updates (``c51_td`` is fresh); without, the TD moments are left alone. No controller runs here: none to freeze.
    """
    rows = {"rows": _ROWS}
    steps: list[Step] = [
        Matmul(
            "pi head after the updates",
            View("h", _ROWS, "HIDDEN_DIM"),
            View("w_pi", "HIDDEN_DIM", "P*N_ACTIONS"),
            View("pi_all", _ROWS, "P*N_ACTIONS"),
        ),
        Stage("rl_log_ratio_rows", rows),
        Stage("rl_kl_approx_b", rows),
        Stage("ppo_log_ratio_abs_max_b", rows),
        Stage("rl_var_over_abs_mean_streaming", rows),
    ]
    if critic:
        steps.append(Stage("rl_kurtosis_streaming", {"td_error": "c51_td", "rows": "R"}))
    return steps


def end_of_iteration(*, critic: bool = True) -> list[Step | Fused]:
    """``after_updates_controllers``, then the total loss, the diagnostic record, the cursors of the next iteration."""
    head, *steps = after_updates_controllers(critic=critic)
    steps += [Stage("rl_loss_total"), Stage("rl_diag_record"), Stage("gpu_advance_cursor")]
    error = {"td_error": "c51_td", "n_td": "R"} if critic else {"td_error": "advantage", "n_td": _ROWS}
    once = Stage("rl_iteration_end", {"rows": _ROWS, "critic": str(int(critic)), "blocks_done": "end_done", **error})
    return [head, Fused((once,), tuple(steps), exact=True)]


def _row_q(t: int, features: str) -> Stage:
    row_q = c51.row_q(features)
    return Stage(row_q.kernel, {**row_q.remap, **at(t)})


def _running(frozen: Collection[str]) -> dict[str, str]:
    """What tells the kernel of all controllers which of them run: their bits, and spares for states of the others."""
    running = [name for name in CONTROLLERS if name not in _known(frozen) and name not in _APART]
    bits = sum(1 << index for index, name in enumerate(CONTROLLERS) if name in running)
    used = {param.name for name in running for param in kernel(CONTROLLERS[name]).params}
    return {"controllers": str(bits), **{name: spare(name) for name in STATE if name not in used}}


def _known(frozen: Collection[str]) -> Collection[str]:
    unknown = sorted(set(frozen) - set(CONTROLLERS))
    if unknown:
        raise ValueError(f"controllers.{unknown[0]}: no such controller; there are {', '.join(CONTROLLERS)}")
    return frozen
