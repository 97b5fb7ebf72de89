"""Oracles of the CfC cell's whole sequence in one kernel: against its steps, and both against float64.

The fused kernels need a Hopper GPU; elsewhere the steps alone meet the reference.
"""

from __future__ import annotations

import numpy as np

from foxhunt_cli.nets import cfc
from foxhunt_cli.nets.encoder_parts import HIDDEN, buffer
from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.formulas import AMPLITUDE, H, sigmoid
from foxhunt_cli.oracles.head_rig import HeadRig
from foxhunt_cli.pipeline.stage import Fusion, chosen

# Relative L2 of a buffer. float32: sums of 128 and 512 products through up to 48 snapshots. TF32, and the halves of the
# fused kernels, keep 10 bits of an operand, 5e-4 a product, averaged over a sum and carried along.
FLOAT32, TF32 = 2e-5, 2e-3
POISON = 9.0  # in every output before a run: what nobody wrote is seen

# (W, T, B): one row; more than a tile with an odd end; the default's and preset seed's windows; one snapshot of
# gradient; tiles of eight rows, one a block, two and four, each with an odd end.
SIZES = ((36, 4, 1), (9, 8, 7), (48, 16, 16), (33, 1, 33), (2, 1, 24), (6, 3, 531), (5, 2, 1061), (3, 1, 4093))

_ENCODE = cfc.Cell("encode_pre", "encode_u", "encode_gates", "encode_states", "encode_h", keep=False)
_BUFFERS = (
    *cfc.BUFFERS,
    *(buffer(name, f"W, B, {HIDDEN}", "input and its gradient") for name in ("m2_out", "encoder_grad_out")),
    *(buffer(name, f"(T+1), B, {HIDDEN}", "encodings") for name in ("h", "encode_h")),
    buffer("encode_pre", f"W, B, {HIDDEN}", "scratch of a forward-only pass"),
    buffer("encode_u", f"B, {HIDDEN}", "scratch of a forward-only pass"),
    buffer("encode_gates", f"B, 4*{HIDDEN}", "scratch of a forward-only pass"),
    buffer("encode_states", f"(W+1), B, {HIDDEN}", "scratch of a forward-only pass"),
)
_KEPT = ("cfc_u", "cfc_states", "h")
_GRADIENTS = ("cfc_pre", "cfc_gates", "encoder_grad_out", *(f"grad_{p.name}" for p in cfc.PARAMETERS))


class Sequence(HeadRig):
    """The cell over a window, with inputs that do not depend on how many rows there are beside a row.

    like: the rows that the list is made for, by default few.
    """

    def __init__(self, trial: Trial, W: int, T: int, B: int, like: int = 0) -> None:
        token = np.random.default_rng(W).standard_normal((B, 2 * W + T + 1, H)).swapaxes(0, 1)
        gap = 0.2 * np.log1p(np.random.default_rng(T).exponential(500.0, (B, W)).T)
        gap[0] = 0.0
        inputs = {"m2_out": token[:W], "grad_h": token[W : W + T + 1], "gap": gap, "ones": np.ones(W * B)}
        super().__init__(trial, cfc.PARAMETERS, _BUFFERS, {"W": W, "T": T, "B": B}, inputs)
        self.W, self.T, self.like = W, T, like

    def forward(self, fusion: Fusion, cell: cfc.Cell = cfc.TRAINED, prefix: str = "") -> dict[str, np.ndarray]:
        """What stays of a forward pass."""
        names = ("h", "cfc_u", "cfc_gates", "cfc_states") if cell.keep else ("encode_h",)
        self._poison(*names)
        steps = cfc.forward(cell, "m2_out", "gap", self.W, "T", "W*B", {}, prefix, batch=self.like)
        self.run(chosen(steps, fusion))
        return {name: self.get(name) for name in names}

    def backward(self, fusion: Fusion) -> dict[str, np.ndarray]:
        """What a backward pass leaves, of the snapshots that carry gradient."""
        self._poison(*(name for name in _GRADIENTS if name != "cfc_gates"))
        self.run(chosen(cfc.backward(self.W), fusion))
        found = {name: self.get(name) for name in _GRADIENTS}
        return {name: v if name.startswith("grad_") else v[: self.W - 1] for name, v in found.items()}

    def _poison(self, *names: str) -> None:
        for name in names:
            self.set(name, np.full(self.arrays[name].shape, POISON))


