"""A Mamba-2 block of the full encoder: in-projection, convolution, selective scan, gated normalisation, out-projection.

Owns the tensors, buffers and steps of a block; the arithmetic is in ``cuda_src/nets/mamba2_*.cu`` and in matrix
products, that of the fused steps in ``cuda_src/fused/mamba2_*.cu`` and, with tensor cores,
``cuda_src/cuda_only/mamba2_*.cu``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from foxhunt_cli.buffers.row import Buffer
from foxhunt_cli.nets.encoder_parts import BACKWARD, HIDDEN, buffer, column_sums, rows, tensor, weights
from foxhunt_cli.nets.params import Parameter
from foxhunt_cli.pipeline.stage import Fused, Matmul, Stage, Step, View

# Shapes of a block; cuda_src/nets/mamba2.cuh holds the same numbers.
HEADS, STATE, TAPS = 8, 16, 4
XBC = "(HIDDEN_DIM + 32)"  # convolved columns: x 128, B 16, C 16
PROJ = "(2*HIDDEN_DIM + 40)"  # in-projection: z 128, x 128, B 16, C 16, dt 8
_DT_COLUMN = "2*HIDDEN_DIM + 32"
_CONV = f"{TAPS}*{XBC}"
_GRADIENTS = ("grad_y", "grad_x", "grad_bc", "grad_c", "grad_proj", "grad_head", "grad_conv")
_PARTS = f"{TAPS + 1}*{XBC} + {3 * HEADS} + HIDDEN_DIM"


@dataclass(frozen=True)
class Block:
    """Buffer names of one block in one pass."""

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
    keep: bool  # whether a backward follows


def trained(tag: str, width: str, source: str) -> Block:
    """The block whose activations stay for the backward."""
    own = (f"{tag}_{n}" for n in ("proj", "xbc", "dt", "decay", "s", "norm", "rstd", "out"))
    return Block(tag, width, source, *own, keep=True)


def forward_only(tag: str, width: str, source: str, out: str) -> Block:
    """The block in scratch of the backward, which is dead between a backward and the next."""
    return Block(
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
        keep=False,
    )


def parameters(tag: str, width: str, branch: str) -> tuple[Parameter, ...]:
    """dt starts at softplus(-2) = 0.127, a_log in +-1: memories of 3 to 21 snapshots. Taps as in the published code."""
    return (
        tensor(f"w_{tag}_in", f"{width}, {PROJ}", "xavier", 1.0, branch),
        tensor(f"w_{tag}_conv", f"{TAPS}, {XBC}", "uniform", 0.5, branch),
        tensor(f"b_{tag}_conv", XBC, "constant", 0.0, branch),
        tensor(f"b_{tag}_dt", f"{HEADS}", "constant", -2.0, branch),
        tensor(f"a_log_{tag}", f"{HEADS}", "uniform", 1.0, branch),
        tensor(f"skip_{tag}", f"{HEADS}", "constant", 1.0, branch),
        tensor(f"w_{tag}_norm", HIDDEN, "constant", 1.0, branch),
        tensor(f"w_{tag}_out", f"{HIDDEN}, {HIDDEN}", "xavier", 1.0, branch),
    )


def buffers(tag: str) -> tuple[Buffer, ...]:
    """Activations of a trained block."""
    return (
        buffer(f"{tag}_proj", f"W, B, {PROJ}", "in-projection: z, then x, B, C before the convolution, then dt"),
        buffer(f"{tag}_xbc", f"W, B, {XBC}", "x, B, C after convolution and SiLU"),
        buffer(f"{tag}_dt", f"W, B, {HEADS}", "step size of a head", "snapshots"),
        buffer(f"{tag}_decay", f"W, B, {HEADS}", "what a head's state keeps of the previous snapshot's, 0..1"),
        buffer(f"{tag}_s", f"W, B, {HIDDEN}", "what earlier snapshots contribute; by chunks: states before each"),
        buffer(f"{tag}_norm", f"W, B, {HIDDEN}", "gated, normalised; backward: parts of the norm weights' gradient"),
        buffer(f"{tag}_rstd", "W, B", "reciprocal root mean square under the normalisation"),
        buffer(f"{tag}_out", f"W, B, {HIDDEN}", "output of the block (m2: with the residual)"),
        buffer(
            f"{tag}_parts", f"B, {_PARTS}", "small gradients, one part a row: taps, bias, dt bias, a_log, skip, norm"
        ),
    )


SCRATCH = (
    buffer("target_dt", f"W, B, {HEADS}", "step sizes of a forward-only pass", "snapshots"),
    buffer("target_decay", f"W, B, {HEADS}", "decays of a forward-only pass"),
    buffer("target_rstd", "W, B", "reciprocal root mean squares of a forward-only pass"),
    buffer("encoder_grad_proj", f"W, B, {PROJ}", "gradient of an in-projection"),
    buffer("encoder_grad_out", f"W, B, {HIDDEN}", "gradient of a block's output"),
    buffer("encoder_grad_y", f"W, B, {HIDDEN}", "gradient of the normalised output, then before gate and norm"),
    buffer("encoder_grad_x", f"W, B, {HIDDEN}", "gradient of dt x in the scan, through later snapshots"),
    buffer("encoder_grad_bc", f"W, B, 2*{HIDDEN}", "gradients of B and C, one part a head"),
    buffer("encoder_grad_c", f"W, B, {STATE}", "gradient of C"),
    buffer("encoder_grad_head", f"B, {2 * HEADS}", "gradients of a_log and skip, one part a row"),
    buffer("encoder_grad_conv", f"B, {TAPS + 1}*{XBC}", "gradients of taps and bias, one part a row"),
)
"""What forward-only passes and the backward of every block share."""


def forward(block: Block, tokens: str, size: Mapping[str, str], prefix: str, *, onto: str = "") -> list[Step | Fused]:
    """block.input -> block.out. size: remap of the scalar W. onto: a buffer that is added, the residual connection."""
    names, tag = _names(block, prefix), block.tag
    source, proj = rows(block.input, block.width, tokens), rows(block.proj, PROJ, tokens)
    w_out = weights(f"{prefix}w_{tag}_out", HIDDEN, HIDDEN)
    steps = (
        _stage("mamba2_conv_forward", "proj conv_w conv_b xbc", names, size),
        _stage("mamba2_dt_forward", "proj dt_bias a_log dt decay", names, size),
        _stage("mamba2_scan_forward", "xbc dt decay s", names, size),
        _stage("mamba2_norm_forward", "s xbc proj dt skip norm_w norm rstd", names, size),
    )
    only, kept = ("", "s rstd") if block.keep else ("_only", "")
    takes = f"proj conv_w conv_b dt_bias a_log skip norm_w norm {kept}"
    row, chunk = (_stage(f"mamba2_{by}_forward{only}", takes, names, size) for by in ("row", "chunk"))
    in_place = onto == block.out
    residual = {"accumulate": True} if in_place else {"addend": rows(onto, tokens=tokens) if onto else None}
    return [
        Matmul(f"{tag} in", source, weights(f"{prefix}w_{tag}_in", block.width, PROJ), proj),
        Fused((chunk,), (Fused((row,), steps),), tf32=True),
        Matmul(f"{tag} out", rows(block.norm, tokens=tokens), w_out, rows(block.out, tokens=tokens), **residual),
    ]


def backward(block: Block) -> list[Step]:
    """encoder_grad_out -> the block's tensors and encoder_grad_proj."""
    names, tag = _names(block), block.tag
    conv = "proj conv_w conv_b xbc skip dt grad_y grad_x grad_bc grad_proj grad_conv"
    return [
        *_out_gradients(block),
        _stage("mamba2_norm_backward", "s xbc proj dt skip norm_w rstd norm grad grad_proj", names, BACKWARD),
        column_sums(f"{tag} grad w_norm", rows(block.norm), f"grad_w_{tag}_norm"),
        _stage("mamba2_scan_backward_bc", "xbc dt decay grad_y grad_bc", names, BACKWARD),
        _stage("mamba2_scan_backward_x", "xbc decay grad_y grad_x", names, BACKWARD),
        _stage("mamba2_scan_backward_dt", "xbc dt s a_log grad_y grad_x grad_proj grad_head", names, BACKWARD),
        _stage("mamba2_conv_backward", conv, names, BACKWARD),
        *_small_gradients(tag),
        _in_gradient(block),
    ]


