"""The CfC cell of the full encoder: a recurrence over the snapshots of a window with their real time gaps.

Owns the tensors, buffers and steps of this part; the arithmetic is in ``cuda_src/nets/cfc.cu`` and in matrix products.
Unfused, the recurrence is unrolled, so the lists depend on the number of snapshots as an integer; on a Hopper GPU one
kernel does all of it (``cuda_src/cuda_only/cfc_{forward,backward}.cu``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from foxhunt_cli.nets.encoder_parts import HIDDEN, USED, buffer, rows, tensor, weights
from foxhunt_cli.pipeline.stage import Fused, Matmul, Stage, Step, View, Zero

_GATES = f"4*{HIDDEN}"
# The four gates are one tensor; its gain makes the limit that of four separate 128 -> 128 layers.
_FOUR_GATES_GAIN = 2.5**0.5

# How a sequence kernel shares out the rows: on 132 multiprocessors, a block on each, by tiles of four rows as long as
# these reach all rows at once, then by eight; a block takes more tiles before there are more blocks than that.
_SHARES = {"rows": "4 if B <= 528 else 8", "tiles": "(B + 1055) / 1056 if B <= 8448 else 8"}

WIDE_FROM = 2113  # rows from which the forward takes 32 at a time (cuda_src/cuda_only/cfc_wide.cu)

PARAMETERS = (
    tensor("w_cfc_backbone", f"2*{HIDDEN}, {HIDDEN}", "xavier", 1.0, "CFC"),
    tensor("b_cfc_backbone", HIDDEN, "constant", 0.0, "CFC"),
    tensor("w_cfc_gates", f"{HIDDEN}, {_GATES}", "xavier", _FOUR_GATES_GAIN, "CFC"),
    tensor("b_cfc_gates", _GATES, "constant", 0.0, "CFC"),
)

BUFFERS = (
    buffer("cfc_pre", f"W, B, {HIDDEN}", "input half of the backbone; backward: gradient before the backbone's tanh"),
    buffer("cfc_recurrent", f"B, {HIDDEN}", "recurrent half of the backbone; backward: gradient of h through time"),
    buffer("cfc_u", f"W, B, {HIDDEN}", "backbone"),
    buffer("cfc_gates", f"W, B, {_GATES}", "f, g, blend; backward: gradient of the gate product"),
    buffer("cfc_states", f"(W+1), B, {HIDDEN}", "h before each snapshot, and after the last"),
)


@dataclass(frozen=True)
class Cell:
    """Buffer names of one pass. keep: u, the gates and the states of every snapshot stay for the backward."""

    pre: str
    u: str
    gates: str
    states: str
    h: str
    keep: bool


TRAINED = Cell("cfc_pre", "cfc_u", "cfc_gates", "cfc_states", "h", keep=True)


def forward(
    cell: Cell,
    mix: str,
    gap: str,
    snapshots: int,
    behind: str,
    tokens: str,
    size: Mapping[str, str],
    prefix: str,
    *,
    batch: int = 0,
) -> list[Step | Fused]:
    """mix [tokens, 128], gap -> h of the last ``behind`` + 1 of the ``snapshots``. size: remap of the scalar W.

    One wide product for the input half of the backbone, then the recurrence. batch: B, which decides on its kernel.
    """
    pre = rows(cell.pre, tokens=tokens)
    return [
        Matmul("cfc input", rows(mix, tokens=tokens), _backbone(0, prefix), pre),
        _recurrence(cell, gap, snapshots, {"T": behind, **size}, prefix, batch),
    ]


def backward(snapshots: int) -> list[Step | Fused]:
    """Backward in time, then every weight gradient as one wide product; leaves encoder_grad_out for the blocks."""
    pre, grad_gates, grad_w = rows("cfc_pre"), rows("cfc_gates", _GATES), weights("grad_w_cfc_gates", HIDDEN, _GATES)
    grad_b, grad_b_gates = View("grad_b_cfc_backbone", "1", HIDDEN), View("grad_b_cfc_gates", "1", _GATES)
    return [
        _recurrence_backward(snapshots),
        Matmul("cfc grad w_gates", rows("cfc_u"), grad_gates, grad_w, trans_a=True, column_sums=grad_b_gates),
        Matmul("cfc grad w_x", rows("m2_out"), pre, _backbone(0, "grad_"), trans_a=True, column_sums=grad_b),
        Matmul("cfc grad w_h", rows("cfc_states"), pre, _backbone(1, "grad_"), trans_a=True),
        Matmul("cfc grad input", pre, _backbone(0), rows("encoder_grad_out"), trans_b=True),
    ]


def chain_forward(cell: Cell, norm: str, trunk: str, mixed: str, tokens: str, prefix: str) -> Stage:
    """The second block's out-projection onto ``trunk`` and ``forward``'s wide product in one kernel."""
    names = {"norm": norm, "trunk": trunk, "pre": cell.pre, "rows": tokens, **_chained(prefix)}
    return Stage("cfc_chain_forward", {**names, "mixed": mixed}) if cell.keep else Stage("cfc_chain_encode", names)


def chain_backward() -> Stage:
    """The last step of ``backward`` and the gradient through the second block's out-projection in one kernel."""
    names = {"grad_pre": "cfc_pre", "grad_out": "encoder_grad_out", "grad_norm": "encoder_grad_y"}
    return Stage("cfc_chain_backward", {**names, "rows": USED, **_chained("")})


