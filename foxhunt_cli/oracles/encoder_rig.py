"""The full encoder on a device by itself, for its oracles and tests. No checks, and no formulas (formulas.py)."""

from __future__ import annotations

import numpy as np

from foxhunt_cli.buffers.table import shape
from foxhunt_cli.device.base import Device
from foxhunt_cli.nets import encoder_full
from foxhunt_cli.nets.params import initial_values, lay_out
from foxhunt_cli.oracles.formulas import D, H
from foxhunt_cli.pipeline.build import build
from foxhunt_cli.pipeline.stage import Fusion, chosen


class EncoderRig:
    """The full encoder over ``W`` snapshots of ``B`` rows, of which the last ``T`` + 1 encodings are used.

    Weights are the initial ones plus noise of ``noise``, so that biases and the like matter. (From 0.1 on the
    recurrence amplifies roundings up to a hundredfold, in any float32 implementation.) The target's weights start as a
    copy. fusion: which fused kernels stand for the steps they do. like: the rows that the lists are made for, by
    default none.
    """

    def __init__(
        self,
        device: Device,
        W: int,
        T: int,
        B: int,
        seed: int = 0,
        noise: float = 0.03,
        fusion: Fusion = "none",
        like: int = 0,
    ) -> None:
        self.device, self.W, self.T, self.B = device, W, T, B
        self.dims = {"W": W, "T": T, "B": B}
        self.layout = lay_out(encoder_full.PARAMETERS, self.dims)
        self.rng = np.random.default_rng(seed)
        self.params = initial_values(self.layout, seed).astype(np.float64)
        self.params += noise * self.rng.standard_normal(self.params.size)
        self.arrays = {b.name: device.zeros(shape(b, self.dims), np.float32) for b in encoder_full.BUFFERS}
        for name, size in (("x", (W, B, D)), ("h", (T + 1, B, H)), ("grad_h", (T + 1, B, H)), ("ones", W * B)):
            self.arrays[name] = device.zeros(size, np.float32)
        self._flat = {kind: device.zeros(self.layout.size, np.float32) for kind in ("", "target_", "grad_")}
        for kind, flat in self._flat.items():
            self.arrays.update({kind + name: self.layout.view(flat, name) for name in self.layout.offsets})
        gaps = encoder_full.GAP_SCALE * np.log1p(self.rng.exponential(500.0, (W, B)))
        gaps[0] = 0.0
        self.put("x", self.rng.standard_normal((W, B, D)))
        self.put("gap", gaps)
        self.put("grad_h", self.rng.standard_normal((T + 1, B, H)))
        self.put("ones", np.ones(W * B))
        self.put_params(self.params)
        self.put_params(self.params, "target_")
        self._plans = {
            name: device.plan(build(chosen(steps, fusion), self.arrays, self.dims, device))
            for name, steps in (
                ("forward", encoder_full.forward(W, "", like)),
                ("target", encoder_full.forward(W, "target_", like)),
                ("backward", encoder_full.backward(W, like)),
            )
        }

    def put(self, name: str, values: np.ndarray) -> None:
        """Fill a buffer; values are rounded to the device's precision."""
        self._write(self.arrays[name], values)

    def put_params(self, flat: np.ndarray, kind: str = "") -> None:
        """All tensors at once, in the layout's order."""
        self._write(self._flat[kind], flat)

    def _write(self, array: object, values: np.ndarray) -> None:
        self.device.write(array, np.ascontiguousarray(values, np.dtype(str(array.dtype))))

    def run(self, *names: str) -> None:
        """Run "forward", "target" or "backward", in the given order."""
        for name in names:
            self._plans[name].run()
        self.device.synchronize()

    def get(self, name: str) -> np.ndarray:
        """A copy of a buffer, tensor or gradient, float64."""
        return self.device.download(self.arrays[name]).astype(np.float64)

    def weights(self) -> dict[str, np.ndarray]:
        """Every tensor as the device holds it, float64."""
        return {name: self.get(name) for name in self.layout.offsets}