def _reference(rig: Sequence) -> dict[str, np.ndarray]:
    """Forward and backward from the definition, float64."""
    w_b, b_b, w_g, b_g = (rig.get(p.name) for p in cfc.PARAMETERS)
    x, gap, grad_h = rig.get("m2_out"), rig.get("gap")[..., None], rig.get("grad_h")
    W, T = rig.W, rig.T
    states, us, gates = [np.zeros_like(x[0])], [], []
    for w in range(W):
        us.append(AMPLITUDE * np.tanh(2 / 3 * (np.concatenate([x[w], states[w]], -1) @ w_b + b_b)))
        f, g, rate, offset = np.split(us[w] @ w_g + b_g, 4, -1)
        gates.append((np.tanh(f), np.tanh(g), sigmoid(offset - rate * gap[w])))
        f, g, s = gates[w]
        states.append(f * s + g * (1 - s))
    d_gates, d_pre, d_h = np.zeros((W - 1, *x.shape[1:-1], 4 * H)), np.zeros_like(x[1:]), np.zeros_like(x[0])
    for w in range(W - 2, -1, -1):
        behind = w - (W - 1 - T)
        d_h = d_h + grad_h[behind] if behind >= 0 else d_h
        f, g, s = gates[w]
        d_s = d_h * (f - g) * s * (1 - s)
        d_gates[w] = np.concatenate([d_h * s * (1 - f * f), d_h * (1 - s) * (1 - g * g), -gap[w] * d_s, d_s], -1)
        d_pre[w] = d_gates[w] @ w_g.T * (2 / 3) * (AMPLITUDE - us[w] ** 2 / AMPLITUDE)
        d_h = d_pre[w] @ w_b[H:].T
    mixed = np.concatenate([x[: W - 1], np.stack(states[: W - 1])], -1)
    return {
        "h": np.stack(states[-(T + 1) :]),
        "cfc_u": np.stack(us),
        "cfc_states": np.stack(states),
        "kept gates": np.stack([np.concatenate(step, -1) for step in gates]),
        "cfc_pre": d_pre,
        "cfc_gates": d_gates,
        "encoder_grad_out": d_pre @ w_b[:H].T,
        "grad_w_cfc_backbone": np.einsum("wbi,wbj->ij", mixed, d_pre),
        "grad_b_cfc_backbone": d_pre.sum((0, 1)),
        "grad_w_cfc_gates": np.einsum("wbi,wbj->ij", np.stack(us[: W - 1]), d_gates),
        "grad_b_cfc_gates": d_gates.sum((0, 1)),
    }


def _distance(want: np.ndarray, got: np.ndarray) -> float:
    """Relative L2 of two arrays of one shape."""
    return float(np.linalg.norm(want - got) / np.linalg.norm(want)) if want.shape == got.shape else np.inf


def judge(trial: Trial, case: str, rig: Sequence, fusion: Fusion, bound: float) -> dict[str, np.ndarray]:
    """One pass forward and backward against float64."""
    want = _reference(rig)
    forward = rig.forward(fusion)
    got = {**{name: forward[name] for name in _KEPT}, "kept gates": forward["cfc_gates"][..., : 3 * H]}
    got |= rig.backward(fusion)
    for name, value in want.items():
        trial.close(f"{case}: {name}, relative L2", 0.0, _distance(value, got[name]), bound)
    return forward | got


@oracle("encoder")
def cfc_steps_match_float64(trial: Trial) -> None:
    for W, T, B in SIZES[:5]:
        judge(trial, f"W {W}, T {T}, B {B}", Sequence(trial, W, T, B), "none", trial.bound(FLOAT32, TF32))


