"""Oracles of the encoder's kernels with tensor cores, Mamba-2 and variable selection: against the single steps, which
know no chunks and no TF32.
"""

from __future__ import annotations

import numpy as np

from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.encoder_fused import block_inputs, steps_backward, steps_forward
from foxhunt_cli.oracles.formulas import HEADS, PROJ, STATE, TAPS, XBC, D, H

# Relative L2 of a buffer: TF32 keeps 10 bits of an operand, up to 5e-4 a product, averaged over a sum and carried along
# by a few products in a row.
TF32 = 2e-3
SIGNED = 6e-3  # the same of a row's few sums of terms of both signs, of which little may be left

# (W, B): one snapshot, part of a chunk of 16, whole chunks, a last chunk of one and of all but one, preset windows.
SIZES = ((1, 1), (3, 2), (16, 1), (17, 3), (32, 2), (47, 2), (64, 1))

_KEPT = ("norm", "rstd")
_COLUMNS = {"z": H, "x": H, "B": STATE, "C": STATE, "dt": HEADS}


def distance(want: np.ndarray, got: np.ndarray) -> float:
    """Relative L2 of two arrays of one shape; 0 where both are nothing but zeros."""
    return float(np.linalg.norm(want - got) / (np.linalg.norm(want) or 1.0)) if want.shape == got.shape else np.inf


def compare_forward(trial: Trial, case: str, inputs: dict[str, np.ndarray], W: int, B: int) -> dict[str, np.ndarray]:
    """Both forward kernels against the steps; inputs and what the first one left come back."""
    want = steps_forward(trial, inputs, W, B)
    got = trial.run("mamba2_chunk_forward", inputs, W=W, B=B)
    for name in _KEPT:
        trial.close(f"{case}: {name}, relative L2", 0.0, distance(want[name], got[name]), TF32)
    alone = trial.run("mamba2_chunk_forward_only", inputs, W=W, B=B)
    trial.equal(f"{case}: norm, forward only", got["norm"], alone["norm"])
    return inputs | got


def compare_backward(trial: Trial, case: str, inputs: dict[str, np.ndarray], W: int, B: int) -> None:
    """The backward kernel, after its forward, against the steps after theirs."""
    want = steps_backward(trial, steps_forward(trial, inputs, W, B), W, B)
    got = trial.run("mamba2_chunk_backward", compare_forward(trial, case, inputs, W, B), W=W, B=B)
    edges = np.cumsum([0, *_COLUMNS.values()])
    for name, first, end in zip(_COLUMNS, edges[:-1], edges[1:], strict=True):
        pair = (array["grad_proj"][..., first:end] for array in (want, got))
        trial.close(f"{case}: gradient of {name}, relative L2", 0.0, distance(*pair), TF32)
    sums = {
        "taps and bias": want["grad_conv"].reshape(B, -1),
        "dt_bias": want["grad_proj"][..., H + XBC :].sum(0),
        "a_log": want["grad_head"][:, 0],
        "skip": want["grad_head"][:, 1],
        "norm weights": want["norm"].sum(0),
    }
    parts = np.split(got["parts"], np.cumsum([(TAPS + 1) * XBC, HEADS, HEADS, HEADS]), -1)
    for (name, value), part in zip(sums.items(), parts, strict=True):
        trial.close(f"{case}: {name}, a row, relative L2", 0.0, distance(value, part), SIGNED)


def compare_sizes(trial: Trial, sizes: tuple[tuple[int, int], ...] = SIZES) -> None:
    """Forward and backward at several sizes, with the step sizes that training starts at."""
    for W, B in sizes:
        inputs = block_inputs(W, B)
        inputs["dt_bias"] -= 2.0
        compare_backward(trial, f"W {W}, B {B}", inputs, W, B)


def compare_decays(trial: Trial) -> None:
    """Heads that forget everything at once, nothing at all, and in between."""
    W, B = 19, 2
    inputs = block_inputs(W, B)
    inputs["dt_bias"] = np.array([-30.0, -12.0, -6.0, -2.0, 0.0, 4.0, 40.0, 300.0], np.float32)
    inputs["a_log"] = np.array([0.0, 3.0, -3.0, 0.0, 1.0, 2.0, 0.0, 3.0], np.float32)
    compare_forward(trial, "decays", inputs, W, B)
    chunk = trial.run("mamba2_chunk_backward", inputs | trial.run("mamba2_chunk_forward", inputs, W=W, B=B), W=W, B=B)
    want = steps_backward(trial, steps_forward(trial, inputs, W, B), W, B)
    for name in ("grad_proj", "parts"):
        trial.true(f"{name} is finite", np.isfinite(chunk[name]).all())
    for name, columns in (("z, x, B and C", slice(0, H + XBC)), ("dt", slice(H + XBC, None))):
        pair = (array["grad_proj"][..., columns] for array in (want, chunk))
        trial.close(f"gradient of {name}, relative L2", 0.0, distance(*pair), TF32)


