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
from foxhunt_cli.nets import cfc, mamba2, vsn
from foxhunt_cli.nets.encoder_parts import HIDDEN, INPUT, buffer
from foxhunt_cli.pipeline.stage import Fused, Stage, Step

WINDOW = WARMUP_SNAPSHOTS  # K: snapshots an encoding looks at, at least
MANY_TOKENS = 8192  # snapshots of rows from which one kernel for two layers is faster than their two products
GAP_SCALE = 0.2  # gap = GAP_SCALE * ln(1 + milliseconds since the row's previous snapshot), 0 at the window's first

PARAMETERS = (
    *vsn.PARAMETERS,
    *mamba2.parameters("m1", INPUT, "MAMBA1"),
    *mamba2.parameters("m2", HIDDEN, "MAMBA2"),
    *cfc.PARAMETERS,
)


BUFFERS = (
    buffer("gap", "W, B", f"{GAP_SCALE} ln(1 + ms since the row's previous snapshot); 0 at w = 0", "scaled log ms"),
    *vsn.BUFFERS,
    *mamba2.buffers("m1"),
    *mamba2.buffers("m2"),
    *mamba2.SCRATCH,
    *cfc.BUFFERS,
    buffer("target_h", f"(T+1), B, {HIDDEN}", "encoding by the target encoder"),
)


@dataclass(frozen=True)
class _Pass:
    """Buffer names of one forward pass.

    snapshots: how many the pass covers. behind: states that follow the first encoding of h.
    """

    gate: str
    selected: str
    blocks: tuple[mamba2.Block, mamba2.Block]
    cell: cfc.Cell
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
    cfc.TRAINED,
)


# Each name is written only after the last read of what it held before: the order of forward() is what makes this right.
_FORWARD_ONLY = _Pass(
    "encoder_grad_vsn",
    "encoder_grad_x",
    (
        mamba2.forward_only("m1", INPUT, "encoder_grad_x", "encoder_grad_out"),
        mamba2.forward_only("m2", HIDDEN, "encoder_grad_out", "encoder_grad_out"),  # adds to its input: the residual
    ),
    cfc.Cell("encoder_grad_y", "encoder_grad_out", "encoder_grad_proj", "encoder_grad_bc", "target_h", keep=False),
)


# The two windows of a step whose encoding knows the position.
_WINDOW = replace(_TRAINED, snapshots="K", behind="0")
_NEXT_CELL = replace(_FORWARD_ONLY.cell, h="next_h")
_NEXT_WINDOW = replace(_FORWARD_ONLY, cell=_NEXT_CELL, x="x_next", gap="gap_next", snapshots="K", behind="0")


def forward(snapshots: int, prefix: str = "", batch: int = 0) -> list[Step | Fused]:
    """x, gap -> h. ``snapshots`` = W. prefix ``target_``: the target's weights -> target_h, nothing kept.

    batch, in every pass: B, which decides whether layers are chained; 0 where they need not be.
    """
    return _forward(_FORWARD_ONLY if prefix else _TRAINED, snapshots, batch, prefix)


def gaps() -> list[Step | Fused]:
    """gap of the W snapshots of an iteration."""
    return [Stage("gpu_window_gaps", {"offset": "0"})]


def window_forward(batch: int = 0) -> list[Step | Fused]:
    """The first K snapshots of x -> h[0], kept for the backward."""
    return [Stage("gpu_window_gaps", {"offset": "0", **_WINDOW.size}), *_forward(_WINDOW, WINDOW, batch)]


def next_window_forward(batch: int = 0) -> list[Step | Fused]:
    """x_next [K, B, 56] -> next_h [B, 128], nothing kept."""
    gap = Stage("gpu_window_gaps", {"offset": "1", "gap": _NEXT_WINDOW.gap, **_NEXT_WINDOW.size})
    return [gap, *_forward(_NEXT_WINDOW, WINDOW, batch)]


def _forward(names: _Pass, snapshots: int, batch: int, prefix: str = "") -> list[Step | Fused]:
    first, second = names.blocks
    many = snapshots * batch >= MANY_TOKENS
    over = (names.all, names.size, prefix)
    selection = vsn.forward(names.x, names.gate, names.selected, first.keep, *over)
    into_first, *behind = mamba2.forward(first, *over)
    projected = vsn.projected(names.x, names.gate, names.selected, first.proj, first.keep, *over)
    *into_norm, out = mamba2.forward(second, *over, onto=first.out)
    to_cell, recurrence = cfc.forward(names.cell, second.out, names.gap, snapshots, names.behind, *over, batch=batch)
    chain = cfc.chain_forward(names.cell, second.norm, first.out, second.out, names.all, prefix)
    return [
        Fused((projected,), (*selection, into_first), tf32=True),
        *behind,
        *into_norm,
        *((Fused((chain,), (out, to_cell), tf32=True),) if many else (out, to_cell)),
        recurrence,
    ]


def backward(snapshots: int, batch: int = 0) -> list[Step | Fused]:
    """grad_h -> the gradient of every tensor, overwritten. Consumes what the last ``forward(snapshots)`` kept."""
    first, second = _TRAINED.blocks
    into_first = mamba2.input_gradient(second, "encoder_grad_out", accumulate=True)  # on top of the residual's
    into_vsn = mamba2.input_gradient(first, "encoder_grad_vsn")
    *cell, into_second = cfc.backward(snapshots)
    by_step = (*mamba2.backward(second), into_first, *mamba2.backward(first), into_vsn, *vsn.backward())
    by_row = (*mamba2.row_backward(second), into_first, *mamba2.row_backward(first), into_vsn, *vsn.tile_backward())
    selection, lines = vsn.projected_backward()
    many = snapshots * batch >= MANY_TOKENS
    through_second = mamba2.chunk_backward(second, from_norm=many)
    into_norm = cfc.chain_backward() if many else into_second
    by_chunk = (into_norm, *through_second, into_first, *mamba2.chunk_backward(first), *selection, _sums(lines))
    return [*cell, Fused(by_chunk, (into_second, Fused((*by_row, _sums(vsn.TILES)), by_step)), tf32=True)]


def _sums(tiles: str) -> Stage:
    """The small gradients of Mamba-2 and variable selection from their parts."""
    return Stage("encoder_sum_parts", {"tiles": tiles})
