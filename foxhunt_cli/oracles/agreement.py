"""How far two devices are apart, kernel by kernel, on the inputs of the oracles.

A ``Mirror`` stands in for a device. Before each launch it copies the kernel's inputs to a second device, launches there
too, and compares everything the kernel wrote. Both see the same inputs at every launch, so differences do not build up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import numpy as np

from foxhunt_cli.device.base import Device, Launch, Operation


@dataclass
class Agreement:
    """Largest differences of one kernel's outputs over all launches."""

    kernel: str
    launches: int = 0
    values: int = 0
    bits_differ: int = 0
    max_abs: float = 0.0
    max_relative: float = 0.0  # largest difference over the largest magnitude of that output
    integers_differ: int = 0


COMPARED_LAUNCHES = 60  # of one kernel; later ones run on the device alone


class Mirror:
    """A device that repeats launches on ``other`` and keeps the score in ``agreements``."""

    def __init__(self, device: Device, other: Device) -> None:
        self._device, self._other = device, other
        self.agreements: dict[str, Agreement] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def compile(self, contracts: Sequence[Any], progress: Any = None, conditional: Sequence[Any] = ()) -> None:
        """Compile for both."""
        self._device.compile(contracts, progress, conditional)
        self._other.compile(contracts, progress, conditional)

    def plan(self, operations: Sequence[Operation], *, use_graph: bool = True) -> _MirrorPlan:
        """A plan that runs one operation at a time, compared."""
        return _MirrorPlan(self, operations)

    def launch_both(self, launch: Launch) -> None:
        """Copy the inputs, launch here and there, compare what was written."""
        score = self.agreements.get(launch.contract.name, Agreement(launch.contract.name))
        if score.launches >= COMPARED_LAUNCHES:
            self._device.plan([launch], use_graph=False).run_eager()
            return
        copies = tuple(
            self._other.upload(np.array(self._device.download(a))) if p.pointer else a
            for p, a in zip(launch.contract.params, launch.args, strict=True)
        )
        self._device.plan([launch], use_graph=False).run_eager()
        self._device.synchronize()
        self._other.plan([replace(launch, args=copies)], use_graph=False).run_eager()
        self._other.synchronize()
        score.launches += 1
        self.agreements[score.kernel] = score  # not before: the other device may lack the kernel's instructions
        for param, here, there in zip(launch.contract.params, launch.args, copies, strict=True):
            if param.pointer and not param.const:
                _compare(score, self._device.download(here), self._other.download(there))


class _MirrorPlan:
    def __init__(self, mirror: Mirror, operations: Sequence[Operation]) -> None:
        self._mirror, self._operations = mirror, tuple(operations)
        self._single = [
            None if _compared(op) else mirror._device.plan([op], use_graph=False) for op in self._operations
        ]

    def run(self) -> None:
        for operation, plan in zip(self._operations, self._single, strict=True):
            if _compared(operation):
                self._mirror.launch_both(operation)
            elif plan is not None:
                plan.run_eager()

    run_eager = run


def _compared(operation: Operation) -> TypeGuard[Launch]:
    """A launch under a condition may do nothing: it runs here alone."""
    return isinstance(operation, Launch) and operation.when is None


def _compare(score: Agreement, here: np.ndarray, there: np.ndarray) -> None:
    score.values += here.size
    if not np.issubdtype(here.dtype, np.floating):
        score.integers_differ += int(np.count_nonzero(here != there))
        return
    with np.errstate(invalid="ignore"):  # NaN on both sides is agreement, and so is one infinity
        a, b = here.astype(np.float64), there.astype(np.float64)
        apart = np.abs(a - b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    score.bits_differ += int(np.count_nonzero(~same))
    if not same.all():
        distance = np.where(same, 0.0, apart)
        finite = a[np.isfinite(a)]
        scale = float(np.abs(finite).max()) if finite.size else 1.0
        score.max_abs = max(score.max_abs, float(distance.max()))
        score.max_relative = max(score.max_relative, float(distance.max()) / max(scale, 1e-30))