@oracle("encoder")
def cfc_sequence_matches_float64_and_the_steps(trial: Trial) -> None:
    """Every buffer of one kernel against the reference and against what the steps leave."""
    trial.needs_tensor_cores()
    for W, T, B in SIZES:
        case = f"W {W}, T {T}, B {B}"
        rig = Sequence(trial, W, T, B)
        fused = judge(trial, f"{case}, fused", rig, "tf32", TF32)
        trial.equal(
            f"{case}: the fourth part of the gates is left", POISON, rig.forward("tf32")["cfc_gates"][..., 3 * H :]
        )
        steps = {**rig.forward("none"), **rig.backward("none")}
        for name in (*_KEPT, *_GRADIENTS):
            distance = _distance(steps[name], fused[name])
            trial.close(f"{case}: {name} against the steps, relative L2", 0.0, distance, 2 * TF32)


@oracle("encoder")
def cfc_forward_of_many_rows_matches_float64(trial: Trial) -> None:
    """The form for many rows, of few and of many; the same bits without keeping, and twice."""
    trial.needs_tensor_cores()
    for W, T, B in (*SIZES[:5], SIZES[-1]):
        case, rig = f"W {W}, T {T}, B {B}", Sequence(trial, W, T, B, cfc.WIDE_FROM)
        found = judge(trial, case, rig, "tf32", TF32)
        encoded = rig.forward("tf32", _ENCODE)["encode_h"]
        trial.equal(f"{case}: h without keeping", found["h"], encoded)
        trial.equal(f"{case}: h, twice", encoded, rig.forward("tf32", _ENCODE)["encode_h"])


@oracle("encoder")
def cfc_sequence_depends_on_nothing_but_the_row(trial: Trial) -> None:
    """Twice the same bits; the same in tiles of four and eight rows, one and two a block; the same without keeping."""
    trial.needs_tensor_cores()
    W, T = 6, 3
    results = [_row_results(Sequence(trial, W, T, B)) for B in (265, 265, 1, 531, 1061)]
    for name, value in results[0].items():
        trial.equal(f"{name}: two runs", value, results[1][name])
        for other in results[2:]:
            rows = min(value.shape[1], other[name].shape[1])
            trial.equal(f"{name}: with {other[name].shape[1]} rows", value[:, :rows], other[name][:, :rows])
    rig = Sequence(trial, W, T, 33)
    kept, encoded = rig.forward("tf32")["h"], rig.forward("tf32", _ENCODE)["encode_h"]
    trial.equal("h without keeping", kept, encoded)
    target = rig.forward("tf32", _ENCODE, "target_")["encode_h"]
    trial.true("the target's weights give another h", np.any(target != encoded))
    distance = _distance(rig.forward("none", _ENCODE, "target_")["encode_h"], target)
    trial.close("by the target's weights against the steps, relative L2", 0.0, distance, 2 * TF32)


def _row_results(rig: Sequence) -> dict[str, np.ndarray]:
    forward = rig.forward("tf32")
    return forward | {name: v for name, v in rig.backward("tf32").items() if not name.startswith("grad_")}


@oracle("encoder")
def cfc_sequence_lets_nan_through_to_its_row(trial: Trial) -> None:
    """A NaN input spoils its row from its snapshot on, and backward all of it, and no other row."""
    trial.needs_tensor_cores()
    rig = Sequence(trial, 8, 7, 20)
    plain = _row_results(rig)
    x = rig.get("m2_out")
    x[3, 5, 17] = np.nan
    rig.set("m2_out", x)
    spoilt = _row_results(rig)
    trial.true("h of its row, from then on", np.isnan(spoilt["h"][3:, 5]).all())
    trial.equal("h of its row, before", plain["h"][:3, 5], spoilt["h"][:3, 5])
    trial.true("the gradient of its row", np.isnan(spoilt["cfc_pre"][:, 5]).all())
    for name, value in plain.items():
        trial.equal(f"{name} of the other rows", np.delete(value, 5, 1), np.delete(spoilt[name], 5, 1))
