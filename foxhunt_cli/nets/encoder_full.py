"""The ``full`` encoder: variable selection, two Mamba-2 blocks, a CfC cell over the real time gaps; causal.

One pass over the W = K + T snapshots of a row, from a zero state, gives the encodings of T environment steps and of
the bootstrap state: h = the last T + 1 outputs. Owns the parameters, the buffers and the order of the steps; the
arithmetic is in ``cuda_src/nets/{vsn,mamba2,cfc}.cu`` and in matrix products.

Inputs: ``x`` [W, B, 56], ``gap`` [W, B], ``grad_h`` [T+1, B, 128] (slice T is not read), ``ones`` (at least W*B).
The recurrence of the CfC is unrolled, so the lists depend on the number of snapshots, W, as an integer.
A forward-only pass (prefix ``target_``) keeps nothing: its activations lie in the backward's scratch, which is dead
between a backward and the next.

Where the encoding knows the position (``context = encoder``, T = 1) a pass covers one window of K snapshots:
``window_forward`` encodes the state before the step, ``next_window_forward`` the one behind it, forward only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from foxhunt_cli.config.dims import WARMUP_SNAPSHOTS
from foxhunt_cli.nets import mamba2, vsn
from foxhunt_cli.nets.encoder_parts import HIDDEN, INPUT, buffer, column_sums, rows, tensor, weights
from foxhunt_cli.pipeline.stage import Matmul, Stage, Step, View, Zero

WINDOW = WARMUP_SNAPSHOTS  # K: snapshots an encoding looks at, at least
GAP_SCALE = 0.2  # gap = GAP_SCALE * ln(1 + milliseconds since the row's previous snapshot), 0 at the window's first

# The four gates are one tensor; its gain makes the limit that of four separate 128 -> 128 layers.
_FOUR_GATES_GAIN = 2.5**0.5

PARAMETERS = (
    *vsn.PARAMETERS,
    *mamba2.parameters("m1", INPUT, "MAMBA1"),
    *mamba2.parameters("m2", HIDDEN, "MAMBA2"),
    tensor("w_cfc_backbone", f"2*{HIDDEN}, {HIDDEN}", "xavier", 1.0, "CFC"),
    tensor("b_cfc_backbone", HIDDEN, "constant", 0.0, "CFC"),
    tensor("w_cfc_gates", f"{HIDDEN}, 4*{HIDDEN}", "xavier", _FOUR_GATES_GAIN, "CFC"),
    tensor("b_cfc_gates", f"4*{HIDDEN}", "constant", 0.0, "CFC"),
)


BUFFERS = (
    buffer("gap", "W, B", f"{GAP_SCALE} ln(1 + ms since the row's previous snapshot); 0 at w = 0", "scaled log ms"),
    *vsn.BUFFERS,
    *mamba2.buffers("m1"),
    *mamba2.buffers("m2"),
    *mamba2.SCRATCH,
    buffer("cfc_pre", f"W, B, {HIDDEN}", "input half of the backbone; backward: gradient before the backbone's tanh"),
    buffer("cfc_recurrent", f"B, {HIDDEN}", "recurrent half of the backbone; backward: gradient of h through time"),
    buffer("cfc_u", f"W, B, {HIDDEN}", "backbone"),
    buffer("cfc_gates", f"W, B, 4*{HIDDEN}", "f, g, blend; backward: gradient of the gate product"),
    buffer("cfc_states", f"(W+1), B, {HIDDEN}", "h before each snapshot, and after the last"),
    buffer("target_h", f"(T+1), B, {HIDDEN}", "encoding by the target encoder"),
)


@dataclass(frozen=True)
class _Pass:
    """Buffer names of one forward pass. keep: u and the gates of every snapshot stay for the backward.

    snapshots: how many the pass covers. behind: states that follow the first encoding of h.
    """

    gate: str
    selected: str
    blocks: tuple[mamba2.Block, mamba2.Block]
    pre: str
    u: str
    gates: str
    states: str
    h: str
    keep: bool
    x: str = "x"
    gap: str = "gap"
    snapshots: str = "W"
    behind: str = "T"

    @property
    def all(self) -> str:
        """Tokens of the pass."""
        return f"{self.snapshots}*B"

    @property
    def size(self) -> dict[str, str]:
        """Remap of the scalar W."""
        return {"W": self.snapshots}


_TRAINED = _Pass(
    "vsn_gate",
    "vsn_out",
    (mamba2.trained("m1", INPUT, "vsn_out"), mamba2.trained("m2", HIDDEN, "m1_out")),
    "cfc_pre",
    "cfc_u",
    "cfc_gates",
    "cfc_states",
    "h",
    True,
)


# Each name is written only after the last read of what it held before: the order of forward() is what makes this right.
_FORWARD_ONLY = _Pass(
    "encoder_grad_vsn",
    "encoder_grad_x",
    (
        mamba2.forward_only("m1", INPUT, "encoder_grad_x", "encoder_grad_out"),
        mamba2.forward_only("m2", HIDDEN, "encoder_grad_out", "encoder_grad_y"),
    ),
    "encoder_grad_x",
    "encoder_grad_out",
    "encoder_grad_proj",
    "encoder_grad_bc",
    "target_h",
    False,
)


# The two windows of a step whose encoding knows the position.
_WINDOW = replace(_TRAINED, snapshots="K", behind="0")
_NEXT_WINDOW = replace(_FORWARD_ONLY, h="next_h", x="x_next", gap="gap_next", snapshots="K", behind="0")


def forward(snapshots: int, prefix: str = "") -> list[Step]:
    """x, gap -> h. ``snapshots`` = W. prefix ``target_``: the target's weights -> target_h, nothing kept."""
    return _forward(_FORWARD_ONLY if prefix else _TRAINED, snapshots, prefix)


