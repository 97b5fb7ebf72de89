"""A bench for one head: its tensors and buffers under small dimensions, its steps, and central differences.

Used by the oracles of the heads. Everything lives under the names that a run uses, so that a case runs the very list of
steps that training runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from foxhunt_cli.buffers.row import Buffer
from foxhunt_cli.buffers.table import shape
from foxhunt_cli.isv.table import ISV_SIZE, number, slots
from foxhunt_cli.kernels.registry import kernel
from foxhunt_cli.nets.params import Parameter, initial_values, lay_out
from foxhunt_cli.oracles.base import Skipped, Trial
from foxhunt_cli.pipeline.build import build, kernels_of
from foxhunt_cli.pipeline.stage import Step

# Central differences: in double the step is small and the bound is the specification's; in float32 the loss carries
# noise of 1e-7, so the step is large and the bounds are those of the seeds (logits and W2 5e-3, W1 1e-2).
DOUBLE_STEP, DOUBLE_TOLERANCE = 1e-5, 1e-5
FLOAT_STEP = 2e-3


def isv_values(**changed: float) -> np.ndarray:
    """Seeds of all slots, some changed by lower-case name."""
    values = np.zeros(ISV_SIZE, np.float32)
    for slot in slots():
        values[slot.number] = slot.seed
    for name, value in changed.items():
        values[number(name.upper())] = value
    return values


class HeadRig:
    """Arrays by name on the trial's device: parameters with gradients (and targets), buffers, and the case's inputs."""

    def __init__(
        self,
        trial: Trial,
        parameters: Sequence[Parameter],
        buffers: Sequence[Buffer],
        dims: Mapping[str, int | float],
        inputs: Mapping[str, np.ndarray],
        *,
        seed: int = 1,
        gain: float = 1.0,
    ) -> None:
        self.device, self.dims = trial.device, dict(dims)
        self.double = trial.device.double
        self.arrays: dict[str, Any] = {}
        layout = lay_out(parameters, self.dims)
        start = initial_values(layout, seed)
        noise = np.random.default_rng(seed)
        for index, tensor in enumerate(parameters):
            value = layout.view(start, tensor.name).astype(np.float64) * gain + 0.05 * noise.standard_normal(
                layout.offsets[tensor.name][1]
            )
            self.set(tensor.name, value)
            self.set(f"grad_{tensor.name}", np.zeros_like(value))
            if tensor.target:
                self.set(
                    f"target_{tensor.name}",
                    value + 0.05 * np.random.default_rng(100 + index).standard_normal(value.shape),
                )
        for row in buffers:
            self.arrays[row.name] = self.device.zeros(shape(row, self.dims), row.dtype)
        for name, value in inputs.items():
            self.set(name, value)

    def set(self, name: str, value: np.ndarray) -> None:
        """Overwrite or create an array; floats take the device's width, other types stay."""
        value = np.asarray(value)
        if value.dtype.kind == "f":
            value = value.astype(np.float64 if self.double else np.float32)
        held = self.arrays.get(name)
        if held is not None and held.shape == value.shape:
            self.device.write(held, value)
        else:
            self.arrays[name] = self.device.upload(value)

    def get(self, name: str) -> np.ndarray:
        """Host copy, floats in float64."""
        value = self.device.download(self.arrays[name])
        return value.astype(np.float64) if value.dtype.kind == "f" else value

    def plan(self, steps: Sequence[Step]) -> Any:
        """The steps, compiled and recorded."""
        self.device.compile([kernel(name) for name in kernels_of(steps)])
        return self.device.plan(build(steps, self.arrays, self.dims, self.device), use_graph=False)

    def run(self, steps: Sequence[Step]) -> None:
        """Run the steps once."""
        self.plan(steps).run_eager()
        self.device.synchronize()

    def slot(self, name: str) -> float:
        """Value of an ISV slot by upper-case name."""
        return float(self.get("isv")[number(name)])


def check_gradient(
    trial: Trial,
    rig: HeadRig,
    steps: Sequence[Step],
    loss: Callable[[], float],
    pairs: Mapping[str, tuple[str, float]],
    *,
    float_tolerance: float,
    largest: int = 6,
) -> None:
    """Central differences of ``loss`` against gradients at their largest elements, relative to the largest.

    pairs: tensor -> (gradient array, factor the gradient carries beyond d loss). Gradients are read after one run.
    """
    if trial.in_tf32:
        raise Skipped("central differences of TF32 products are noise")
    plan = rig.plan(steps)

    def evaluate() -> float:
        plan.run_eager()
        rig.device.synchronize()
        return loss()

    for name in ("grad_h", "grad_pi_all"):  # the steps add to these
        if name in rig.arrays:
            rig.set(name, np.zeros_like(rig.get(name)))
    evaluate()
    gradients = {name: rig.get(grad) for name, (grad, _) in pairs.items()}
    step = DOUBLE_STEP if rig.double else FLOAT_STEP
    tolerance = DOUBLE_TOLERANCE if rig.double else float_tolerance
    for name, (_, factor) in pairs.items():
        value, gradient = rig.get(name), gradients[name]
        size = value.size
        order = np.argsort(-np.abs(gradient.reshape(-1)[:size]))[:largest]
        scale = np.abs(gradient).max()
        numeric = []
        for index in order:
            side = []
            for sign in (1.0, -1.0):
                moved = value.copy()
                moved.reshape(-1)[index] += sign * step
                rig.set(name, moved)
                side.append(evaluate())
            numeric.append(factor * (side[0] - side[1]) / (2.0 * step))
        rig.set(name, value)
        trial.true(f"{name}: gradient is not zero", scale > 0.0, scale)
        trial.close(
            f"d loss / d {name}, relative", np.array(numeric) / scale, gradient.reshape(-1)[order] / scale, tolerance
        )
