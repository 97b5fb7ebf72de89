"""What kernels are compared with, in float64 numpy: written from the definitions, whole states kept.

Nothing here repeats a short cut of the kernels.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

D, H, HEADS, HEAD_DIM, STATE, TAPS = 56, 128, 8, 16, 16, 4
XBC = H + 2 * STATE
PROJ = H + XBC + HEADS
NORM_EPS = 1e-5
AMPLITUDE = float(np.float32(1.7159))

Arrays = Mapping[str, np.ndarray]

# How far float32 may be from them, absolute, for values of order 1.
ELEMENT = 2e-6  # an element-wise formula: a few roundings, transcendentals to 3 ulp
SUM = 2e-5  # sums and recurrences over 16 to 500 terms


def softmax(x: np.ndarray) -> np.ndarray:
    """Softmax over the last axis."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def silu(x: np.ndarray) -> np.ndarray:
    return x * sigmoid(x)


def silu_slope(x: np.ndarray) -> np.ndarray:
    return sigmoid(x) * (1.0 + x * (1.0 - sigmoid(x)))


def select(p: Arrays, x: np.ndarray) -> np.ndarray:
    """Variable selection."""
    logits = x @ p["w_vsn"] + p["b_vsn"]
    return D * softmax(logits) * x


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


def random32(rng: np.random.Generator, *size: int) -> np.ndarray:
    """Normal numbers as the kernels get them, float32."""
    return rng.standard_normal(size).astype(np.float32)
