"""Turns the ordered list into operations of a device: resolves names, checks, freezes.

Owns no order and no arithmetic: the order is in ``iteration.py`` and what it is made of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from foxhunt_cli.config.dims import evaluate
from foxhunt_cli.device.base import Device, Fill, Operation, Product
from foxhunt_cli.kernels.bind import bind
from foxhunt_cli.kernels.registry import kernel
from foxhunt_cli.pipeline.stage import Matmul, Stage, Step, View


class PlanError(ValueError):
    """A step of the list names something that does not exist or does not fit; the message names the step."""


def build(
    steps: Sequence[Step], arrays: Mapping[str, Any], dims: Mapping[str, int | float], device: Device
) -> list[Operation]:
    """Operations for ``steps``. Raises PlanError, BindError or DimensionError."""
    operations: list[Operation] = []
    for step in steps:
        if isinstance(step, Stage):
            operation = bind(kernel(step.kernel), arrays, dims, step.remap, double=device.double)
        elif isinstance(step, Matmul):
            operation = _product(step, arrays, dims)
        else:
            operation = Fill(_array(step.name, arrays, f"zero {step.name}"))
        if step.when:
            operation = replace(operation, when=_array(step.when, arrays, "a condition"))
        operations.append(operation)
    return operations


def kernels_of(steps: Sequence[Step], *, conditional: bool = False) -> list[str]:
    """Names of the kernels in ``steps``, each once, in order of first use; conditional: of those under a condition."""
    return list(
        dict.fromkeys(step.kernel for step in steps if isinstance(step, Stage) and (step.when or not conditional))
    )


def slots_of(steps: Sequence[Step]) -> dict[str, set[int]]:
    """Numbers of the slots that a kernel writes where it takes the number as a parameter ("slot"), by kernel."""
    found: dict[str, set[int]] = {}
    for step in steps:
        if isinstance(step, Stage) and any(p.name == "slot" and not p.pointer for p in kernel(step.kernel).params):
            found.setdefault(step.kernel, set()).add(int(step.remap["slot"]))
    return found


def names_of(steps: Sequence[Step]) -> set[str]:
    """Every buffer or tensor the list touches."""
    names: set[str] = set()
    for step in steps:
        names.update(filter(None, [step.when]))
        if isinstance(step, Stage):
            names.update(step.remap.get(p.name, p.name) for p in kernel(step.kernel).params if p.pointer)
        elif isinstance(step, Matmul):
            names.update(view.name for view in (*step.operands, *step.results))
        else:
            names.add(step.name)
    return names


def resolve(view: View, arrays: Mapping[str, Any], dims: Mapping[str, int | float], label: str) -> Any:
    """The 2-D array that ``view`` describes; shares memory with its buffer."""
    rows, cols, row0, col0 = (evaluate(e, dims) for e in (view.rows, view.cols, view.row0, view.col0))
    width = evaluate(view.ld, dims) if view.ld else cols
    flat = _array(view.name, arrays, label).reshape(-1)
    need = (row0 + rows) * width
    if need > flat.size or col0 + cols > width:
        raise PlanError(f"{label}: {view} needs {need} elements in rows of {width}, '{view.name}' has {flat.size}")
    return flat[row0 * width : need].reshape(rows, width)[:, col0 : col0 + cols]


def _array(name: str, arrays: Mapping[str, Any], label: str) -> Any:
    if name not in arrays:
        raise PlanError(f"{label}: no buffer named '{name}'")
    return arrays[name]


def _product(step: Matmul, arrays: Mapping[str, Any], dims: Mapping[str, int | float]) -> Product:
    a, b, out, addend, sums = (
        resolve(view, arrays, dims, step.label) if view else None
        for view in (step.a, step.b, step.out, step.addend, step.column_sums)
    )
    m, k = a.shape[::-1] if step.trans_a else a.shape
    k2, n = b.shape[::-1] if step.trans_b else b.shape
    if (m, n) != tuple(out.shape) or k != k2:
        raise PlanError(f"{step.label}: op(a) is {m}x{k}, op(b) is {k2}x{n}, out is {out.shape[0]}x{out.shape[1]}")
    for name, array, want in (("addend", addend, (m, n)), ("column_sums", sums, (1, n))):
        if array is not None and tuple(array.shape) != want:
            raise PlanError(f"{step.label}: {name} is {array.shape[0]}x{array.shape[1]}, must be {want[0]}x{want[1]}")
    return Product(a, b, out, step.trans_a, step.trans_b, step.accumulate, addend=addend, column_sums=sums)
