"""The direction head: h -> 3, will the mid be higher at each horizon. Binary cross-entropy x LOSS_LAMBDA_BCE."""

from __future__ import annotations

from foxhunt_cli.buffers.row import Buffer
from foxhunt_cli.isv.table import number
from foxhunt_cli.nets.params import Parameter
from foxhunt_cli.nets.target import NONFINITE_DIRECTION
from foxhunt_cli.pipeline.stage import Matmul, Stage, Step, View

_ROWS, _OUT = "T*B", "N_HORIZONS"

PARAMETERS = (
    Parameter("w_direction", f"HIDDEN_DIM, {_OUT}", "xavier", 0.1, "LR_BCE"),
    Parameter("b_direction", _OUT, "constant", 0.0, "LR_BCE"),
)

BUFFERS = (
    Buffer("direction_logits", "T, B, N_HORIZONS", "float32", "iteration", "logits", "log-odds of a higher mid"),
    Buffer("grad_direction_logits", "T, B, N_HORIZONS", "float32", "iteration", "1", "gradient of the loss"),
    Buffer("direction_label_scale", "2", "float32", "iteration", "mixed", "labels of the iteration, 1 / labels"),
    Buffer("row_loss_direction", "T, B", "float32", "iteration", "nats", "loss of the row, mean over its labels"),
    Buffer("row_weight_direction", "T, B", "float32", "iteration", "labels", "labels of the row"),
)


def forward() -> list[Step]:
    """h [T, B, 128] -> direction_logits [T, B, 3] without bias; the loss kernel adds it."""
    w = View("w_direction", "HIDDEN_DIM", _OUT)
    return [Matmul("direction head", View("h", _ROWS, "HIDDEN_DIM"), w, View("direction_logits", _ROWS, _OUT))]


def loss_and_backward() -> list[Step]:
    """Loss into its slot, gradients of both tensors, grad_h += the head's part."""
    h, grad = View("h", _ROWS, "HIDDEN_DIM"), View("grad_direction_logits", _ROWS, _OUT)
    w = View("w_direction", "HIDDEN_DIM", _OUT)
    scale = {"label_scale": "direction_label_scale"}
    return [
        Stage("rl_label_count", {"label": "direction_target", "n": f"{_ROWS}*N_HORIZONS", **scale}),
        Stage("rl_direction_bce_grad", {"rows": _ROWS, **scale}),
        Stage(
            "rl_mean_into_slot",
            {"row_loss": "row_loss_direction", "row_weight": "row_weight_direction", "rows": _ROWS}
            | {"slot": str(number("LOSS_BCE")), "part": NONFINITE_DIRECTION},
        ),
        Matmul("direction grad w", h, grad, View("grad_w_direction", "HIDDEN_DIM", _OUT), trans_a=True),
        Matmul("direction grad b", View("ones", "1", _ROWS), grad, View("grad_b_direction", "1", _OUT)),
        Matmul("direction grad h", grad, w, View("grad_h", _ROWS, "HIDDEN_DIM"), trans_b=True, accumulate=True),
    ]
