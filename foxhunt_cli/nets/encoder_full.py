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

from foxhunt_cli.buffers.row import Buffer
from foxhunt_cli.config.dims import WARMUP_SNAPSHOTS
from foxhunt_cli.nets.params import Parameter
from foxhunt_cli.pipeline.stage import Matmul, Stage, Step, View, Zero

WINDOW = WARMUP_SNAPSHOTS  # K: snapshots an encoding looks at, at least

# Shapes of a Mamba-2 block; cuda_src/nets/mamba2.cuh holds the same numbers.
HEADS, STATE, TAPS = 8, 16, 4
XBC = "(HIDDEN_DIM + 32)"  # convolved columns: x 128, B 16, C 16
PROJ = "(2*HIDDEN_DIM + 40)"  # in-projection: z 128, x 128, B 16, C 16, dt 8
_DT_COLUMN = "2*HIDDEN_DIM + 32"
_CONV = f"{TAPS}*{XBC}"
GAP_SCALE = 0.2  # gap = GAP_SCALE * ln(1 + milliseconds since the row's previous snapshot), 0 at the window's first

_INPUT, _HIDDEN = "ENCODER_INPUT_DIM", "HIDDEN_DIM"
_USED = "(W-1)*B"
_BACKWARD = {"W": "W-1"}  # the last snapshot feeds only the bootstrap state and carries no gradient


def _tensor(name: str, dims: str, init: str, gain: float, branch: str) -> Parameter:
    return Parameter(name, dims, init, gain, "LR_AUX", f"BRANCH_LR_MULT_{branch}", encoder=True, target=True)


def _mamba_tensors(tag: str, width: str, branch: str) -> tuple[Parameter, ...]:
    """dt starts at softplus(-2) = 0.127, a_log in +-1: memories of 3 to 21 snapshots. Taps as in the published code."""
    return (
        _tensor(f"w_{tag}_in", f"{width}, {PROJ}", "xavier", 1.0, branch),
        _tensor(f"w_{tag}_conv", f"{TAPS}, {XBC}", "uniform", 0.5, branch),
        _tensor(f"b_{tag}_conv", XBC, "constant", 0.0, branch),
        _tensor(f"b_{tag}_dt", f"{HEADS}", "constant", -2.0, branch),
        _tensor(f"a_log_{tag}", f"{HEADS}", "uniform", 1.0, branch),
        _tensor(f"skip_{tag}", f"{HEADS}", "constant", 1.0, branch),
        _tensor(f"w_{tag}_norm", _HIDDEN, "constant", 1.0, branch),
        _tensor(f"w_{tag}_out", f"{_HIDDEN}, {_HIDDEN}", "xavier", 1.0, branch),
    )


# The four gates are one tensor; its gain makes the limit that of four separate 128 -> 128 layers.
_FOUR_GATES_GAIN = 2.5**0.5

PARAMETERS = (
    _tensor("w_vsn", f"{_INPUT}, {_INPUT}", "xavier", 1.0, "VSN"),
    _tensor("b_vsn", _INPUT, "constant", 0.0, "VSN"),
    *_mamba_tensors("m1", _INPUT, "MAMBA1"),
    *_mamba_tensors("m2", _HIDDEN, "MAMBA2"),
    _tensor("w_cfc_backbone", f"2*{_HIDDEN}, {_HIDDEN}", "xavier", 1.0, "CFC"),
    _tensor("b_cfc_backbone", _HIDDEN, "constant", 0.0, "CFC"),
    _tensor("w_cfc_gates", f"{_HIDDEN}, 4*{_HIDDEN}", "xavier", _FOUR_GATES_GAIN, "CFC"),
    _tensor("b_cfc_gates", f"4*{_HIDDEN}", "constant", 0.0, "CFC"),
)


def _buffer(name: str, dims: str, meaning: str, unit: str = "1") -> Buffer:
    return Buffer(name, dims, "float32", "iteration", unit, meaning)