def row_backward(block: Block) -> list[Step]:
    """The same with two kernels between the products; the small gradients stay in parts for ``encoder_sum_parts``."""
    norm = "proj s rstd conv_w conv_b dt_bias a_log skip norm_w grad grad_proj grad_c parts"
    scan = "proj s conv_w conv_b dt_bias a_log skip grad_y grad_c grad_proj parts"
    names = _names(block)
    return [
        *_out_gradients(block),
        _stage("mamba2_row_backward_norm", norm, names, BACKWARD),
        _stage("mamba2_row_backward_scan", scan, names, BACKWARD),
        _in_gradient(block),
    ]


def chunk_backward(block: Block, *, from_norm: bool = False) -> list[Step]:
    """The same with one kernel, which wants in ``s`` what the forward with tensor cores keeps there.

    from_norm: the gradient of the normalised output (encoder_grad_y) is there.
    """
    takes = "proj s rstd conv_w conv_b dt_bias a_log skip norm_w grad grad_proj parts"
    chunk = _stage("mamba2_chunk_backward", takes, _names(block), BACKWARD)
    return [*_out_gradients(block)[: 1 if from_norm else None], chunk, _in_gradient(block)]


def input_gradient(block: Block, out: str, accumulate: bool = False) -> Matmul:
    """encoder_grad_proj -> the gradient of block.input, overwriting or adding to ``out``."""
    w_in, target = weights(f"w_{block.tag}_in", block.width, PROJ), rows(out, block.width)
    grad_proj = rows("encoder_grad_proj", PROJ)
    return Matmul(f"{block.tag} grad input", grad_proj, w_in, target, trans_b=True, accumulate=accumulate)


