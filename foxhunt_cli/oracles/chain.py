"""Oracles of the encoder's chained layers, two products of many rows in one kernel, and of the whole encoder."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foxhunt_cli.nets import encoder_full
from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.encoder_rig import EncoderRig

# Relative L2. TF32 keeps 10 bits of an operand, 5e-4 a product, averaged over two sums of 128.
TF32 = 1e-3
# Of the whole encoder, forward and backward: some ten products one behind the other, and the recurrences carry along.
WHOLE = 1e-2
POISON = 9.0
ROWS = (1, 7, 16, 33, 752, 3001, 30_011)  # one tile cut, tiles of several warps of a block, several of a warp


def compare(trial: Trial, sizes: Sequence[int] = ROWS) -> None:
    """Forward with and without what lies between, and backward."""
    for rows in sizes:
        rng = np.random.default_rng(rows)
        x, trunk = rng.standard_normal((2, rows, 128))
        out, backbone = rng.standard_normal((128, 128)) / 11, rng.standard_normal((256, 128)) / 11
        weights = {"w_m2_out": out.astype(np.float32), "w_cfc_backbone": backbone.astype(np.float32)}
        given = {"norm": x.astype(np.float32), "trunk": trunk.astype(np.float32), **weights}
        empty = {name: np.full((rows, 128), POISON, np.float32) for name in ("mixed", "pre")}
        mixed = x @ out + trunk
        found = trial.run("cfc_chain_forward", given | empty, rows=rows)
        _close(trial, f"{rows} rows: mixed", mixed, found["mixed"])
        _close(trial, f"{rows} rows: pre", mixed @ backbone[:128], found["pre"])
        alone = trial.run("cfc_chain_encode", given | {"pre": empty["pre"]}, rows=rows)
        trial.equal(f"{rows} rows: pre without mixed", found["pre"], alone["pre"])
        empty = {name: np.full((rows, 128), POISON, np.float32) for name in ("grad_out", "grad_norm")}
        found = trial.run("cfc_chain_backward", {"grad_pre": x.astype(np.float32), **weights, **empty}, rows=rows)
        grad_out = x @ backbone[:128].T
        _close(trial, f"{rows} rows: grad_out", grad_out, found["grad_out"])
        _close(trial, f"{rows} rows: grad_norm", grad_out @ out.T, found["grad_norm"])


def _close(trial: Trial, label: str, want: np.ndarray, got: np.ndarray) -> None:
    trial.close(f"{label}, relative L2", 0.0, np.linalg.norm(want - got) / np.linalg.norm(want), TF32)


@oracle("encoder")
def chained_layers_match_float64(trial: Trial) -> None:
    """One row, cut tiles, many tiles a warp; the last row's neighbours are not touched."""
    trial.needs_tensor_cores()
    compare(trial)


def compare_whole(trial: Trial, sizes: Sequence[tuple[int, int, int]], many: int = encoder_full.MANY_TOKENS) -> None:
    """Encodings and every gradient of the lists for few rows and for ``many``, against those of the steps."""
    for W, T, B in sizes:
        rigs = [EncoderRig(trial.device, W, T, B, seed=W)]
        rigs += [EncoderRig(trial.device, W, T, B, seed=W, fusion="tf32", like=like) for like in (0, many)]
        for rig in rigs:
            rig.run("forward", "target", "backward")
        for name in ("h", "target_h", *(f"grad_{tensor}" for tensor in rigs[0].layout.offsets)):
            want, *found = (rig.get(name) for rig in rigs)
            for label, got in zip(("few", "many"), found, strict=True):
                distance = np.linalg.norm(want - got) / np.linalg.norm(want)
                trial.close(f"W {W}, T {T}, B {B}: {name}, list for {label} rows, relative L2", 0.0, distance, WHOLE)


@oracle("encoder")
def whole_encoder_with_tensor_cores_matches_its_steps(trial: Trial) -> None:
    """The lists that a run has, at sizes that fill no tile."""
    trial.needs_tensor_cores()
    compare_whole(trial, ((36, 4, 3), (48, 16, 17)))