def gaps() -> list[Step]:
    """gap of the W snapshots of an iteration."""
    return [Stage("gpu_window_gaps", {"offset": "0"})]


def window_forward() -> list[Step]:
    """The first K snapshots of x -> h[0], kept for the backward."""
    return [Stage("gpu_window_gaps", {"offset": "0", **_WINDOW.size}), *_forward(_WINDOW, WINDOW)]


def next_window_forward() -> list[Step]:
    """x_next [K, B, 56] -> next_h [B, 128], nothing kept."""
    gap = Stage("gpu_window_gaps", {"offset": "1", "gap": _NEXT_WINDOW.gap, **_NEXT_WINDOW.size})
    return [gap, *_forward(_NEXT_WINDOW, WINDOW)]


def _forward(names: _Pass, snapshots: int, prefix: str = "") -> list[Step]:
    first, second = names.blocks
    over = (names.all, names.size, prefix)
    return [
        *vsn.forward(names.x, names.gate, names.selected, *over),
        *mamba2.forward(first, *over),
        *mamba2.forward(second, *over),
        *mamba2.residual(first, second, names.size),
        *_cfc_forward(names, snapshots, prefix),
    ]


def backward(snapshots: int) -> list[Step]:
    """grad_h -> the gradient of every tensor, overwritten. Consumes what the last ``forward(snapshots)`` kept."""
    first, second = _TRAINED.blocks
    return [
        *_cfc_backward(snapshots),
        *mamba2.backward(second),
        mamba2.input_gradient(second, "encoder_grad_out", accumulate=True),  # on top of the residual's
        *mamba2.backward(first),
        mamba2.input_gradient(first, "encoder_grad_vsn"),
        *vsn.backward(),
    ]


def _backbone(half: int, prefix: str = "") -> View:
    """Rows of W_b that multiply x (half 0) or h (half 1)."""
    return weights(f"{prefix}w_cfc_backbone", HIDDEN, HIDDEN, row0=f"{half}*{HIDDEN}")


def _snapshot(name: str, w: int, cols: str = HIDDEN) -> View:
    return View(name, "B", cols, row0=f"{w}*B")


def _cfc_forward(names: _Pass, snapshots: int, prefix: str) -> list[Step]:
    """One wide product for the input half of the backbone, then two small ones a snapshot."""
    recurrent = View("cfc_recurrent", "B", HIDDEN)
    w_gates = weights(f"{prefix}w_cfc_gates", HIDDEN, f"4*{HIDDEN}")
    mix, pre = rows(names.blocks[1].out, tokens=names.all), rows(names.pre, tokens=names.all)
    outputs = {"states": names.states, "h": names.h, "gap": names.gap, "T": names.behind, **names.size}
    steps: list[Step] = [Matmul("cfc input", mix, _backbone(0, prefix), pre), Zero("cfc_recurrent")]
    for w in range(snapshots):
        slot = w if names.keep else 0
        at = {"w": str(w), "slot": str(slot)}
        if w:
            steps.append(Matmul(f"cfc recurrent {w}", _snapshot(names.states, w), _backbone(1, prefix), recurrent))
        steps += [
            Stage(
                "cfc_backbone_forward",
                {"pre": names.pre, "recurrent": "cfc_recurrent", "bias": f"{prefix}b_cfc_backbone", "u": names.u, **at},
            ),
            Matmul(f"cfc gates {w}", _snapshot(names.u, slot), w_gates, _snapshot(names.gates, slot, f"4*{HIDDEN}")),
            Stage("cfc_gates_forward", {"bias": f"{prefix}b_cfc_gates", "gates": names.gates, **outputs, **at}),
        ]
    return steps


def _cfc_backward(snapshots: int) -> list[Step]:
    """Backward in time, then every weight gradient as one wide product; leaves encoder_grad_out for the blocks."""
    carry, gates = View("cfc_recurrent", "B", HIDDEN), f"4*{HIDDEN}"
    w_gates = weights("w_cfc_gates", HIDDEN, gates)
    steps: list[Step] = [Zero("cfc_recurrent")]
    for w in range(snapshots - 2, -1, -1):
        pre = _snapshot("cfc_pre", w)
        steps += [
            Stage("cfc_gates_backward", {"carry": "cfc_recurrent", "gates": "cfc_gates", "w": str(w)}),
            Matmul(f"cfc grad u {w}", _snapshot("cfc_gates", w, gates), w_gates, pre, trans_b=True),
            Stage("cfc_backbone_backward", {"u": "cfc_u", "grad": "cfc_pre", "w": str(w)}),
        ]
        if w:
            steps.append(Matmul(f"cfc grad h {w}", pre, _backbone(1), carry, trans_b=True))
    pre, grad_gates, grad_w = rows("cfc_pre"), rows("cfc_gates", gates), weights("grad_w_cfc_gates", HIDDEN, gates)
    return [
        *steps,
        Matmul("cfc grad w_gates", rows("cfc_u"), grad_gates, grad_w, trans_a=True),
        column_sums("cfc grad b_gates", grad_gates, "grad_b_cfc_gates"),
        Matmul("cfc grad w_x", rows("m2_out"), pre, _backbone(0, "grad_"), trans_a=True),
        Matmul("cfc grad w_h", rows("cfc_states"), pre, _backbone(1, "grad_"), trans_a=True),
        column_sums("cfc grad b", pre, "grad_b_cfc_backbone"),
        Matmul("cfc grad input", pre, _backbone(0), rows("encoder_grad_out"), trans_b=True),
    ]
