"""What a failing case gave its last kernel, small enough to read.

A ``Witness`` stands in for a device and keeps a copy of the inputs of each launch until the next one. Only a case that
has failed is run again with a witness, so passing cases pay nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from foxhunt_cli.device.base import Device, Launch, Operation

WHOLE = 12  # arrays up to this size are shown whole
HEAD = 6  # of larger ones: the first values


class Witness:
    """A device that remembers what the last kernel was given."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._launch: Launch | None = None
        self._inputs: dict[str, np.ndarray] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def plan(self, operations: Sequence[Operation], *, use_graph: bool = True) -> _WatchedPlan:
        """A plan that runs one operation at a time, watched."""
        return _WatchedPlan(self, operations)

    def before(self, launch: Launch) -> None:
        """Copy what ``launch`` is about to read."""
        named = zip(launch.contract.params, launch.args, strict=True)
        self._launch = launch
        self._inputs = {
            p.name: np.array(self._device.download(value))
            for p, value in named
            if p.pointer and p.name in launch.contract.reads
        }

    def describe(self) -> str:
        """Kernel, scalars and inputs of the last launch, one a line; empty where nothing was launched."""
        if self._launch is None:
            return ""
        contract = self._launch.contract
        named = zip(contract.params, self._launch.args, strict=True)
        scalars = ", ".join(f"{p.name} {value}" for p, value in named if not p.pointer)
        lines = [f"{contract.name}, {self._launch.grid} blocks of {self._launch.block}: {scalars}"]
        return "\n".join([*lines, *(f"  {name} {_shown(array)}" for name, array in self._inputs.items())])


class _WatchedPlan:
    def __init__(self, witness: Witness, operations: Sequence[Operation]) -> None:
        self._witness, self._operations = witness, tuple(operations)
        self._single = [witness._device.plan([op], use_graph=False) for op in self._operations]

    def run(self) -> None:
        for operation, plan in zip(self._operations, self._single, strict=True):
            if isinstance(operation, Launch):
                self._witness.before(operation)
            plan.run_eager()

    run_eager = run


def _shown(array: np.ndarray) -> str:
    """Shape and values; of a large array its first values and its range."""
    shape = "x".join(map(str, array.shape)) or "scalar"
    flat = array.reshape(-1)
    if array.size <= WHOLE:
        return f"[{shape}] {_values(flat)}"
    if flat.dtype.fields is not None or not np.issubdtype(flat.dtype, np.number):
        return f"[{shape}] {flat.dtype}"
    finite = flat[np.isfinite(flat)] if np.issubdtype(flat.dtype, np.floating) else flat
    extremes = f"{finite.min():.6g} .. {finite.max():.6g}" if finite.size else "nothing finite"
    odd = flat.size - finite.size
    return f"[{shape}] {_values(flat[:HEAD])[:-1]}, ...], range {extremes}" + (f", {odd} not finite" if odd else "")


def _values(flat: np.ndarray) -> str:
    return np.array2string(flat, precision=6, separator=", ", max_line_width=1_000)