def compare_rows(trial: Trial) -> None:
    """A row depends on nothing but itself, and a NaN spoils no other row and no chunk before its own."""
    W, B = 40, 3
    inputs = block_inputs(W, B)
    spoilt = {**inputs, "proj": inputs["proj"].copy()}
    spoilt["proj"][20, 1, H + 3] = np.nan
    clean, dirty = (a | trial.run("mamba2_chunk_forward", a, W=W, B=B) for a in (inputs, spoilt))
    trial.equal("norm of the other rows", clean["norm"][:, [0, 2]], dirty["norm"][:, [0, 2]])
    trial.equal("norm of its row, chunks before", clean["norm"][:16, 1], dirty["norm"][:16, 1])
    trial.true("norm of its row, from it on", np.isnan(dirty["norm"][20:, 1]).all())
    clean, dirty = (trial.run("mamba2_chunk_backward", a, W=W, B=B) for a in (clean, dirty))
    trial.equal("gradient of the other rows", clean["grad_proj"][:, [0, 2]], dirty["grad_proj"][:, [0, 2]])
    trial.equal("parts of the other rows", clean["parts"][[0, 2]], dirty["parts"][[0, 2]])
    trial.true("parts of its row", np.isnan(dirty["parts"][1]).any())


def compare_selection(trial: Trial, shares: tuple[int, ...] = (1, 2, 8)) -> None:
    """Variable selection between its two products, against the step and products in float32."""
    for tokens in (1, 15, 64, 150):
        rng = np.random.default_rng(tokens)
        x, w, bias, w_in = (
            rng.standard_normal(n).astype(np.float32) for n in ((tokens, 1, D), (D, D), (D,), (D, PROJ))
        )
        w, w_in = w / np.float32(np.sqrt(D)), w_in / np.float32(np.sqrt(D))
        names = {"x": x, "w": w, "bias": bias, "w_in": w_in, "proj": np.full((tokens, 1, PROJ), np.nan, np.float32)}
        names |= {"gate": np.full_like(x, np.nan), "out": np.full_like(x, np.nan)}
        want = trial.run("vsn_forward", names | {"gate": x @ w}, W=tokens, B=1)
        want["proj"] = want["out"] @ w_in
        for share in shares:
            got = trial.run("vsn_in_forward", names, W=tokens, B=1, share=share)
            for name, value in want.items():
                case = f"{tokens} tokens, {share} warps: {name}"
                trial.close(f"{case}, relative L2", 0.0, distance(value, got[name]), TF32)
            alone = trial.run("vsn_in_forward_only", names, W=tokens, B=1, share=share)
            trial.equal(f"{tokens} tokens, {share} warps: proj, forward only", got["proj"], alone["proj"])
        x[tokens // 2, 0, 3] = np.nan
        spoilt = trial.run("vsn_in_forward", names, W=tokens, B=1, share=shares[0])["proj"]
        trial.true(f"{tokens} tokens: NaN in its token", np.isnan(spoilt[tokens // 2]).all())
        others = (np.delete(array, tokens // 2, 0) for array in (got["proj"], spoilt))
        trial.true(f"{tokens} tokens: and in no other", np.array_equal(*others))


def compare_selection_backward(trial: Trial) -> None:
    """The gradient of the logits from that of the in-projection, against the step after a product in float32."""
    for W, B, tiles in ((1, 1, 1), (5, 3, 1), (7, 9, 4), (150, 2, 2)):
        rng = np.random.default_rng(W)
        shapes = {"x": (W, B, D), "gate": (W, B, D), "w_in": (D, PROJ), "grad_proj": (W, B, PROJ)}
        names = {name: rng.standard_normal(size).astype(np.float32) for name, size in shapes.items()}
        names["gate"] = np.exp(names["gate"]) / np.exp(names["gate"]).sum(-1, keepdims=True)
        grad_out = names["grad_proj"] @ names["w_in"].T
        want = trial.run("vsn_backward", {**names, "grad_out": grad_out}, W=W, B=B)["gate"]
        got = trial.run("vsn_in_backward", names | {"parts": np.zeros((tiles, D), np.float32)}, W=W, B=B, tiles=tiles)
        case = f"{W * B} tokens, {tiles} blocks"
        trial.close(f"{case}: gradient of the logits, relative L2", 0.0, distance(want, got["gate"]), TF32)
        sums = got["gate"].reshape(-1, D).sum(0, dtype=np.float64)
        trial.close(f"{case}: its sums, relative L2", 0.0, distance(sums, got["parts"].sum(0, dtype=np.float64)), 1e-5)


@oracle("encoder")
def vsn_in_backward_matches_the_steps(trial: Trial) -> None:
    trial.needs_tensor_cores()
    compare_selection_backward(trial)


@oracle("encoder")
def vsn_in_matches_the_steps(trial: Trial) -> None:
    trial.needs_tensor_cores()
    compare_selection(trial)


@oracle("encoder")
def mamba2_chunks_match_the_steps(trial: Trial) -> None:
    trial.needs_tensor_cores()
    compare_sizes(trial, (*SIZES, (48, 300)))


@oracle("encoder")
def mamba2_chunks_with_extreme_decays(trial: Trial) -> None:
    trial.needs_tensor_cores()
    compare_decays(trial)


@oracle("encoder")
def mamba2_chunks_keep_rows_apart(trial: Trial) -> None:
    trial.needs_tensor_cores()
    compare_rows(trial)