def _chained(prefix: str) -> dict[str, str]:
    return {name: prefix + name for name in ("w_m2_out", "w_cfc_backbone")}


def _backbone(half: int, prefix: str = "") -> View:
    """Rows of W_b that multiply x (half 0) or h (half 1)."""
    return weights(f"{prefix}w_cfc_backbone", HIDDEN, HIDDEN, row0=f"{half}*{HIDDEN}")


def _snapshot(name: str, w: int, cols: str = HIDDEN) -> View:
    return View(name, "B", cols, row0=f"{w}*B")


def _recurrence(cell: Cell, gap: str, snapshots: int, size: Mapping[str, str], prefix: str, batch: int) -> Fused:
    """Fused: the whole sequence in one kernel. Else two small products and two kernels a snapshot."""
    tensors = {name: prefix + name for name in ("w_cfc_backbone", "b_cfc_backbone", "w_cfc_gates", "b_cfc_gates")}
    wide = batch >= WIDE_FROM
    names = {"pre": cell.pre, "gap": gap, "h": cell.h, **tensors, **size, **({} if wide else _SHARES)}
    kept = {"u": cell.u, "gates": cell.gates, "states": cell.states} if cell.keep else {}
    kernel = f"cfc_{'wide' if wide else 'sequence'}_{'forward' if cell.keep else 'encode'}"
    return Fused((Stage(kernel, names | kept),), tuple(_unrolled(cell, gap, snapshots, size, prefix)), tf32=True)


def _unrolled(cell: Cell, gap: str, snapshots: int, size: Mapping[str, str], prefix: str) -> list[Step]:
    recurrent, w_gates = View("cfc_recurrent", "B", HIDDEN), weights(f"{prefix}w_cfc_gates", HIDDEN, _GATES)
    backbone = {"pre": cell.pre, "recurrent": "cfc_recurrent", "bias": f"{prefix}b_cfc_backbone", "u": cell.u}
    outputs = {"gates": cell.gates, "states": cell.states, "h": cell.h}
    gates = {"bias": f"{prefix}b_cfc_gates", "gap": gap, **outputs, **size}
    steps: list[Step] = [Zero("cfc_recurrent")]
    for w in range(snapshots):
        slot = w if cell.keep else 0
        at = {"w": str(w), "slot": str(slot)}
        if w:
            steps.append(Matmul(f"cfc recurrent {w}", _snapshot(cell.states, w), _backbone(1, prefix), recurrent))
        steps += [
            Stage("cfc_backbone_forward", {**backbone, **at}),
            Matmul(f"cfc gates {w}", _snapshot(cell.u, slot), w_gates, _snapshot(cell.gates, slot, _GATES)),
            Stage("cfc_gates_forward", {**gates, **at}),
        ]
    return steps


def _recurrence_backward(snapshots: int) -> Fused:
    """As the forward: one kernel, or two products and two kernels a snapshot."""
    names = {"u": TRAINED.u, "gates": TRAINED.gates, "pre": TRAINED.pre, **_SHARES}
    return Fused((Stage("cfc_sequence_backward", names),), tuple(_unrolled_backward(snapshots)), tf32=True)


def _unrolled_backward(snapshots: int) -> list[Step]:
    carry, w_gates = View("cfc_recurrent", "B", HIDDEN), weights("w_cfc_gates", HIDDEN, _GATES)
    steps: list[Step] = [Zero("cfc_recurrent")]
    for w in range(snapshots - 2, -1, -1):
        pre = _snapshot("cfc_pre", w)
        steps += [
            Stage("cfc_gates_backward", {"carry": "cfc_recurrent", "gates": "cfc_gates", "w": str(w)}),
            Matmul(f"cfc grad u {w}", _snapshot("cfc_gates", w, _GATES), w_gates, pre, trans_b=True),
            Stage("cfc_backbone_backward", {"u": "cfc_u", "grad": "cfc_pre", "w": str(w)}),
        ]
        if w:
            steps.append(Matmul(f"cfc grad h {w}", pre, _backbone(1), carry, trans_b=True))
    return steps
