"""What the encoder's oracles and tests share: the encoder on a device by itself, and its formulas in float64 numpy.

The formulas are written from the definitions, with whole states kept, so that nothing here repeats a short cut of
the kernels.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from foxhunt_cli.buffers.table import shape
from foxhunt_cli.device.base import Device
from foxhunt_cli.nets import encoder_full
from foxhunt_cli.nets.params import initial_values, lay_out
from foxhunt_cli.pipeline.build import build
from foxhunt_cli.pipeline.stage import Fusion, chosen

D, H, HEADS, HEAD_DIM, STATE, TAPS = 56, 128, 8, 16, 16, 4
XBC = H + 2 * STATE
PROJ = H + XBC + HEADS
NORM_EPS = 1e-5
AMPLITUDE = float(np.float32(1.7159))

Arrays = Mapping[str, np.ndarray]


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


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def silu(x: np.ndarray) -> np.ndarray:
    return x * sigmoid(x)


def silu_slope(x: np.ndarray) -> np.ndarray:
    return sigmoid(x) * (1.0 + x * (1.0 - sigmoid(x)))


def select(p: Arrays, x: np.ndarray) -> np.ndarray:
    """Variable selection."""
    logits = x @ p["w_vsn"] + p["b_vsn"]
    gate = np.exp(logits - logits.max(-1, keepdims=True))
    return D * gate / gate.sum(-1, keepdims=True) * x


def convolve(proj: np.ndarray, taps: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Causal depthwise convolution of the columns x, B, C, before SiLU."""
    inputs = proj[..., H : H + XBC]
    padded = np.concatenate([np.zeros((TAPS - 1, *inputs.shape[1:])), inputs])
    return bias + sum(taps[k] * padded[k : k + len(inputs)] for k in range(TAPS))


def states(xbc: np.ndarray, dt: np.ndarray, decay: np.ndarray) -> np.ndarray:
    """Every state S [W, B, head, channel, state] of the recurrence."""
    W, B = dt.shape[:2]
    x = xbc[..., :H].reshape(W, B, HEADS, HEAD_DIM)
    out = np.zeros((W, B, HEADS, HEAD_DIM, STATE))
    state = np.zeros(out.shape[1:])
    for w in range(W):
        inflow = (dt[w, ..., None] * x[w])[..., None] * xbc[w, :, None, None, H : H + STATE]
        state = decay[w, ..., None, None] * state + inflow
        out[w] = state
    return out


def scan(xbc: np.ndarray, dt: np.ndarray, decay: np.ndarray) -> np.ndarray:
    """S C, [W, B, 128]."""
    return np.einsum("wbhpn,wbn->wbhp", states(xbc, dt, decay), xbc[..., H + STATE :]).reshape(*dt.shape[:2], H)


def own_share(xbc: np.ndarray, dt: np.ndarray) -> np.ndarray:
    """dt (B C), [W, B, 128]: the factor of x in its own snapshot's S C."""
    return np.sum(xbc[..., H : H + STATE] * xbc[..., H + STATE :], -1, keepdims=True) * np.repeat(dt, HEAD_DIM, -1)


def gated_norm(y: np.ndarray, proj: np.ndarray, norm_w: np.ndarray) -> np.ndarray:
    """Gate and RMS normalisation."""
    u = y * silu(proj[..., :H])
    return u / np.sqrt(np.mean(u * u, -1, keepdims=True) + NORM_EPS) * norm_w


def mamba(p: Arrays, tag: str, x: np.ndarray) -> np.ndarray:
    """One Mamba-2 block."""
    proj = x @ p[f"w_{tag}_in"]
    xbc = silu(convolve(proj, p[f"w_{tag}_conv"], p[f"b_{tag}_conv"]))
    dt = np.logaddexp(0.0, proj[..., H + XBC :] + p[f"b_{tag}_dt"])
    y = scan(xbc, dt, np.exp(-np.exp(p[f"a_log_{tag}"]) * dt)) + np.repeat(p[f"skip_{tag}"], HEAD_DIM) * xbc[..., :H]
    return gated_norm(y, proj, p[f"w_{tag}_norm"]) @ p[f"w_{tag}_out"]


def cfc(p: Arrays, x: np.ndarray, gap: np.ndarray) -> np.ndarray:
    """The CfC cell: h after every snapshot, [W, B, 128]."""
    h, out = np.zeros(x.shape[1:]), []
    for w in range(len(x)):
        v = np.concatenate([x[w], h], -1) @ p["w_cfc_backbone"] + p["b_cfc_backbone"]
        u = AMPLITUDE * np.tanh(2.0 / 3.0 * v)
        f, g, rate, offset = np.split(u @ p["w_cfc_gates"] + p["b_cfc_gates"], 4, -1)
        blend = sigmoid(-rate * gap[w][:, None] + offset)
        h = np.tanh(f) * blend + np.tanh(g) * (1.0 - blend)
        out.append(h)
    return np.stack(out)


def encode(p: Arrays, x: np.ndarray, gap: np.ndarray, T: int) -> np.ndarray:
    """h [T+1, B, 128]."""
    first = mamba(p, "m1", select(p, x))
    return cfc(p, first + mamba(p, "m2", first), gap)[-(T + 1) :]
