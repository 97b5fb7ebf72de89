"""Names the stage of every step of a training iteration: what people call the part it belongs to.

Owns the table of names. A step that no rule knows is ``other``; a step that many stages share (a mean, a norm) belongs
to the stage before it. Works on the ordered list alone: no device, no sizes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from foxhunt_cli.kernels.registry import kernel
from foxhunt_cli.pipeline.shape import Shape
from foxhunt_cli.pipeline.stage import Stage, Step
from foxhunt_cli.pipeline.validate import describe, reads, writes

OTHER = "other"
_SHARED = re.compile(r"rl_mean_into_slot|rl_label_count|rl_row_mean|rl_square_sum_parts|rl_l2_norm")
_ENCODER = re.compile(r"(target_)?(vsn|m1|m2|mamba2|cfc|mlp)[ _]|(bias_tanh|tanh_backward|zero cfc_recurrent)$")
_BACKWARD = re.compile(r"grad |_backward")
_FORWARD_ONLY = ("target_", "encoder_grad", "x_next", "gap_next", "next_h")
_REPLAY = re.compile(r"rl_per_sample")  # opens the replay updates

# Stage -> pattern of its steps, tried from the top; each table for its half of the iteration.
_EITHER = {
    "signals, diagnostics": r"pi head after|rl_log_ratio|rl_kl_approx|ppo_log_ratio|rl_var_over|rl_kurtosis"
    r"|rl_loss_total|rl_diag_record",
    "norms, spectral cap, PopArt": r"rl_difference|rl_l2_diff|spectral|rl_spectral|rl_popart",
    "windows": r"gpu_(sample_starts|window_gaps|advance_cursor)|snap_feature|rl_rollout_begin|rl_multires"
    r"|rl_encoder_context|rl_encoder_next",
}
_BEFORE_REPLAY = {
    "policy and value heads": r"(pi|v) head|rl_policy_heads",
    "rollout: entry gates": r"rl_gate_open|rl_c51_row_q|rl_confidence_gate|rl_frd_gate",
    "rollout": r"rl_pi_action|rl_action_begin|rl_min_hold|rl_trail|rl_drawdown|rl_heat|actions_to|lobsim"
    r"|extract_realized|rl_unit_state|rl_trade_context|rl_recent|rl_hindsight_track",
    "reward and statistics": r"ema_update|rl_fused_reward|rl_reward_stat|action_entropy|rl_event|rl_market_stat"
    r"|rl_unit_statistics|rl_dones|rl_step_counter",
    "controllers": r"rl_controller_|rl_open_passes|rl_atom_span_reproject",
    "replay: push": r"rl_per_",
    "replay: hindsight": r"rl_hindsight_",
    "policy losses": r"zero nonfinite|rl_value_rows|gae_|rl_advantage|ppo_clipped|rl_value_loss|rl_loss_reduce",
    "distillation": r"rl_path_next|rl_atom_support|c51( |$)|rl_c51_|rl_tau|iqn |rl_iqn|rl_ensemble|rl_action_gap"
    r"|rl_q_pi|rl_distill|rl_kl_reference",
    "policy and value backward": r"(pi|v) grad|rl_policy_backward",
    "supervised heads": r"zero grad_h|gpu_gather_frd|(rl_)?(frd|direction|outcome)[ _]",
    "critic gradient": r"rl_moment_batch|rl_path_targets|rl_sample_noise|rl_noisy|zero c51|zero critic_grad|argmax_exp"
    r"|rl_q_|rl_sample_tau|rl_add_encoding",
    "optimiser": r"rl_grad_|rl_adam",
}
_IN_REPLAY = {
    "critic: sample": r"rl_per_(sample|gather|weights)|rl_sample_windows|rl_fresh_pick",
    "critic: path targets": r"rl_path",
    "critic: noise": r"rl_sample_noise|rl_noisy_compose|zero c51",
    "critic: C51 forward": r"c51( next| target)?$|argmax_expected_q|rl_c51_next",
    "critic: C51 backward": r"bellman|rl_c51_\w*loss|rl_q_|c51 grad|rl_noisy_backward",
    "critic: IQN backward": r"rl_iqn_(loss|backward|phi_backward)|iqn grad",
    "critic: IQN forward": r"rl_sample_tau|rl_tau|rl_iqn|iqn",
    "critic: optimiser": r"rl_grad_|rl_adam",
    "critic: priorities": r"rl_per_",
    "critic: target copies": r"rl_polyak",
}
_TABLES = {
    replay: [(stage, re.compile(pattern)) for stage, pattern in (_EITHER | own).items()]
    for replay, own in ((False, _BEFORE_REPLAY), (True, _IN_REPLAY))
}


def stages_of(steps: Sequence[Step], shape: Shape) -> list[str]:
    """The stage of each step of ``training(shape)``, in the list's order."""
    second = "encoder, next window" if shape.sees_position else "target encoder"
    found: list[str] = []
    in_replay = False
    for step in steps:
        name = _first_name(step)
        in_replay = in_replay or _REPLAY.match(name) is not None
        if _SHARED.match(name) and found:
            found.append(found[-1])
        elif _ENCODER.match(name):
            found.append(_encoder_stage(step, name, second))
        else:
            found.append(next((stage for stage, pattern in _TABLES[in_replay] if pattern.match(name)), OTHER))
    # A fill of the encoder's carry belongs to the pass that it opens.
    for index in range(len(steps) - 2, -1, -1):
        if describe(steps[index]) == "zero cfc_recurrent":
            found[index] = found[index + 1]
    return found


def _first_name(step: Step) -> str:
    """What the step is called; a fused kernel by the first step that it does."""
    fused = kernel(step.kernel).fuses if isinstance(step, Stage) else ()
    return fused[0] if fused else describe(step)


def _encoder_stage(step: Step, name: str, second: str) -> str:
    if _BACKWARD.search(name):
        return "encoder backward"
    touched = {*reads(step), *writes(step)}
    return second if any(buffer.startswith(_FORWARD_ONLY) for buffer in touched) else "encoder forward"
