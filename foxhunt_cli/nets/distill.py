"""What the critic teaches the actor: ensemble action values, distillation, the reference policy, agreement.

Owns the steps that add to grad_pi_all after the surrogate wrote it. They change no critic tensor.
"""

from __future__ import annotations

from foxhunt_cli.buffers.row import Buffer
from foxhunt_cli.nets import c51, iqn
from foxhunt_cli.nets.target import NONFINITE_DISTILL
from foxhunt_cli.pipeline.stage import Stage, Step

PARAMETERS = ()

BUFFERS = (
    Buffer("ensemble_q", "T, B, P*N_ACTIONS", "float32", "iteration", "scaled", "alpha E[C51] + (1 - alpha) E[IQN]"),
    Buffer("row_action_gap", "T, B", "float32", "iteration", "scaled", "max - mean of E[Q], mean over classes"),
    Buffer("action_gap", "1", "float32", "iteration", "scaled", "batch mean of it"),
    Buffer("row_distill", "T, B", "float32", "iteration", "nats", "KL(target || pi)"),
    Buffer("row_kl_reference", "T, B", "float32", "iteration", "nats", "KL(reference || pi)"),
)

_ROWS = "T*B"


def action_values(rows: int, chunk: int, features: str = "h_bar") -> list[Step]:
    """ensemble_q of every class and action at the T*B = ``rows`` critic encodings; ``chunk`` bounds memory."""
    return [
        *c51.expected_q(rows, chunk, features),
        *iqn.expected_q(_ROWS, features),
        Stage("rl_ensemble_action_value", {"n": f"{_ROWS}*P*N_ACTIONS"}),
    ]


def gradients(*, all_classes: bool) -> list[Step]:
    """grad_pi_all += distillation and reference KL; loss and KL into their slots.

    all_classes: every class of every row with a gap-scaled temperature; else the row's own class with the slot's.
    """
    rows = {"rows": _ROWS}
    return [
        Stage("rl_action_gap_rows", rows),
        Stage("rl_action_gap", rows),
        Stage("rl_q_pi_distill_grad", {**rows, "all_classes": str(int(all_classes))}),
        Stage("rl_distill_kl", {**rows, "part": NONFINITE_DISTILL}),
        Stage("rl_kl_reference_grad", rows),
    ]


def agreement() -> list[Step]:
    """Share of rows whose best action by value is the policy's most probable one; needs pi_soft of the surrogate."""
    return [Stage("rl_q_pi_agree_b", {"rows": _ROWS})]