def _mamba_buffers(tag: str) -> tuple[Buffer, ...]:
    return (
        _buffer(f"{tag}_proj", f"W, B, {PROJ}", "in-projection: z, then x, B, C before the convolution, then dt"),
        _buffer(f"{tag}_xbc", f"W, B, {XBC}", "x, B, C after convolution and SiLU"),
        _buffer(f"{tag}_dt", f"W, B, {HEADS}", "step size of a head", "snapshots"),
        _buffer(f"{tag}_decay", f"W, B, {HEADS}", "what a head's state keeps of the previous snapshot's, 0..1"),
        _buffer(f"{tag}_s", f"W, B, {_HIDDEN}", "output of the scan: what earlier snapshots contribute"),
        _buffer(f"{tag}_norm", f"W, B, {_HIDDEN}", "gated, normalised; backward: parts of the norm weights' gradient"),
        _buffer(f"{tag}_rstd", "W, B", "reciprocal root mean square under the normalisation"),
        _buffer(f"{tag}_out", f"W, B, {_HIDDEN}", "output of the block (m2: with the residual)"),
    )


BUFFERS = (
    _buffer("gap", "W, B", f"{GAP_SCALE} ln(1 + ms since the row's previous snapshot); 0 at w = 0", "scaled log ms"),
    _buffer("vsn_gate", f"W, B, {_INPUT}", "selection weights; backward: gradient of their logits"),
    _buffer("vsn_out", f"W, B, {_INPUT}", "selected inputs", "mixed"),
    *_mamba_buffers("m1"),
    *_mamba_buffers("m2"),
    _buffer("cfc_pre", f"W, B, {_HIDDEN}", "input half of the backbone; backward: gradient before the backbone's tanh"),
    _buffer("cfc_recurrent", f"B, {_HIDDEN}", "recurrent half of the backbone; backward: gradient of h through time"),
    _buffer("cfc_u", f"W, B, {_HIDDEN}", "backbone"),
    _buffer("cfc_gates", f"W, B, 4*{_HIDDEN}", "f, g, blend; backward: gradient of the gate product"),
    _buffer("cfc_states", f"(W+1), B, {_HIDDEN}", "h before each snapshot, and after the last"),
    _buffer("target_h", f"(T+1), B, {_HIDDEN}", "encoding by the target encoder"),
    _buffer("target_dt", f"W, B, {HEADS}", "step sizes of a forward-only pass", "snapshots"),
    _buffer("target_decay", f"W, B, {HEADS}", "decays of a forward-only pass"),
    _buffer("target_rstd", "W, B", "reciprocal root mean squares of a forward-only pass"),
    _buffer("encoder_grad_vsn", f"W, B, {_INPUT}", "gradient of the selected inputs"),
    _buffer("encoder_grad_proj", f"W, B, {PROJ}", "gradient of an in-projection"),
    _buffer("encoder_grad_out", f"W, B, {_HIDDEN}", "gradient of a block's output"),
    _buffer("encoder_grad_y", f"W, B, {_HIDDEN}", "gradient of the normalised output, then before gate and norm"),
    _buffer("encoder_grad_x", f"W, B, {_HIDDEN}", "gradient of dt x in the scan, through later snapshots"),
    _buffer("encoder_grad_bc", f"W, B, 2*{_HIDDEN}", "gradients of B and C, one part a head"),
    _buffer("encoder_grad_head", f"B, {2 * HEADS}", "gradients of a_log and skip, one part a row"),
    _buffer("encoder_grad_conv", f"B, {TAPS + 1}*{XBC}", "gradients of taps and bias, one part a row"),
)


@dataclass(frozen=True)
class _Block:
    """Buffer names of one Mamba-2 block in one pass."""

    tag: str
    width: str  # columns of the input
    input: str
    proj: str
    xbc: str
    dt: str
    decay: str
    s: str
    norm: str
    rstd: str
    out: str


