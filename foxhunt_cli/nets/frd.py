"""The forward-return distribution head: h -> 64 ReLU -> 3 horizons x 21 buckets, and its backward.

Owns the head's tensors, buffers and list of steps. Its loss is the mean cross-entropy over all labels of the
iteration; its own tensors learn at any weight, the encoder gets its gradient x FRD_LAMBDA.
"""

from __future__ import annotations

from foxhunt_cli.buffers.row import Buffer
from foxhunt_cli.isv.table import number
from foxhunt_cli.nets.params import Parameter
from foxhunt_cli.nets.target import NONFINITE_FRD
from foxhunt_cli.pipeline.stage import Matmul, Stage, Step, View

FRD_HIDDEN = 64  # units between the layers
_OUT = "N_HORIZONS*N_BUCKETS"
_ROWS = "T*B"
_GAIN = 0.1

PARAMETERS = (
    Parameter("w_frd1", f"HIDDEN_DIM, {FRD_HIDDEN}", "xavier", _GAIN, "LR_AUX"),
    Parameter("b_frd1", f"{FRD_HIDDEN}", "constant", 0.0, "LR_AUX"),
    Parameter("w_frd2", f"{FRD_HIDDEN}, {_OUT}", "xavier", _GAIN, "LR_AUX"),
    Parameter("b_frd2", _OUT, "constant", 0.0, "LR_AUX"),
)

BUFFERS = (
    Buffer("frd_hidden", f"T, B, {FRD_HIDDEN}", "float32", "iteration", "1", "hidden layer after its ReLU"),
    Buffer("frd_logits", "T, B, N_HORIZONS, N_BUCKETS", "float32", "iteration", "logits", "forward-return logits"),
    Buffer("frd_prob", "T, B, N_HORIZONS, N_BUCKETS", "float32", "iteration", "1", "forward-return probabilities"),
    Buffer("grad_frd_logits", "T, B, N_HORIZONS, N_BUCKETS", "float32", "iteration", "1", "gradient of the loss"),
    Buffer("grad_frd_hidden", f"T, B, {FRD_HIDDEN}", "float32", "iteration", "1", "gradient of the loss"),
    Buffer("frd_label_scale", "2", "float32", "iteration", "mixed", "labels of the iteration, 1 / labels"),
    Buffer("row_loss_frd", "T, B", "float32", "iteration", "nats", "cross-entropy of the row, mean over its labels"),
    Buffer("row_weight_frd", "T, B", "float32", "iteration", "labels", "labels of the row"),
)


def forward() -> list[Step]:
    """h [T, B, 128] -> frd_logits and frd_prob [T, B, 3, 21]."""
    hidden = View("frd_hidden", _ROWS, str(FRD_HIDDEN))
    return [
        Matmul("frd layer 1", View("h", _ROWS, "HIDDEN_DIM"), View("w_frd1", "HIDDEN_DIM", str(FRD_HIDDEN)), hidden),
        Stage("rl_frd_fwd", {"rows": _ROWS, "width": str(FRD_HIDDEN)}),
        Matmul("frd layer 2", hidden, View("w_frd2", str(FRD_HIDDEN), _OUT), View("frd_logits", _ROWS, _OUT)),
        Stage("rl_frd_softmax", {"rows": _ROWS}),
    ]


def loss_and_backward() -> list[Step]:
    """Loss into its slot, gradients of the four tensors, grad_h += FRD_LAMBDA x the head's part."""
    hidden, grad_hidden = View("frd_hidden", _ROWS, str(FRD_HIDDEN)), View("grad_frd_hidden", _ROWS, str(FRD_HIDDEN))
    grad_logits, ones = View("grad_frd_logits", _ROWS, _OUT), View("ones", "1", _ROWS)
    w1, w2 = View("w_frd1", "HIDDEN_DIM", str(FRD_HIDDEN)), View("w_frd2", str(FRD_HIDDEN), _OUT)
    size = {"rows": _ROWS, "width": str(FRD_HIDDEN)}
    return [
        Stage("rl_label_count", {"label": "frd_target", "label_scale": "frd_label_scale", "n": f"{_ROWS}*N_HORIZONS"}),
        Stage("rl_frd_softmax_ce_grad", {"label_scale": "frd_label_scale", "rows": _ROWS}),
        Stage(
            "rl_mean_into_slot",
            {"row_loss": "row_loss_frd", "row_weight": "row_weight_frd", "rows": _ROWS}
            | {"slot": str(number("LOSS_FRD")), "part": NONFINITE_FRD},
        ),
        Matmul("frd grad w2", hidden, grad_logits, View("grad_w_frd2", str(FRD_HIDDEN), _OUT), trans_a=True),
        Matmul("frd grad b2", ones, grad_logits, View("grad_b_frd2", "1", _OUT)),
        Matmul("frd grad hidden", grad_logits, w2, grad_hidden, trans_b=True),
        Stage("rl_frd_layer2_bwd", size),
        Matmul(
            "frd grad w1",
            View("h", _ROWS, "HIDDEN_DIM"),
            grad_hidden,
            View("grad_w_frd1", "HIDDEN_DIM", str(FRD_HIDDEN)),
            trans_a=True,
        ),
        Matmul("frd grad b1", ones, grad_hidden, View("grad_b_frd1", "1", str(FRD_HIDDEN))),
        Stage("rl_frd_layer1_bwd", size),
        Matmul("frd grad h", grad_hidden, w1, View("grad_h", _ROWS, "HIDDEN_DIM"), trans_b=True, accumulate=True),
    ]
