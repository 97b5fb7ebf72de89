"""Sampled moments encoded anew by the target encoder: how far stored encodings have drifted, and learning without them.

A moment is encoded with the snapshots that it had behind it when it was stored, so that a target encoder that has not
moved gives what is stored. One pass over FW = K - 1 + T (+ n) snapshots of each sample; FT = states behind the first.
"""

from __future__ import annotations

from dataclasses import replace

from foxhunt_cli.buffers.row import Buffer
from foxhunt_cli.nets import encoder_full, encoder_mlp
from foxhunt_cli.pipeline import learn
from foxhunt_cli.pipeline.moved import moved, resized
from foxhunt_cli.pipeline.shape import Shape
from foxhunt_cli.pipeline.stage import Fused, Stage, Step, chosen
from foxhunt_cli.replay import per

DRIFT_ROWS = 256  # samples that the drift is measured on, at most

_SIZES = {"B": "FR", "W": "FW", "T": "FT"}
_X = Buffer("x", "W, B, ENCODER_INPUT_DIM", "float32", "iteration", "mixed", "encoder input")
_OWN = tuple(b for b in (_X, *encoder_mlp.BUFFERS, *encoder_full.BUFFERS) if b.lifetime == "iteration")
_NAMES = {b.name: f"fresh_{b.name.removeprefix('target_')}" for b in _OWN} | {"cursor": "window_start"}

BUFFERS = (
    Buffer("window_start", "FR", "int32", "iteration", "index", "snapshot of the first step of a sample's iteration"),
    Buffer("window_state", "FR", "int32", "iteration", "steps", "steps from there to the sampled moment"),
    Buffer("rng_drift", "FR", "uint32", "persistent", "state", "draws of the batch that the drift is measured on"),
    *(
        replace(b, name=_NAMES[b.name], dims=resized(b.dims, _SIZES), meaning=f"{b.meaning}; of sampled moments")
        for b in {_NAMES[b.name]: b for b in _OWN}.values()
    ),
)


def sizes(shape: Shape) -> dict[str, int]:
    """FR samples, FW snapshots of each, FT states behind the first."""
    behind = shape.rollout - 1 + (shape.n_step if shape.fresh else 0)
    rows = shape.replay_batch if shape.fresh else min(shape.replay_batch, DRIFT_ROWS)
    return {"FR": rows, "FW": learn.window(shape.encoder) + behind, "FT": behind}


def encode(shape: Shape) -> list[Step | Fused]:
    """fresh_h [FT+1, FR, 128] of the batch just sampled."""
    network = learn.ENCODERS[shape.encoder]
    size = sizes(shape)
    pass_over = network.forward(size["FW"], "target_", size["FR"])
    window = [Stage("snap_feature_assemble_batched", {"offset": "0"}), *network.gaps()]
    return [Stage("rl_sample_windows", {"rows": "FR"}), *moved([*window, *pass_over], _NAMES, _SIZES)]


def instead_of_stored(shape: Shape) -> list[Step | Fused]:
    """Behind ``per.sample()``: the batch's encodings of now in the place of the stored ones."""
    return [*encode(shape), Stage("rl_fresh_pick", {"rows": "FR"})]


def drift(shape: Shape) -> list[Step]:
    """A list of its own, run now and then: slot ENCODING_DRIFT, from a batch that no update learns from."""
    sample = [Stage(s.kernel, {**s.remap, "R": "FR"}) for s in per.sample() if s.kernel != "rl_per_weights"]
    draw = replace(sample[0], remap={**sample[0].remap, "rng_replay": "rng_drift"})
    measure = Stage("rl_encoding_drift", {"rows": "FR"})
    return chosen([draw, *sample[1:], *encode(shape), measure], shape.fusion)