def _out_gradients(block: Block) -> list[Step]:
    tag, grad_out = block.tag, rows("encoder_grad_out")
    w_out, grad_w_out = (weights(f"{p}w_{tag}_out", HIDDEN, HIDDEN) for p in ("", "grad_"))
    return [
        Matmul(f"{tag} grad w_out", rows(block.norm), grad_out, grad_w_out, trans_a=True),
        Matmul(f"{tag} grad norm", grad_out, w_out, rows("encoder_grad_y"), trans_b=True),
    ]


def _in_gradient(block: Block) -> Matmul:
    grad_w_in = weights(f"grad_w_{block.tag}_in", block.width, PROJ)
    grad_proj, source = rows("encoder_grad_proj", PROJ), rows(block.input, block.width)
    return Matmul(f"{block.tag} grad w_in", source, grad_proj, grad_w_in, trans_a=True)


def _small_gradients(tag: str) -> list[Step]:
    """Sums of the rows' parts, and of dt's gradient over all tokens."""
    head = {"rows": "B", "cols": f"{HEADS}", "ld": f"{2 * HEADS}"}
    conv = {"rows": "B", "ld": f"{TAPS + 1}*{XBC}"}
    dt = rows("encoder_grad_proj", f"{HEADS}", ld=PROJ, col0=_DT_COLUMN)
    taps, bias = View("encoder_grad_conv", cols=_CONV, **conv), View("encoder_grad_conv", cols=XBC, **conv, col0=_CONV)
    return [
        column_sums(f"{tag} grad a_log", View("encoder_grad_head", **head), f"grad_a_log_{tag}"),
        column_sums(f"{tag} grad skip", View("encoder_grad_head", **head, col0=f"{HEADS}"), f"grad_skip_{tag}"),
        column_sums(f"{tag} grad w_conv", taps, f"grad_w_{tag}_conv"),
        column_sums(f"{tag} grad b_conv", bias, f"grad_b_{tag}_conv"),
        column_sums(f"{tag} grad b_dt", dt, f"grad_b_{tag}_dt"),
    ]


def _names(block: Block, prefix: str = "") -> dict[str, str]:
    """Remap that serves every kernel: parameter -> buffer or tensor of this block."""
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
        **{name: f"encoder_{name}" for name in _GRADIENTS},
        "parts": f"{tag}_parts",
    }


def _stage(kernel: str, takes: str, names: Mapping[str, str], size: Mapping[str, str]) -> Stage:
    return Stage(kernel, {**{p: names[p] for p in takes.split()}, **size})
