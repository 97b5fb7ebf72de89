"""Oracles of a Mamba-2 block: each of its kernels against float64 formulas and their adjoints."""

from __future__ import annotations

import numpy as np

from foxhunt_cli.oracles import formulas
from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.formulas import ELEMENT, HEAD_DIM, HEADS, PROJ, STATE, SUM, TAPS, XBC, H, random32

W, B = 9, 3  # enough for the convolution to leave its start and for the states to forget


def _block(seed: int) -> dict[str, np.ndarray]:
    """Inputs of the kernels of one Mamba-2 block, and outputs of the right size."""
    rng = np.random.default_rng(seed)
    dt = rng.uniform(0.05, 1.5, (W, B, HEADS)).astype(np.float32)
    return {
        "proj": random32(rng, W, B, PROJ),
        "conv_w": 0.5 * random32(rng, TAPS, XBC),
        "conv_b": random32(rng, XBC),
        "dt_bias": random32(rng, HEADS),
        "a_log": random32(rng, HEADS),
        "xbc": random32(rng, W, B, XBC),
        "dt": dt,
        "decay": np.exp(-rng.uniform(0.3, 3.0, HEADS) * dt).astype(np.float32),
        "s": random32(rng, W, B, H),
        "skip": random32(rng, HEADS),
        "norm_w": random32(rng, H),
        "norm": np.zeros((W, B, H), np.float32),
        "rstd": np.zeros((W, B), np.float32),
        "grad": random32(rng, W, B, H),
        "grad_y": random32(rng, W, B, H),
        "grad_x": random32(rng, W, B, H),
        "grad_bc": random32(rng, W, B, 2, HEADS, STATE),
        "grad_proj": np.zeros((W, B, PROJ), np.float32),
        "grad_head": np.zeros((B, 2, HEADS), np.float32),
        "grad_conv": np.zeros((B, TAPS + 1, XBC), np.float32),
    }


def _doubles(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: values.astype(np.float64) for name, values in arrays.items()}


def _adjoint_states(a: dict[str, np.ndarray]) -> np.ndarray:
    """G = dL/dS of every state, from ds, C and the decays: the recurrence of states() backward in time."""
    grad = np.zeros((W, B, HEADS, HEAD_DIM, STATE))
    flow = np.zeros(grad.shape[1:])
    for w in range(W - 1, -1, -1):
        ds = a["grad_y"][w].reshape(B, HEADS, HEAD_DIM)
        flow = flow + ds[..., None] * a["xbc"][w, :, None, None, H + STATE :]
        grad[w] = flow
        flow = a["decay"][w, ..., None, None] * flow
    return grad


@oracle("encoder")
def mamba2_conv_forward_is_causal_and_right(trial: Trial) -> None:
    a = _block(3)
    got = trial.run("mamba2_conv_forward", a, W=W, B=B)["xbc"]
    d = _doubles(a)
    trial.close("SiLU(conv)", formulas.silu(formulas.convolve(d["proj"], d["conv_w"], d["conv_b"])), got, 5 * ELEMENT)
    a["proj"][3] += 1.0
    later = trial.run("mamba2_conv_forward", a, W=W, B=B)["xbc"]
    trial.equal("snapshots before a change are untouched", got[:3], later[:3])
    trial.true("four snapshots see it", all(np.any(got[w] != later[w]) for w in range(3, 3 + TAPS)))
    trial.equal("the fifth does not", got[3 + TAPS :], later[3 + TAPS :])


@oracle("encoder")
def mamba2_dt_forward_gives_steps_and_decays(trial: Trial) -> None:
    a = _block(4)
    a["proj"][0, 0, H + XBC :] = (-100, -30, -5, 0, 5, 30, 88, 100)
    got = trial.run("mamba2_dt_forward", a, W=W, B=B)
    d = _doubles(a)
    dt = np.logaddexp(0.0, d["proj"][..., H + XBC :] + d["dt_bias"])
    trial.close("dt / max(dt, 1)", dt / np.maximum(dt, 1), got["dt"] / np.maximum(dt, 1), ELEMENT)
    trial.close("decay", np.exp(-np.exp(d["a_log"]) * dt), got["decay"], SUM)


@oracle("encoder")
def mamba2_scan_forward_matches_recurrence(trial: Trial) -> None:
    a = _block(5)
    d = _doubles(a)
    own = formulas.own_share(d["xbc"], d["dt"]) * d["xbc"][..., :H]
    got = trial.run("mamba2_scan_forward", a, W=W, B=B)["s"]
    trial.close("s + own share", formulas.scan(d["xbc"], d["dt"], d["decay"]), got + own, 2 * SUM)
    a["decay"] = 0 * a["decay"]
    trial.equal("decay 0: nothing of the past", 0.0, trial.run("mamba2_scan_forward", a, W=W, B=B)["s"])


