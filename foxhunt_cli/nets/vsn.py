"""Variable selection: a softmax over the inputs of a snapshot weighs each of them.

Owns the tensors, buffers and steps of this part of the full encoder; the arithmetic is in ``cuda_src/nets/vsn.cu``.
"""

from __future__ import annotations

from collections.abc import Mapping

from foxhunt_cli.nets.encoder_parts import BACKWARD, INPUT, buffer, column_sums, rows, tensor, weights
from foxhunt_cli.pipeline.stage import Matmul, Stage, Step

PARAMETERS = (
    tensor("w_vsn", f"{INPUT}, {INPUT}", "xavier", 1.0, "VSN"),
    tensor("b_vsn", INPUT, "constant", 0.0, "VSN"),
)

BUFFERS = (
    buffer("vsn_gate", f"W, B, {INPUT}", "selection weights; backward: gradient of their logits"),
    buffer("vsn_out", f"W, B, {INPUT}", "selected inputs", "mixed"),
    buffer("encoder_grad_vsn", f"W, B, {INPUT}", "gradient of the selected inputs"),
)


def forward(x: str, gate: str, out: str, tokens: str, size: Mapping[str, str], prefix: str) -> list[Step]:
    """x [tokens, 56] -> gate, out. size: remap of the scalar W."""
    logits = rows(gate, INPUT, tokens)
    return [
        Matmul("vsn logits", rows(x, INPUT, tokens), weights(f"{prefix}w_vsn", INPUT, INPUT), logits),
        Stage("vsn_forward", {"x": x, "bias": f"{prefix}b_vsn", "gate": gate, "out": out, **size}),
    ]


def backward() -> list[Step]:
    """encoder_grad_vsn -> the tensors' gradients. The gate becomes the gradient of the logits."""
    logits = rows("vsn_gate", INPUT)
    return [
        Stage("vsn_backward", {"grad_out": "encoder_grad_vsn", "gate": "vsn_gate", **BACKWARD}),
        Matmul("vsn grad w", rows("x", INPUT), logits, weights("grad_w_vsn", INPUT, INPUT), trans_a=True),
        column_sums("vsn grad b", logits, "grad_b_vsn"),
    ]
