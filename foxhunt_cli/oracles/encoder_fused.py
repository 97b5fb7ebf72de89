"""Oracles of the fused kernels of variable selection and Mamba-2: what the kernels they stand for give, bit for bit.

Where a case says ``close``, the order of a sum over rows or snapshots is another one; everything else is equal.
"""

from __future__ import annotations

import numpy as np

from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.encoder_rig import EncoderRig
from foxhunt_cli.oracles.formulas import HEADS, PROJ, STATE, TAPS, XBC, D, H

# (W, B): one snapshot, less than a chunk of 8, one chunk, a partial last chunk, the windows of the presets.
SIZES = ((1, 1), (3, 2), (8, 1), (9, 3), (32, 2), (33, 3), (47, 5), (48, 1))
PARTS = (TAPS + 1) * XBC + 3 * HEADS + H
SUM = 2e-6  # of the sum of absolute values: another order of adding up to 100 rounded numbers
WHOLE = 1e-6  # relative L2: the same through the sums of whole tensors
TF32 = 2e-3  # the same: a last bit that differs makes operands of later products round the other way


def _f32(rng: np.random.Generator, *size: int) -> np.ndarray:
    return rng.standard_normal(size).astype(np.float32)


def block_inputs(W: int, B: int) -> dict[str, np.ndarray]:
    """Inputs of a block between its projections, and outputs of the right size, of either list."""
    rng = np.random.default_rng(1000 * W + B)
    columns = {"xbc": XBC, "dt": HEADS, "decay": HEADS, "s": H, "norm": H, "grad_x": H, "grad_y": H, "grad_bc": 2 * H}
    return {
        "proj": _f32(rng, W, B, PROJ),
        "conv_w": np.float32(0.5) * _f32(rng, TAPS, XBC),
        "conv_b": _f32(rng, XBC),
        "dt_bias": _f32(rng, HEADS),
        "a_log": _f32(rng, HEADS),
        "skip": _f32(rng, HEADS),
        "norm_w": _f32(rng, H),
        "grad": _f32(rng, W, B, H),
        "rstd": np.zeros((W, B), np.float32),
        **{name: np.zeros((W, B, width), np.float32) for name, width in columns.items()},
        "grad_c": np.zeros((W, B, STATE), np.float32),
        "grad_proj": np.zeros((W, B, PROJ), np.float32),
        "grad_head": np.zeros((B, 2, HEADS), np.float32),
        "grad_conv": np.zeros((B, TAPS + 1, XBC), np.float32),
        "parts": np.zeros((B, PARTS), np.float32),
    }


def steps_forward(trial: Trial, a: dict[str, np.ndarray], W: int, B: int) -> dict[str, np.ndarray]:
    """``a`` with the results of the single kernels of the forward."""
    done = dict(a)
    for part in ("conv", "dt", "scan", "norm"):
        done |= trial.run(f"mamba2_{part}_forward", done, W=W, B=B)
    return done


def steps_backward(trial: Trial, a: dict[str, np.ndarray], W: int, B: int) -> dict[str, np.ndarray]:
    """``a`` with the results of the single kernels of the backward."""
    done = a | trial.run("mamba2_norm_backward", a, W=W, B=B)
    done["grad_y"] = done["grad"]
    done |= trial.run("mamba2_scan_backward_bc", done, W=W, B=B)
    done |= trial.run("mamba2_scan_backward_x", done, W=W, B=B)
    done |= trial.run("mamba2_scan_backward_dt", done, W=W, B=B)
    return done | trial.run("mamba2_conv_backward", done, W=W, B=B)


def _close_sum(trial: Trial, label: str, values: np.ndarray, got: np.ndarray) -> None:
    """got is the sum of values over their first axis, whatever the order."""
    size = np.abs(values).sum(0, dtype=np.float64) + 1e-30
    trial.close(label, values.sum(0, dtype=np.float64) / size, got / size, SUM)


@oracle("encoder")
def mamba2_row_forward_equals_its_kernels(trial: Trial) -> None:
    for W, B in SIZES:
        a = block_inputs(W, B)
        want = steps_forward(trial, a, W, B)
        got = trial.run("mamba2_row_forward", a, W=W, B=B)
        for name in ("s", "norm", "rstd"):
            trial.equal(f"W {W}, B {B}: {name}", want[name], got[name])
        alone = trial.run("mamba2_row_forward_only", a, W=W, B=B)
        trial.equal(f"W {W}, B {B}: norm, forward only", want["norm"], alone["norm"])


@oracle("encoder")
def mamba2_row_forward_shows_nan_in_its_row_alone(trial: Trial) -> None:
    W, B = 20, 3
    a = block_inputs(W, B)
    a["proj"][5, 1, H + 3] = np.nan
    got = trial.run("mamba2_row_forward_only", a, W=W, B=B)["norm"]
    trial.true("snapshots before it", np.isfinite(got[:5]).all())
    trial.true("the row from it on", np.isnan(got[5:, 1]).all())
    trial.true("other rows", np.isfinite(got[:, [0, 2]]).all())