@oracle("encoder")
def mamba2_scan_backward_matches_adjoint(trial: Trial) -> None:
    a = _block(6)
    a["decay"] = np.exp(-np.exp(a["a_log"]) * a["dt"]).astype(np.float32)
    d = _doubles(a)
    state, grad = formulas.states(d["xbc"], d["dt"], d["decay"]), _adjoint_states(d)
    x, ds = (v.reshape(W, B, HEADS, HEAD_DIM) for v in (d["xbc"][..., :H], d["grad_y"]))
    b_map = d["xbc"][..., H : H + STATE]
    bc = trial.run("mamba2_scan_backward_bc", a, W=W, B=B)["grad_bc"]
    grad_b = np.einsum("wbhpn,wbhp,wbh->wbhn", grad, x, d["dt"])
    trial.close("dB, a head", grad_b, bc[:, :, 0], 4 * SUM)
    trial.close("dC, a head", np.einsum("wbhpn,wbhp->wbhn", state, ds), bc[:, :, 1], 4 * SUM)
    dt_x = np.einsum("wbhpn,wbn->wbhp", grad, b_map)
    own = formulas.own_share(d["xbc"], d["dt"]) * d["xbc"][..., :H]
    a["s"] = (formulas.scan(d["xbc"], d["dt"], d["decay"]) - own).astype(np.float32)
    a["grad_x"] = trial.run("mamba2_scan_backward_x", a, W=W, B=B)["grad_x"]
    own_x = np.sum(b_map * d["xbc"][..., H + STATE :], -1, keepdims=True) * d["grad_y"]
    trial.close("d(dt x), own share added", dt_x.reshape(W, B, H), a["grad_x"] + own_x, 4 * SUM)
    before = np.concatenate([0 * state[:1], state[:-1]])
    log_decay = d["decay"] * np.sum(grad * before, (-1, -2))
    rate = np.exp(d["a_log"])
    dt_total = np.sum(dt_x * x, -1) - rate * log_decay
    got = trial.run("mamba2_scan_backward_dt", a, W=W, B=B)
    trial.close("d dt_raw", dt_total * -np.expm1(-d["dt"]), got["grad_proj"][..., H + XBC :], 10 * SUM)
    trial.close("d a_log", np.sum(-rate * d["dt"] * log_decay, 0), got["grad_head"][:, 0], 20 * SUM)
    trial.close("d skip", np.sum(ds * x, (0, -1)), got["grad_head"][:, 1], 4 * SUM)


@oracle("encoder")
def mamba2_norm_forward_and_backward(trial: Trial) -> None:
    a = _block(7)
    d = _doubles(a)
    forward = trial.run("mamba2_norm_forward", a, W=W, B=B)
    through = formulas.own_share(d["xbc"], d["dt"]) + np.repeat(d["skip"], HEAD_DIM)
    full, z = d["s"] + through * d["xbc"][..., :H], d["proj"][..., :H]
    norm = formulas.gated_norm(full, d["proj"], d["norm_w"])
    trial.close("norm", norm, forward["norm"], 10 * ELEMENT)
    u = full * formulas.silu(z)
    r = 1.0 / np.sqrt(np.mean(u * u, -1, keepdims=True) + formulas.NORM_EPS)
    a["rstd"], a["norm"] = r[..., 0].astype(np.float32), norm.astype(np.float32)
    got = trial.run("mamba2_norm_backward", a, W=W, B=B)
    weighted = d["norm_w"] * d["grad"]
    du = r * weighted - u * r**3 * np.mean(u * weighted, -1, keepdims=True)
    trial.close("dy", du * formulas.silu(z), got["grad"], SUM)
    trial.close("dz", du * full * formulas.silu_slope(z), got["grad_proj"][..., :H], SUM)
    trial.close("d norm_w, a token", d["grad"] * u * r, got["norm"], SUM)


@oracle("encoder")
def mamba2_conv_backward_is_the_transpose(trial: Trial) -> None:
    a = _block(8)
    d = _doubles(a)
    step, through = d["dt"].repeat(HEAD_DIM, -1), formulas.own_share(d["xbc"], d["dt"]) + np.repeat(d["skip"], HEAD_DIM)
    after = np.concatenate(
        [step * d["grad_x"] + through * d["grad_y"], *(d["grad_bc"][:, :, k].sum(2) for k in (0, 1))], -1
    )
    grad = after * formulas.silu_slope(formulas.convolve(d["proj"], d["conv_w"], d["conv_b"]))
    inputs = np.concatenate([np.zeros((TAPS - 1, B, XBC)), d["proj"][..., H : H + XBC]])
    padded = np.concatenate([grad, np.zeros((TAPS - 1, B, XBC))])
    got = trial.run("mamba2_conv_backward", a, W=W, B=B)
    want = sum(d["conv_w"][k] * padded[TAPS - 1 - k : TAPS - 1 - k + W] for k in range(TAPS))
    trial.close("d proj", want, got["grad_proj"][..., H : H + XBC], 2 * SUM)
    taps = np.stack([(grad * inputs[k : k + W]).sum(0) for k in range(TAPS)] + [grad.sum(0)], 1)
    trial.close("d taps and bias, a row", taps, got["grad_conv"], 4 * SUM)