@dataclass(frozen=True)
class _Pass:
    """Buffer names of one forward pass. keep: u and the gates of every snapshot stay for the backward.

    snapshots: how many the pass covers. behind: states that follow the first encoding of h.
    """

    gate: str
    selected: str
    blocks: tuple[_Block, _Block]
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


def _own_block(tag: str, width: str, source: str) -> _Block:
    own = (f"{tag}_{n}" for n in ("proj", "xbc", "dt", "decay", "s", "norm", "rstd", "out"))
    return _Block(tag, width, source, *own)


_TRAINED = _Pass(
    "vsn_gate",
    "vsn_out",
    (_own_block("m1", _INPUT, "vsn_out"), _own_block("m2", _HIDDEN, "m1_out")),
    "cfc_pre",
    "cfc_u",
    "cfc_gates",
    "cfc_states",
    "h",
    True,
)


def _scratch_block(tag: str, width: str, source: str, out: str) -> _Block:
    return _Block(
        tag,
        width,
        source,
        proj="encoder_grad_proj",
        xbc="encoder_grad_bc",
        dt="target_dt",
        decay="target_decay",
        s="encoder_grad_y",
        norm="encoder_grad_x",
        rstd="target_rstd",
        out=out,
    )


# Each name is written only after the last read of what it held before: the order of forward() is what makes this right.
_FORWARD_ONLY = _Pass(
    "encoder_grad_vsn",
    "encoder_grad_x",
    (
        _scratch_block("m1", _INPUT, "encoder_grad_x", "encoder_grad_out"),
        _scratch_block("m2", _HIDDEN, "encoder_grad_out", "encoder_grad_y"),
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
    return [
        *_vsn_forward(names, prefix),
        *_mamba_forward(names, first, prefix),
        *_mamba_forward(names, second, prefix),
        Stage("mamba2_residual", {"trunk": first.out, "branch": second.out, **names.size}),
        *_cfc_forward(names, snapshots, prefix),
    ]


def backward(snapshots: int) -> list[Step]:
    """grad_h -> the gradient of every tensor, overwritten. Consumes what the last ``forward(snapshots)`` kept."""
    first, second = _TRAINED.blocks
    grad_out, logits = "encoder_grad_out", _rows("vsn_gate", _INPUT)
    return [
        *_cfc_backward(snapshots),
        *_mamba_backward(second),
        _input_gradient(second, grad_out, accumulate=True),  # on top of the residual's
        *_mamba_backward(first),
        _input_gradient(first, "encoder_grad_vsn"),
        Stage("vsn_backward", {"grad_out": "encoder_grad_vsn", "gate": "vsn_gate", **_BACKWARD}),
        Matmul("vsn grad w", _rows("x", _INPUT), logits, _weights("grad_w_vsn", _INPUT, _INPUT), trans_a=True),
        _column_sums("vsn grad b", logits, "grad_b_vsn"),
    ]


def _rows(name: str, cols: str = _HIDDEN, rows: str = _USED, **place: str) -> View:
    return View(name, rows, cols, **place)


def _weights(name: str, rows: str, cols: str, **place: str) -> View:
    return View(name, rows, cols, **place)


def _column_sums(label: str, matrix: View, out: str) -> Matmul:
    """Sums over the rows, in the product's fixed order."""
    return Matmul(label, View("ones", "1", matrix.rows), matrix, View(out, "1", matrix.cols))


def _vsn_forward(names: _Pass, prefix: str) -> list[Step]:
    weights, logits = _weights(f"{prefix}w_vsn", _INPUT, _INPUT), _rows(names.gate, _INPUT, names.all)
    remap = {"x": names.x, "bias": f"{prefix}b_vsn", "gate": names.gate, "out": names.selected}
    return [
        Matmul("vsn logits", _rows(names.x, _INPUT, names.all), weights, logits),
        Stage("vsn_forward", remap | names.size),
    ]


def _mamba_names(block: _Block, prefix: str = "") -> dict[str, str]:
    """Remap that serves every Mamba-2 kernel: parameter -> buffer or tensor of this block."""
    tag = block.tag
    return {
        **{name: getattr(block, name) for name in ("proj", "xbc", "dt", "decay", "s", "norm", "rstd")},
        "conv_w": f"{prefix}w_{tag}_conv",
        "conv_b": f"{prefix}b_{tag}_conv",
        "dt_bias": f"{prefix}b_{tag}_dt",
        "a_log": f"{prefix}a_log_{tag}",
        "skip": f"{prefix}skip_{tag}",
        "norm_w": f"{prefix}w_{tag}_norm",
        "grad": "encoder_grad_y",
        **{name: f"encoder_{name}" for name in ("grad_y", "grad_x", "grad_bc", "grad_proj", "grad_head", "grad_conv")},
    }


def _mamba_stage(kernel: str, takes: str, names: dict[str, str], **scalars: str) -> Stage:
    return Stage(kernel, {**{p: names[p] for p in takes.split()}, **scalars})


def _mamba_forward(of: _Pass, block: _Block, prefix: str) -> list[Step]:
    names, tag, size = _mamba_names(block, prefix), block.tag, of.size
    source, proj = _rows(block.input, block.width, of.all), _rows(block.proj, PROJ, of.all)
    return [
        Matmul(f"{tag} in", source, _weights(f"{prefix}w_{tag}_in", block.width, PROJ), proj),
        _mamba_stage("mamba2_conv_forward", "proj conv_w conv_b xbc", names, **size),
        _mamba_stage("mamba2_dt_forward", "proj dt_bias a_log dt decay", names, **size),
        _mamba_stage("mamba2_scan_forward", "xbc dt decay s", names, **size),
        _mamba_stage("mamba2_norm_forward", "s xbc proj dt skip norm_w norm rstd", names, **size),
        Matmul(
            f"{tag} out",
            _rows(block.norm, rows=of.all),
            _weights(f"{prefix}w_{tag}_out", _HIDDEN, _HIDDEN),
            _rows(block.out, rows=of.all),
        ),
    ]


def _mamba_backward(block: _Block) -> list[Step]:
    """encoder_grad_out -> the block's tensors and encoder_grad_proj."""
    names, tag = _mamba_names(block), block.tag
    norm, grad_out, grad_proj = _rows(block.norm), _rows("encoder_grad_out"), _rows("encoder_grad_proj", PROJ)
    w_out, grad_w_out = (_weights(f"{p}w_{tag}_out", _HIDDEN, _HIDDEN) for p in ("", "grad_"))
    head = {"rows": "B", "cols": f"{HEADS}", "ld": f"{2 * HEADS}"}
    conv = {"rows": "B", "ld": f"{TAPS + 1}*{XBC}"}
    return [
        Matmul(f"{tag} grad w_out", norm, grad_out, grad_w_out, trans_a=True),
        Matmul(f"{tag} grad norm", grad_out, w_out, _rows("encoder_grad_y"), trans_b=True),
        _mamba_stage("mamba2_norm_backward", "s xbc proj dt skip norm_w rstd norm grad grad_proj", names, **_BACKWARD),
        _column_sums(f"{tag} grad w_norm", norm, f"grad_w_{tag}_norm"),
        _mamba_stage("mamba2_scan_backward_bc", "xbc dt decay grad_y grad_bc", names, **_BACKWARD),
        _mamba_stage("mamba2_scan_backward_x", "xbc decay grad_y grad_x", names, **_BACKWARD),
        _mamba_stage("mamba2_scan_backward_dt", "xbc dt s a_log grad_y grad_x grad_proj grad_head", names, **_BACKWARD),
        _mamba_stage(
            "mamba2_conv_backward",
            "proj conv_w conv_b xbc skip dt grad_y grad_x grad_bc grad_proj grad_conv",
            names,
            **_BACKWARD,
        ),
        _column_sums(f"{tag} grad a_log", View("encoder_grad_head", **head), f"grad_a_log_{tag}"),
        _column_sums(f"{tag} grad skip", View("encoder_grad_head", **head, col0=f"{HEADS}"), f"grad_skip_{tag}"),
        _column_sums(f"{tag} grad w_conv", View("encoder_grad_conv", cols=_CONV, **conv), f"grad_w_{tag}_conv"),
        _column_sums(
            f"{tag} grad b_conv", View("encoder_grad_conv", cols=XBC, **conv, col0=_CONV), f"grad_b_{tag}_conv"
        ),
        _column_sums(
            f"{tag} grad b_dt",
            _rows("encoder_grad_proj", f"{HEADS}", ld=PROJ, col0=_DT_COLUMN),
            f"grad_b_{tag}_dt",
        ),
        Matmul(
            f"{tag} grad w_in",
            _rows(block.input, block.width),
            grad_proj,
            _weights(f"grad_w_{tag}_in", block.width, PROJ),
            trans_a=True,
        ),
    ]


def _input_gradient(block: _Block, out: str, accumulate: bool = False) -> Matmul:
    weights = _weights(f"w_{block.tag}_in", block.width, PROJ)
    grad_proj, target = _rows("encoder_grad_proj", PROJ), _rows(out, block.width)
    return Matmul(f"{block.tag} grad input", grad_proj, weights, target, trans_b=True, accumulate=accumulate)


def _backbone(half: int, prefix: str = "") -> View:
    """Rows of W_b that multiply x (half 0) or h (half 1)."""
    return _weights(f"{prefix}w_cfc_backbone", _HIDDEN, _HIDDEN, row0=f"{half}*{_HIDDEN}")


def _snapshot(name: str, w: int, cols: str = _HIDDEN) -> View:
    return View(name, "B", cols, row0=f"{w}*B")


def _cfc_forward(names: _Pass, snapshots: int, prefix: str) -> list[Step]:
    """One wide product for the input half of the backbone, then two small ones a snapshot."""
    recurrent = View("cfc_recurrent", "B", _HIDDEN)
    w_gates = _weights(f"{prefix}w_cfc_gates", _HIDDEN, f"4*{_HIDDEN}")
    mix, pre = _rows(names.blocks[1].out, rows=names.all), _rows(names.pre, rows=names.all)
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
            Matmul(f"cfc gates {w}", _snapshot(names.u, slot), w_gates, _snapshot(names.gates, slot, f"4*{_HIDDEN}")),
            Stage("cfc_gates_forward", {"bias": f"{prefix}b_cfc_gates", "gates": names.gates, **outputs, **at}),
        ]
    return steps


def _cfc_backward(snapshots: int) -> list[Step]:
    """Backward in time, then every weight gradient as one wide product; leaves encoder_grad_out for the blocks."""
    carry, gates = View("cfc_recurrent", "B", _HIDDEN), f"4*{_HIDDEN}"
    w_gates = _weights("w_cfc_gates", _HIDDEN, gates)
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
    pre, grad_gates, grad_w = _rows("cfc_pre"), _rows("cfc_gates", gates), _weights("grad_w_cfc_gates", _HIDDEN, gates)
    return [
        *steps,
        Matmul("cfc grad w_gates", _rows("cfc_u"), grad_gates, grad_w, trans_a=True),
        _column_sums("cfc grad b_gates", grad_gates, "grad_b_cfc_gates"),
        Matmul("cfc grad w_x", _rows("m2_out"), pre, _backbone(0, "grad_"), trans_a=True),
        Matmul("cfc grad w_h", _rows("cfc_states"), pre, _backbone(1, "grad_"), trans_a=True),
        _column_sums("cfc grad b", pre, "grad_b_cfc_backbone"),
        Matmul("cfc grad input", pre, _backbone(0), _rows("encoder_grad_out"), trans_b=True),
    ]
