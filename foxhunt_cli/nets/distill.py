"""What the critic teaches the actor: ensemble action values, distillation, the reference policy, agreement.

Owns the steps that add to grad_pi_all after the surrogate wrote it. They change no critic tensor.
"""

from __future__ import annotations

from foxhunt_cli.buffers.row import Buffer
from foxhunt_cli.nets import c51, iqn
from foxhunt_cli.nets.target import NONFINITE_DISTILL
from foxhunt_cli.pipeline.stage import Fused, Stage, Step

_ROWS, _PAIRS = "T*B", "P*N_ACTIONS"
_LESSON_BLOCKS = f"({_ROWS} + 128/P - 1)/(128/P)"  # grid of rl_policy_lesson

BUFFERS = (
    Buffer("ensemble_q", f"T, B, {_PAIRS}", "float32", "iteration", "scaled", "alpha E[C51] + (1 - alpha) E[IQN]"),
    Buffer("row_action_gap", "T, B", "float32", "iteration", "scaled", "max - mean of E[Q], mean over classes"),
    Buffer("action_gap", "1", "float32", "iteration", "scaled", "batch mean of it"),
    Buffer("row_distill", "T, B", "float32", "iteration", "nats", "KL(target || pi)"),
    Buffer("row_kl_reference", "T, B", "float32", "iteration", "nats", "KL(reference || pi)"),
    Buffer("gap_parts", "128", "float32", "iteration", "scaled", "sums of max - mean of E[Q] over rows and classes"),
    Buffer("lesson_parts", f"{_LESSON_BLOCKS}, 3", "float32", "iteration", "mixed", "KL, bad rows, agreeing rows"),
)

# The fused action values (cuda_src/cuda_only/ensemble_tf32.cu): warps a block, rows a warp, most pairs of a block, and
# blocks that a GPU of 132 multiprocessors runs at once. Pairs a block are chosen for nine classes.
_WARPS, _WARP_ROWS, _BLOCK_PAIRS, _BLOCKS, _USUAL_PAIRS = 16, 32, 25, 132, 99


def _pairs_each(rows: int) -> int:
    """Pairs of a block for which a warp's share, rounds over rows times pairs, is least."""

    def share(each: int) -> float:
        groups = _BLOCKS // -(-_USUAL_PAIRS // each)
        rounds = -(-rows // (_WARP_ROWS * _WARPS * groups)) if groups else rows
        return rounds * (each + 1.0)  # a round's start is about a pair's work

    return min(range(1, _BLOCK_PAIRS + 1), key=share)


def action_values(rows: int, chunk: int, features: str = "target_h", *, quantiles: bool = True) -> list[Step | Fused]:
    """ensemble_q of every class and action at the T*B = ``rows`` critic encodings; ``chunk`` bounds memory.

    quantiles False: there is no quantile head, E[C51] alone is the value.
    """
    if not quantiles:
        return [*c51.expected_q(rows, chunk, features, "ensemble_q")]
    steps = (
        *c51.expected_q(rows, chunk, features),
        *iqn.expected_q(_ROWS, features),
        Stage("rl_ensemble_action_value", {"rows": _ROWS}),
    )
    tiles, each = -(-rows // (_WARP_ROWS * _WARPS)), _pairs_each(rows)
    chunks = f"(({_PAIRS} + {each - 1})/{each})"
    groups = f"{tiles} if {tiles}*{chunks} <= {_BLOCKS} else {_BLOCKS}/{chunks}"
    size = {"rows": str(rows), "each": str(each), "groups": groups}
    launches = (
        Stage("rl_iqn_mean_embedding", {"n": "N_TAU"}),
        Stage("rl_ensemble_q_tf32", {"h": features, **size}),
    )
    return [Fused(launches, steps, tf32=True)]


def lesson(*, all_classes: bool, by_position: bool = False) -> Fused:
    """``gradients`` and ``agreement`` at once; the KL from the reference policy, a figure nobody reads, is not kept."""
    rows, blocks = {"rows": _ROWS}, {"blocks": _LESSON_BLOCKS}
    launches = (
        Stage("rl_action_gap_parts", rows),
        Stage("rl_policy_lesson", {**rows, **_what(all_classes, by_position)}),
        Stage("rl_policy_lesson_reduce", {**rows, **blocks, "part": NONFINITE_DISTILL}),
    )
    return Fused(launches, (*gradients(all_classes=all_classes, by_position=by_position), *agreement()))


def _what(all_classes: bool, by_position: bool) -> dict[str, str]:
    return {"all_classes": str(int(all_classes)), "by_position": str(int(by_position))}


def gradients(*, all_classes: bool, by_position: bool = False) -> list[Step]:
    """grad_pi_all += distillation and reference KL; loss and KL into their slots.

    all_classes: every class of every row with a gap-scaled temperature; else the row's own class with the slot's.
    by_position: actions that lead to the same position are taught as one (needs ``next_class``): path targets do not
    tell them apart, and noise taught as a preference would wear the trails of stops to nothing or past the heat cap.
    """
    rows = {"rows": _ROWS}
    return [
        Stage("rl_action_gap_rows", rows),
        Stage("rl_action_gap", rows),
        Stage("rl_q_pi_distill_grad", {**rows, **_what(all_classes, by_position)}),
        Stage("rl_distill_kl", {**rows, "part": NONFINITE_DISTILL}),
        *reference(),
    ]


def reference() -> list[Step]:
    """grad_pi_all += reference KL alone."""
    return [Stage("rl_kl_reference_grad", {"rows": _ROWS})]


def agreement() -> list[Step]:
    """Share of rows whose best action by value is the policy's most probable one; needs pi_soft of the surrogate."""
    return [Stage("rl_q_pi_agree_b", {"rows": _ROWS})]
