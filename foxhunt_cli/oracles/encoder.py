"""Oracles of the full encoder: selection, cell and the whole against float64 formulas, causality, gradients, start."""

from __future__ import annotations

import numpy as np

from foxhunt_cli.device.cpu import CpuDevice
from foxhunt_cli.nets import encoder_full
from foxhunt_cli.nets.params import initial_values, lay_out
from foxhunt_cli.oracles import formulas
from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.encoder_rig import EncoderRig
from foxhunt_cli.oracles.formulas import ELEMENT, PROJ, SUM, TAPS, XBC, D, H, random32

# Tolerances beside those of formulas.py.
ULPS = 4 * 2.0**-23  # relative: three units in the last place, and the rounding of the comparison
CENTRAL = 1e-5  # relative: central differences in double, step 1e-4
WHOLE, WHOLE_TF32 = 5e-5, 1e-2  # the whole encoder: products and their errors pass through 20 snapshots

W, B = 9, 3  # enough for the convolution to leave its start and for the states to forget


@oracle("encoder")
def lanes_functions_hold_their_accuracy(trial: Trial) -> None:
    """tanh through the CfC's backbone, SiLU (and with it exp and sigmoid) through the convolution."""
    size = np.concatenate([np.geomspace(1e-7, 30.0, B * H // 2 - 2), (60.0, 1e30)])
    x = np.concatenate([-size, size]).astype(np.float32).reshape(1, B, H)
    zero = np.zeros((B, H), np.float32)
    v = (np.float32(1.5) * x).astype(np.float32)
    arrays = {"pre": v, "recurrent": zero, "bias": zero[0], "u": 0 * x}
    u = trial.run("cfc_backbone_forward", arrays, B=B, w=0, slot=0)["u"]
    tanh = formulas.AMPLITUDE * np.tanh(2 / 3 * v.astype(np.float64))
    trial.close("u / exact", np.ones_like(tanh), u / tanh, 2 * ULPS)
    proj = np.zeros((1, 1, PROJ), np.float32)
    proj[0, 0, H : H + XBC] = np.concatenate([-np.geomspace(87, 1e-7, XBC // 2), np.geomspace(1e-7, 1e30, XBC // 2)])
    taps = np.zeros((TAPS, XBC), np.float32)
    taps[-1] = 1.0
    args = {"proj": proj, "conv_w": taps, "conv_b": 0 * taps[0], "xbc": np.zeros((1, 1, XBC), np.float32)}
    got = trial.run("mamba2_conv_forward", args, W=1, B=1)["xbc"]
    value = proj[..., H : H + XBC].astype(np.float64)
    exact = value / (1.0 + np.exp(-value))
    trial.close("SiLU / exact", np.ones_like(exact), got / exact, 2 * ULPS)
    proj[0, 0, H : H + 4] = (-np.inf, np.inf, np.nan, -3e38)
    got = trial.run("mamba2_conv_forward", args, W=1, B=1)["xbc"][0, 0, :4]
    trial.true("infinity stays, NaN stays", got[1] == np.inf and np.isnan(got[2]), str(got))


@oracle("encoder")
def vsn_forward_weighs_inputs(trial: Trial) -> None:
    rng = np.random.default_rng(1)
    x, logits, bias = random32(rng, W, B, D), 3.0 * random32(rng, W, B, D), random32(rng, D)
    got = trial.run("vsn_forward", {"x": x, "bias": bias, "gate": logits, "out": np.zeros_like(x)}, W=W, B=B)
    power = np.exp(logits.astype(np.float64) + bias)
    gate = power / power.sum(-1, keepdims=True)
    trial.close("gate", gate, got["gate"], ELEMENT)
    trial.close("out", D * gate * x, got["out"], 56 * ELEMENT)
    flat = trial.run("vsn_forward", {"x": x, "bias": 0 * bias, "gate": 0 * logits, "out": np.zeros_like(x)}, W=W, B=B)
    trial.close("a uniform gate passes x", x, flat["out"], ELEMENT)
    x[0, 0, 5] = np.nan
    logits[0, 0, 5] = np.nan
    arrays = {"x": x, "bias": bias, "gate": logits, "out": np.zeros_like(x)}
    poisoned = trial.run("vsn_forward", arrays, W=W, B=B)["out"]
    trial.true("a NaN shows in its token", np.isnan(poisoned[0, 0]).all())
    trial.true("and in no other", np.isfinite(poisoned.reshape(W * B, D)[1:]).all())


@oracle("encoder")
def vsn_backward_is_the_softmax_jacobian(trial: Trial) -> None:
    rng = np.random.default_rng(2)
    x, grad = random32(rng, W, B, D), random32(rng, W, B, D)
    gate = rng.dirichlet(np.ones(D), (W, B)).astype(np.float32)
    got = trial.run("vsn_backward", {"x": x, "grad_out": grad, "gate": gate}, W=W, B=B)["gate"]
    g, upstream = gate.astype(np.float64), D * x.astype(np.float64) * grad
    jacobian = np.eye(D) * g[..., None] - g[..., :, None] * g[..., None, :]
    trial.close("dlogits", np.einsum("wbij,wbj->wbi", jacobian, upstream), got, SUM)


def _cell(rng: np.random.Generator) -> dict[str, np.ndarray]:
    T = 4
    return {
        "bias": random32(rng, 4 * H),
        "gap": rng.uniform(0.0, 2.0, (W, B)).astype(np.float32),
        "gates": random32(rng, W, B, 4 * H),
        "states": random32(rng, W + 1, B, H),
        "h": np.zeros((T + 1, B, H), np.float32),
    }


@oracle("encoder")
def cfc_cell_forward_and_backward(trial: Trial) -> None:
    rng, w, T = np.random.default_rng(9), 6, 4
    pre, recurrent, bias = 3 * random32(rng, W, B, H), random32(rng, B, H), random32(rng, H)
    inputs = {"pre": pre, "recurrent": recurrent, "bias": bias, "u": 0 * pre}
    u = trial.run("cfc_backbone_forward", inputs, B=B, w=w, slot=w)["u"]
    v = pre[w].astype(np.float64) + recurrent + bias
    trial.close("u", formulas.AMPLITUDE * np.tanh(2 / 3 * v), u[w], 2 * ELEMENT)
    a = _cell(rng)
    got = trial.run("cfc_gates_forward", a, W=W, T=T, B=B, w=w, slot=w)
    raw = a["gates"][w].astype(np.float64) + a["bias"]
    f, g = np.tanh(raw[:, :H]), np.tanh(raw[:, H : 2 * H])
    gap = a["gap"][w].astype(np.float64)[:, None]
    blend = formulas.sigmoid(-raw[:, 2 * H : 3 * H] * gap + raw[:, 3 * H :])
    h = f * blend + g * (1 - blend)
    trial.close("h", h, got["states"][w + 1], 2 * ELEMENT)
    trial.equal("the last T + 1 are encodings", got["states"][w + 1], got["h"][w - (W - 1 - T)])
    trial.equal("other states are untouched", a["states"][: w + 1], got["states"][: w + 1])
    grad_h, carry = random32(rng, T + 1, B, H), random32(rng, B, H)
    back = {"grad_h": grad_h, "carry": carry, "gap": a["gap"], "gates": got["gates"]}
    dg = trial.run("cfc_gates_backward", back, W=W, T=T, B=B, w=w)["gates"][w]
    d = carry.astype(np.float64) + grad_h[w - (W - 1 - T)]
    d_offset = d * (f - g) * blend * (1 - blend)
    want = [d * blend * (1 - f * f), d * (1 - blend) * (1 - g * g), -gap * d_offset, d_offset]
    trial.close("gradient of the gate product", np.concatenate(want, -1), dg, SUM)
    grad_u = random32(rng, W, B, H)
    got_v = trial.run("cfc_backbone_backward", {"u": u, "grad": grad_u}, B=B, w=w)["grad"]
    slope = formulas.AMPLITUDE * 2 / 3 * (1 - np.tanh(2 / 3 * v) ** 2)
    trial.close("gradient before tanh", grad_u[w] * slope, got_v[w], SUM)


@oracle("encoder")
def cfc_zero_and_large_gaps(trial: Trial) -> None:
    rng, T = np.random.default_rng(10), 4
    a = _cell(rng)
    raw = a["gates"][0].astype(np.float64) + a["bias"]
    f, g, rate, offset = np.split(raw, 4, -1)
    f, g = np.tanh(f), np.tanh(g)
    a["gap"][0] = 0.0
    still = trial.run("cfc_gates_forward", a, W=W, T=T, B=B, w=0, slot=0)["states"]
    blend = formulas.sigmoid(offset)
    trial.close("gap 0: the offset alone blends", f * blend + g * (1 - blend), still[1], 2 * ELEMENT)
    trial.equal("the state before the first snapshot is zero", 0.0, still[0])
    a["gap"][0] = 1e6
    far = trial.run("cfc_gates_forward", a, W=W, T=T, B=B, w=0, slot=0)["states"][1]
    clear = np.abs(rate) > 1e-3
    trial.close("gap large: the rate's sign decides", np.where(rate > 0, g, f)[clear], far[clear], 2 * ELEMENT)
    a["gap"][0] = np.nan
    poisoned = trial.run("cfc_gates_forward", a, W=W, T=T, B=B, w=0, slot=0)["states"][1]
    trial.true("a NaN gap shows", np.isnan(poisoned).all())


@oracle("encoder")
def encoder_matches_float64(trial: Trial) -> None:
    rig = EncoderRig(trial.device, W=20, T=5, B=4, seed=11)
    rig.run("forward")
    trial.close(
        "h",
        formulas.encode(rig.weights(), rig.get("x"), rig.get("gap"), 5),
        rig.get("h"),
        trial.bound(WHOLE, WHOLE_TF32),
    )


@oracle("encoder")
def encoder_is_causal(trial: Trial) -> None:
    rig = EncoderRig(trial.device, W=12, T=11, B=3, seed=12)
    rig.run("forward")
    before, x = rig.get("h"), rig.get("x")
    x[7] += 0.5
    rig.put("x", x)
    rig.run("forward")
    after = rig.get("h")
    trial.equal("h before the changed snapshot", before[:7], after[:7])
    trial.true("h from it on changes", all(np.any(before[w] != after[w]) for w in range(7, 12)))
    x[7, 1] = np.nan
    rig.put("x", x)
    rig.run("forward")
    poisoned = rig.get("h")
    trial.true("a NaN reaches every later h of its row", np.isnan(poisoned[7:, 1]).all())
    trial.equal("and no other row", after[:, [0, 2]], poisoned[:, [0, 2]])


@oracle("encoder")
def encoder_central_differences(trial: Trial) -> None:
    """In double on the CPU device, whatever the trial's device: float32 would drown the differences."""
    device = CpuDevice(double=True, sanitize=getattr(trial.device, "sanitize", False))
    rig = EncoderRig(device, W=7, T=4, B=2, seed=13)
    rig.run("forward", "backward")
    direction = rig.get("grad_h")
    grads = {name: rig.get(f"grad_{name}") for name in rig.layout.offsets}

    def loss(flat: np.ndarray) -> float:
        rig.put_params(flat)
        rig.run("forward")
        return float(np.sum(rig.get("h")[:-1] * direction[:-1]))

    step = 1e-4
    for name, grad in grads.items():
        start, _ = rig.layout.offsets[name]
        largest = np.argsort(-np.abs(grad).reshape(-1))[:3]
        numeric = []
        for place in start + largest:
            moved = [rig.params.copy() for _ in range(4)]
            for flat, k in zip(moved, (1, -1, 2, -2), strict=True):
                flat[place] += k * step
            a, b, c, d = (loss(flat) for flat in moved)
            numeric.append((8 * (a - b) - (c - d)) / (12 * step))  # fourth order: the error of the formula is 1e-12
        exact = grad.reshape(-1)[largest]
        trial.close(f"{name}: numeric / exact", np.ones(3), np.array(numeric) / exact, CENTRAL)


@oracle("encoder")
def encoder_initial_values(trial: Trial) -> None:
    layout = lay_out(encoder_full.PARAMETERS, {})
    flat = initial_values(layout, 0)
    size = {name: layout.view(flat, name) for name in layout.offsets}
    for name, fan in (("w_vsn", D + D), ("w_m1_in", D + PROJ), ("w_cfc_gates", H + H)):
        limit = (6 / fan) ** 0.5
        trial.close(f"{name}: largest, Xavier", limit, np.abs(size[name]).max(), 0.02 * limit)
    zero = [n for n in size if n.startswith("b_") and not n.endswith("_dt")]
    trial.true("biases are 0", all(not size[n].any() for n in zero), ", ".join(zero))
    for tag in ("m1", "m2"):
        trial.equal(f"{tag}: skip is 1", 1.0, size[f"skip_{tag}"])
        trial.equal(f"{tag}: norm weights are 1", 1.0, size[f"w_{tag}_norm"])
        memory = 1.0 / (np.exp(size[f"a_log_{tag}"]) * np.log1p(np.exp(size[f"b_{tag}_dt"])))
        within = (memory > 2.8).all() and (memory < 21.6).all()
        trial.true(f"{tag}: memories of 2.9 to 21.5 snapshots", within, str(memory.round(1)))
    rig = EncoderRig(trial.device, W=40, T=8, B=4, seed=0, noise=0.0)
    rig.run("forward")
    spread = rig.get("h").std()
    trial.true("h spreads between 0.1 and 0.9 at the start", 0.1 < spread < 0.9, f"{spread:.3f}")
