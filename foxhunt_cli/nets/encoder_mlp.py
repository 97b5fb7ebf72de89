"""The ``mlp`` encoder: the current snapshot's 56 inputs -> 128 tanh -> 128 tanh.

Looks at one snapshot only (K = 1), so a window holds T + 1 of them. Quick runs, ablations, a yardstick for ``full``.
"""

from __future__ import annotations

from foxhunt_cli.buffers.row import Buffer
from foxhunt_cli.nets.params import Parameter
from foxhunt_cli.pipeline.stage import Matmul, Stage, Step, View

WINDOW = 1  # snapshots an encoding looks at
_BRANCH = "BRANCH_LR_MULT_VSN"

PARAMETERS = tuple(
    Parameter(name, dims, init, gain, "LR_AUX", _BRANCH, encoder=True, target=True)
    for name, dims, init, gain in (
        ("w_mlp1", "ENCODER_INPUT_DIM, HIDDEN_DIM", "xavier", 1.0),
        ("b_mlp1", "HIDDEN_DIM", "constant", 0.0),
        ("w_mlp2", "HIDDEN_DIM, HIDDEN_DIM", "xavier", 1.0),
        ("b_mlp2", "HIDDEN_DIM", "constant", 0.0),
    )
)

BUFFERS = (
    Buffer("mlp_hidden", "(T+1), B, HIDDEN_DIM", "float32", "iteration", "1", "first layer's tanh"),
    Buffer("grad_mlp_hidden", "T, B, HIDDEN_DIM", "float32", "iteration", "1", "its gradient"),
    Buffer("target_mlp_hidden", "(T+1), B, HIDDEN_DIM", "float32", "iteration", "1", "the same of the target encoder"),
)

_ALL, _USED = "(T+1)*B", "T*B"


def _tokens(name: str, rows: str, cols: str = "HIDDEN_DIM") -> View:
    return View(name, rows, cols)


def forward(_snapshots: int, prefix: str = "", _batch: int = 0) -> list[Step]:
    """x [T+1, B, 56] -> h [T+1, B, 128]; prefix ``target_``: the target's weights -> target_h."""
    return _layers(_ALL, "x", f"{prefix}mlp_hidden", f"{prefix}h", prefix)


def gaps() -> list[Step]:
    """Nothing: one snapshot has no time."""
    return []


def window_forward(_batch: int = 0) -> list[Step]:
    """The first snapshot of x -> h[0], kept for the backward."""
    return _layers("B", "x", "mlp_hidden", "h")


def next_window_forward(_batch: int = 0) -> list[Step]:
    """x_next [1, B, 56] -> next_h [B, 128], nothing kept."""
    return _layers("B", "x_next", "target_mlp_hidden", "next_h")


def _layers(rows: str, x: str, hidden: str, h: str, prefix: str = "") -> list[Step]:
    w1 = View(f"{prefix}w_mlp1", "ENCODER_INPUT_DIM", "HIDDEN_DIM")
    w2 = View(f"{prefix}w_mlp2", "HIDDEN_DIM", "HIDDEN_DIM")
    size = {"rows": rows, "cols": "HIDDEN_DIM"}
    return [
        Matmul(f"{prefix}mlp layer 1", _tokens(x, rows, "ENCODER_INPUT_DIM"), w1, _tokens(hidden, rows)),
        Stage("bias_tanh", {"bias": f"{prefix}b_mlp1", "y": hidden, **size}),
        Matmul(f"{prefix}mlp layer 2", _tokens(hidden, rows), w2, _tokens(h, rows)),
        Stage("bias_tanh", {"bias": f"{prefix}b_mlp2", "y": h, **size}),
    ]


def backward(_snapshots: int, _batch: int = 0) -> list[Step]:
    """grad_h [T, B, 128] (changed in place) -> gradients of the four tensors. The bootstrap state carries none."""
    size = {"rows": _USED, "cols": "HIDDEN_DIM"}
    hidden, grad_hidden, grad_h = (_tokens(n, _USED) for n in ("mlp_hidden", "grad_mlp_hidden", "grad_h"))
    x = _tokens("x", _USED, "ENCODER_INPUT_DIM")
    w1, w2 = View("grad_w_mlp1", "ENCODER_INPUT_DIM", "HIDDEN_DIM"), View("grad_w_mlp2", "HIDDEN_DIM", "HIDDEN_DIM")
    ones = View("ones", "1", _USED)
    return [
        Stage("tanh_backward", {"y": "h", "grad": "grad_h", **size}),
        Matmul("mlp grad w2", hidden, grad_h, w2, trans_a=True),
        Matmul("mlp grad b2", ones, grad_h, View("grad_b_mlp2", "1", "HIDDEN_DIM")),
        Matmul("mlp grad hidden", grad_h, View("w_mlp2", "HIDDEN_DIM", "HIDDEN_DIM"), grad_hidden, trans_b=True),
        Stage("tanh_backward", {"y": "mlp_hidden", "grad": "grad_mlp_hidden", **size}),
        Matmul("mlp grad w1", x, grad_hidden, w1, trans_a=True),
        Matmul("mlp grad b1", ones, grad_hidden, View("grad_b_mlp1", "1", "HIDDEN_DIM")),
    ]
