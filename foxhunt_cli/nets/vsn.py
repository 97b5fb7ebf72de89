"""Variable selection: a softmax over the inputs of a snapshot weighs each of them.

Owns the tensors, buffers and steps of this part of the full encoder; the arithmetic is in ``cuda_src/nets/vsn.cu``,
that of the fused steps in ``cuda_src/fused/vsn_tile.cu`` and, with the product behind them, in
``cuda_src/cuda_only/vsn_*_tf32.cu``.
"""

from __future__ import annotations

from collections.abc import Mapping

from foxhunt_cli.nets.encoder_parts import BACKWARD, INPUT, USED, buffer, column_sums, rows, tensor, weights
from foxhunt_cli.pipeline.stage import Fused, Matmul, Stage, Step

PARAMETERS = (
    tensor("w_vsn", f"{INPUT}, {INPUT}", "xavier", 1.0, "VSN"),
    tensor("b_vsn", INPUT, "constant", 0.0, "VSN"),
)

TILES = f"({USED} + 63)/64"  # tiles of 64 tokens

BUFFERS = (
    buffer("vsn_gate", f"W, B, {INPUT}", "selection weights; backward: gradient of their logits"),
    buffer("vsn_out", f"W, B, {INPUT}", "selected inputs", "mixed"),
    buffer("encoder_grad_vsn", f"W, B, {INPUT}", "gradient of the selected inputs"),
    buffer("vsn_parts", f"{TILES} + 264, {INPUT}", "gradient of the logits' bias, one part a tile or block"),
)


_BACKWARD = {"grad_out": "encoder_grad_vsn", "gate": "vsn_gate", **BACKWARD}


def forward(
    x: str, gate: str, out: str, keep: bool, tokens: str, size: Mapping[str, str], prefix: str
) -> list[Step | Fused]:
    """x [tokens, 56] -> gate, out. keep: a backward follows. size: remap of the scalar W."""
    names = {"x": x, "bias": f"{prefix}b_vsn", "out": out, **size}
    steps = (Stage("vsn_forward", {"gate": gate, **names}),)
    fused = (
        Stage("vsn_tile_forward", {"gate": gate, **names})
        if keep
        else Stage("vsn_tile_forward_only", {"logits": gate, **names})
    )
    return [
        Matmul(
            "vsn logits", rows(x, INPUT, tokens), weights(f"{prefix}w_vsn", INPUT, INPUT), rows(gate, INPUT, tokens)
        ),
        Fused((fused,), steps),
    ]


# How many warps share the in-projection of 16 tokens: as many as fit beside each other on 132 multiprocessors.
_SHARE = "8 if {tokens} <= 4224 else 4 if {tokens} <= 8448 else 2 if {tokens} <= 16896 else 1"


def projected(
    x: str, gate: str, out: str, proj: str, keep: bool, tokens: str, size: Mapping[str, str], prefix: str
) -> Stage:
    """``forward`` and the in-projection of block m1 in one kernel; gate and out are left alone unless ``keep``."""
    names = {"x": x, "w": f"{prefix}w_vsn", "bias": f"{prefix}b_vsn", "w_in": f"{prefix}w_m1_in", "proj": proj, **size}
    names["share"] = _SHARE.format(tokens=tokens)
    return Stage("vsn_in_forward", {"gate": gate, "out": out, **names}) if keep else Stage("vsn_in_forward_only", names)


def backward() -> list[Step]:
    """encoder_grad_vsn -> the tensors' gradients. The gate becomes the gradient of the logits."""
    return [
        Stage("vsn_backward", _BACKWARD),
        _weight_gradient(),
        column_sums("vsn grad b", rows("vsn_gate", INPUT), "grad_b_vsn"),
    ]


def tile_backward() -> list[Step]:
    """The same; the bias' gradient stays in parts for ``encoder_sum_parts``."""
    return [Stage("vsn_tile_backward", {"parts": "vsn_parts", **_BACKWARD}), _weight_gradient()]


_BLOCKS = f"(264 if {USED} > 4224 else ({USED} + 15)/16)"  # two on each of 132 multiprocessors, or 16 tokens each


def projected_backward() -> tuple[list[Step], str]:
    """The same from encoder_grad_proj of block m1, with lines of parts: how many."""
    names = {"x": "x", "w_in": "w_m1_in", "grad_proj": "encoder_grad_proj", "gate": "vsn_gate", "parts": "vsn_parts"}
    return [Stage("vsn_in_backward", {**names, "tiles": _BLOCKS, **BACKWARD}), _weight_gradient()], _BLOCKS


def _weight_gradient() -> Matmul:
    return Matmul(
        "vsn grad w", rows("x", INPUT), rows("vsn_gate", INPUT), weights("grad_w_vsn", INPUT, INPUT), trans_a=True
    )
