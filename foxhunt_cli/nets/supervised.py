"""The heads that learn from labels (forward returns, direction, outcome), all at once: labels, losses, backward.

Owns the order of their steps in the on-policy update and the buffers of the kernels that do them together. Each head's
own steps stand in its module.
"""

from __future__ import annotations

from foxhunt_cli.buffers.row import Buffer
from foxhunt_cli.nets import direction, frd, outcome
from foxhunt_cli.nets.target import NONFINITE_DIRECTION, NONFINITE_FRD, NONFINITE_OUTCOME
from foxhunt_cli.pipeline.stage import Fused, Stage, Step, Zero

HEADS = (frd, direction, outcome)
PARAMETERS = tuple(tensor for head in HEADS for tensor in head.PARAMETERS)

_ROWS = "T*B"
_FEW_ROWS = 4096  # small tiles keep more multiprocessors busy up to here
_WIDTH = "(96 if P <= 9 else 128)"  # HEADS_WIDTH of cuda_src/fused/heads_tile.cuh
# HEADS_WEIGHT_SIZE and HEADS_PART_SIZE there.
_WEIGHTS, _PART = f"128*({_WIDTH} + 8) + 64*72 + {_WIDTH} + 64", f"129*{_WIDTH} + 65*64 + 7"

BUFFERS = (
    Buffer("label_counts", "64, 3", "int32", "iteration", "labels", "labels of FRD, direction, outcome, in parts"),
    Buffer("heads_weights", _WEIGHTS, "float32", "iteration", "1", "first layers side by side, second layer, biases"),
    Buffer("heads_parts", f"128, {_PART}", "float32", "iteration", "mixed", "sums of a block: gradients, losses"),
)


def update(rows: int, *, first: bool = False, frd_ready: bool = False, labelled: bool = False) -> Fused:
    """Labels, losses into their slots, gradients of every tensor, grad_h += what goes on to the encoder.

    rows: T*B, as a number. first: grad_h is overwritten.
    frd_ready: the forward pass of FRD has run before (the entry gate needed it). labelled: so have the labels.
    """
    steps: list[Step] = [Zero("grad_h")] if first else []
    steps += [] if labelled else [Stage("gpu_gather_frd_labels")]
    for head in HEADS:
        steps += [*(() if frd_ready and head is frd else head.forward()), *head.loss_and_backward()]
    in_float32 = Fused(_launches("rl_heads_update", 32, first), tuple(steps))
    each = 16 if rows <= _FEW_ROWS else 64
    return Fused(_launches("rl_heads_update_tf32", each, first, each=str(each)), (in_float32,), tf32=True)


def _launches(kernel: str, tile_rows: int, first: bool, **more: str) -> tuple[Step, ...]:
    """Labels and packed weights, rows, sums; a block takes tiles of ``tile_rows`` rows."""
    blocks = f"(({_ROWS}) + {tile_rows - 1})/{tile_rows} if {_ROWS} < {128 * tile_rows} else 128"
    parts = {"part_frd": NONFINITE_FRD, "part_direction": NONFINITE_DIRECTION, "part_outcome": NONFINITE_OUTCOME}
    return (
        Stage("rl_heads_prepare"),
        Stage(kernel, {"rows": _ROWS, "first": str(int(first)), **more}),
        Stage("rl_heads_reduce", {**parts, "blocks": blocks}),
    )
