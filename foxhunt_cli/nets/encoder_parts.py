"""What the parts of the full encoder share: names of sizes, and short ways to write tensors, buffers and views."""

from __future__ import annotations

from foxhunt_cli.buffers.row import Buffer
from foxhunt_cli.nets.params import Parameter
from foxhunt_cli.pipeline.stage import Matmul, View

INPUT, HIDDEN = "ENCODER_INPUT_DIM", "HIDDEN_DIM"
USED = "(W-1)*B"  # tokens (snapshots of rows) that carry gradient
BACKWARD = {"W": "W-1"}  # the last snapshot feeds only the bootstrap state and carries no gradient


def tensor(name: str, dims: str, init: str, gain: float, branch: str) -> Parameter:
    """A tensor of the encoder, with a copy in the target encoder."""
    return Parameter(name, dims, init, gain, "LR_AUX", f"BRANCH_LR_MULT_{branch}", encoder=True, target=True)


def buffer(name: str, dims: str, meaning: str, unit: str = "1") -> Buffer:
    """Activations or gradients of one iteration."""
    return Buffer(name, dims, "float32", "iteration", unit, meaning)


def rows(name: str, cols: str = HIDDEN, tokens: str = USED, **place: str) -> View:
    """A row a token."""
    return View(name, tokens, cols, **place)


def weights(name: str, inputs: str, outputs: str, **place: str) -> View:
    """A weight matrix, or a block of its rows."""
    return View(name, inputs, outputs, **place)


def column_sums(label: str, matrix: View, out: str) -> Matmul:
    """Sums over the rows, in the product's fixed order."""
    return Matmul(label, View("ones", "1", matrix.rows), matrix, View(out, "1", matrix.cols))