@oracle("encoder")
def mamba2_row_backward_equals_its_kernels(trial: Trial) -> None:
    for W, B in SIZES:
        a = steps_forward(trial, block_inputs(W, B), W, B)
        want = steps_backward(trial, a, W, B)
        first = a | trial.run("mamba2_row_backward_norm", a, W=W, B=B)
        got = first | trial.run("mamba2_row_backward_scan", first | {"grad_y": first["grad"]}, W=W, B=B)
        trial.equal(f"W {W}, B {B}: dy", want["grad"], got["grad"])
        trial.equal(f"W {W}, B {B}: gradient of the in-projection", want["grad_proj"], got["grad_proj"])
        edges = np.cumsum([(TAPS + 1) * XBC, HEADS, 2 * HEADS])
        conv, dt, head, norm = np.split(got["parts"], edges, -1)
        trial.equal(f"W {W}, B {B}: taps and bias, a row", want["grad_conv"].reshape(B, -1), conv)
        trial.equal(f"W {W}, B {B}: a_log and skip, a row", want["grad_head"].reshape(B, -1), head)
        _close_sum(trial, f"W {W}, B {B}: dt_bias, a row", want["grad_proj"][..., H + XBC :], dt)
        _close_sum(trial, f"W {W}, B {B}: norm weights, a row", want["norm"], norm)


@oracle("encoder")
def vsn_tiles_equal_its_kernels(trial: Trial) -> None:
    for W, B in ((1, 1), (9, 3), (16, 4), (33, 5), (64, 3)):
        rng = np.random.default_rng(W)
        x, bias, logits, grad = (_f32(rng, *size) for size in ((W, B, D), (D,), (W, B, D), (W, B, D)))
        a = {"x": x, "bias": bias, "gate": 3 * logits, "logits": 3 * logits, "out": 0 * x, "grad_out": grad}
        want = trial.run("vsn_forward", a, W=W, B=B)
        got = trial.run("vsn_tile_forward", a, W=W, B=B)
        for name in ("gate", "out"):
            trial.equal(f"W {W}, B {B}: {name}", want[name], got[name])
        alone = trial.run("vsn_tile_forward_only", a, W=W, B=B)
        trial.equal(f"W {W}, B {B}: out, forward only", want["out"], alone["out"])
        back = {**a, "gate": want["gate"], "parts": np.zeros((-(-W * B // 64), D), np.float32)}
        dlogits = trial.run("vsn_backward", back, W=W, B=B)["gate"]
        tiles = trial.run("vsn_tile_backward", back, W=W, B=B)
        trial.equal(f"W {W}, B {B}: gradient of the logits", dlogits, tiles["gate"])
        _close_sum(trial, f"W {W}, B {B}: gradient of the bias", dlogits.reshape(-1, D), tiles["parts"].sum(0))


@oracle("encoder")
def encoder_sum_parts_adds_every_line(trial: Trial) -> None:
    for B, tiles in ((1, 1), (16, 12), (70, 200)):
        rng = np.random.default_rng(B)
        parts = {f"m{k}_parts": _f32(rng, B, PARTS) for k in (1, 2)} | {"vsn_parts": _f32(rng, tiles, D)}
        widths = {"w_{}_conv": TAPS * XBC, "b_{}_conv": XBC, "b_{}_dt": HEADS, "a_log_{}": HEADS}
        widths |= {"skip_{}": HEADS, "w_{}_norm": H}
        names = {f"m{k}": [f"grad_{name.format(f'm{k}')}" for name in widths] for k in (1, 2)}
        sizes = {name: width for tag in names for name, width in zip(names[tag], widths.values(), strict=True)}
        outputs = {name: np.full(width, np.nan, np.float32) for name, width in {**sizes, "grad_b_vsn": D}.items()}
        got = trial.run("encoder_sum_parts", {**parts, **outputs}, B=B, tiles=tiles)
        for tag, own in names.items():
            together = np.concatenate([got[name] for name in own])
            _close_sum(trial, f"{B} rows: {tag}", parts[f"{tag}_parts"], together)
        _close_sum(trial, f"{tiles} tiles: vsn", parts["vsn_parts"], got["grad_b_vsn"])


@oracle("encoder")
def fused_passes_equal_the_plain_ones(trial: Trial) -> None:
    """Both lists on one device, float32: encodings and the gradient of every tensor."""
    for W, T, B in ((33, 1, 1), (12, 4, 3), (48, 16, 2)):
        plain, fused = (EncoderRig(trial.device, W, T, B, seed=W, fusion=fusion) for fusion in ("none", "float32"))
        for rig in (plain, fused):
            rig.run("forward", "target", "backward")
        for name in ("h", "target_h", *(f"grad_{tensor}" for tensor in plain.layout.offsets)):
            want, got = plain.get(name), fused.get(name)
            distance = np.linalg.norm(got - want) / (np.linalg.norm(want) or 1.0)
            trial.close(f"W {W}, T {T}, B {B}: {name}, relative", 0.0, distance, trial.bound(WHOLE, TF32))
