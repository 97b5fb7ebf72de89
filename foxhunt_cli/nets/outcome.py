"""The outcome head: h -> P classes x (loss, scratch, win) of the trade that closes at this step.

Learns on closing steps only, at the class held before the close. Its own tensors learn at any weight, the encoder gets
its gradient x OUTCOME_LAMBDA.
"""

from __future__ import annotations

from foxhunt_cli.buffers.row import Buffer
from foxhunt_cli.isv.table import number
from foxhunt_cli.nets.params import Parameter
from foxhunt_cli.nets.target import NONFINITE_OUTCOME
from foxhunt_cli.pipeline.stage import Matmul, Stage, Step, View

N_OUTCOMES = 3
_ROWS, _OUT = "T*B", f"P*{N_OUTCOMES}"

PARAMETERS = (
    Parameter("w_outcome", f"HIDDEN_DIM, {_OUT}", "xavier", 0.1, "LR_AUX"),
    Parameter("b_outcome", _OUT, "constant", 0.0, "LR_AUX"),
)

BUFFERS = (
    Buffer("outcome_target", "T, B", "int8", "iteration", "outcome", "0 loss, 1 scratch, 2 win; -1 = no close"),
    Buffer("outcome_logits", f"T, B, P, {N_OUTCOMES}", "float32", "iteration", "logits", "of every class"),
    Buffer("grad_outcome_logits", f"T, B, P, {N_OUTCOMES}", "float32", "iteration", "1", "gradient of the loss"),
    Buffer("outcome_label_scale", "2", "float32", "iteration", "mixed", "closes of the iteration, 1 / closes"),
    Buffer("row_loss_outcome", "T, B", "float32", "iteration", "nats", "cross-entropy of a closing row, else 0"),
    Buffer("row_weight_outcome", "T, B", "float32", "iteration", "0/1", "the row closed a trade"),
    Buffer("outcome_hit", "T, B", "float32", "iteration", "0/1", "the most probable outcome was the outcome"),
)


def forward() -> list[Step]:
    """h [T, B, 128] -> outcome_logits [T, B, P, 3] without bias; the loss kernel adds it."""
    w = View("w_outcome", "HIDDEN_DIM", _OUT)
    return [Matmul("outcome head", View("h", _ROWS, "HIDDEN_DIM"), w, View("outcome_logits", _ROWS, _OUT))]


def loss_and_backward() -> list[Step]:
    """Labels, loss into its slot, accuracy, gradients of both tensors, grad_h += OUTCOME_LAMBDA x the head's part.

    ``tick_value_usd`` is a float among the dimensions.
    """
    h, grad = View("h", _ROWS, "HIDDEN_DIM"), View("grad_outcome_logits", _ROWS, _OUT)
    w = View("w_outcome", "HIDDEN_DIM", _OUT)
    rows, scale = {"rows": _ROWS}, {"label_scale": "outcome_label_scale"}
    return [
        Stage("rl_outcome_labels", rows),
        Stage("rl_label_count", {"label": "outcome_target", "n": _ROWS, **scale}),
        Stage("rl_outcome_ce_grad", {**rows, **scale}),
        Stage("rl_outcome_accuracy", rows),
        Stage(
            "rl_mean_into_slot",
            {"row_loss": "row_loss_outcome", "row_weight": "row_weight_outcome", **rows}
            | {"slot": str(number("LOSS_OUTCOME")), "part": NONFINITE_OUTCOME},
        ),
        Matmul("outcome grad w", h, grad, View("grad_w_outcome", "HIDDEN_DIM", _OUT), trans_a=True),
        Matmul("outcome grad b", View("ones", "1", _ROWS), grad, View("grad_b_outcome", "1", _OUT)),
        Stage("rl_outcome_scale_grad", {"n": f"{_ROWS}*{_OUT}"}),
        Matmul("outcome grad h", grad, w, View("grad_h", _ROWS, "HIDDEN_DIM"), trans_b=True, accumulate=True),
    ]
