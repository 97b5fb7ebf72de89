"""What one operation moves and computes: bytes read and written, floating-point operations of products.

Products: exactly their operands, 2 M N K operations. Kernels: an upper bound from their contract, every array that they
read or write, whole, with these exceptions: a kernel of one environment step or one snapshot (parameter ``t`` or
``w``) touches one slice of an array with that axis; of the data set, the replay store and its tree a kernel touches the
rows of ``_ROWS``, by default one row a thread; of a ring, one element a thread. Arithmetic of kernels is not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from foxhunt_cli.buffers.row import Buffer
from foxhunt_cli.config.dims import evaluate
from foxhunt_cli.device.base import Fill, Launch, Operation, Product
from foxhunt_cli.pipeline.stage import Stage, Step
from foxhunt_cli.pipeline.tables import buffers

_SLICED = {"T", "T+1", "(T+1)", "W", "W+1", "(W+1)"}
_GATHERED = ("C", "2*C", "N_SNAP", "N_SPANS")
# Rows of the data set or the store that a kernel touches where it is not one a thread.
_ROWS = {
    "rl_per_push": "T*B",
    "rl_per_push_copy": "T*B",
    "rl_hindsight_inject": "2*T*B",
    "rl_hindsight_copy": "2*T*B",
    "rl_per_gather": "R",
    "rl_path_targets": "33*R",  # books of n + 1 snapshots, n at most 32
}
_RINGS = {"mid_ring", "diag_ring"}
_TREE_NODES = 64  # a thread walks or renews at most so many


@dataclass(frozen=True)
class Work:
    """bytes moved, an upper bound for kernels; flops of products."""

    bytes: float
    flops: float = 0.0

    def floor(self, copy: float, product: float) -> float:
        """Seconds under which nothing can do it: bytes at ``copy`` bytes/s or products at ``product`` FLOP/s."""
        return max(self.bytes / copy, self.flops / product)


def work_of(step: Step, operation: Operation, dims: Mapping[str, int | float]) -> Work:
    """Of one step of the list, with its operation."""
    if isinstance(operation, Product):
        m, n = operation.out.shape
        k = operation.a.shape[0 if operation.trans_a else 1]
        outs = 2 if operation.accumulate or operation.addend is not None else 1
        return Work(4.0 * (m * k + k * n + outs * m * n), 2.0 * m * n * k)
    if isinstance(operation, Fill):
        return Work(float(operation.array.nbytes))
    assert isinstance(operation, Launch) and isinstance(step, Stage)
    contract, table = operation.contract, buffers()
    sliced = {"t", "w"} & {p.name for p in contract.params if not p.pointer}
    moved = 0.0
    for param, array in zip(contract.params, operation.args, strict=True):
        if param.pointer:
            row = table.get(step.remap.get(param.name, param.name))
            passes = (param.name in contract.reads) + (param.name in contract.writes)
            moved += passes * _touched(row, array, operation, bool(sliced), dims)
    return Work(moved)


def _touched(row: Buffer | None, array: Any, launch: Launch, sliced: bool, dims: Mapping[str, Any]) -> float:
    """Bytes of one array that the launch touches, at most."""
    first = row.dims.split(",")[0].replace(" ", "") if row is not None else ""
    length = max(1, array.shape[0])
    threads = launch.grid * launch.block
    if row is not None and row.name in _RINGS:
        return min(float(array.nbytes), array.itemsize * float(threads))
    if first.startswith(_GATHERED) and row is not None and row.lifetime != "iteration":
        name = launch.contract.name
        rows = evaluate(_ROWS[name], dims) if name in _ROWS else threads
        if first == "2*C":
            rows *= _TREE_NODES
        return array.nbytes * min(1.0, rows / length)
    if sliced and first in _SLICED:
        return array.nbytes / length
    return float(array.nbytes)


def shape_of(operation: Operation) -> str:
    """``M x N x K`` of a product, blocks x threads of a kernel, "" of a fill."""
    if isinstance(operation, Product):
        k = operation.a.shape[0 if operation.trans_a else 1]
        return f"{operation.out.shape[0]} x {operation.out.shape[1]} x {k}"
    return f"{operation.grid} x {operation.block}" if isinstance(operation, Launch) else ""
