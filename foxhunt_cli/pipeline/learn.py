"""The on-policy update: losses, backward through heads and encoder, optimiser. The critic learns in ``critic.py``."""

from __future__ import annotations

from types import ModuleType

from foxhunt_cli.nets import direction, encoder_full, encoder_mlp, frd, outcome, policy
from foxhunt_cli.nets.params import Parameter
from foxhunt_cli.pipeline.shape import Shape
from foxhunt_cli.pipeline.stage import Stage, Step, Zero

ENCODERS: dict[str, ModuleType] = {"mlp": encoder_mlp, "full": encoder_full}
# What an encoder needs beside the windows.
_INPUTS: dict[str, tuple[Step, ...]] = {"mlp": (), "full": (Stage("gpu_window_gaps"),)}
SUPERVISED = (frd, direction, outcome)


def window(encoder: str) -> int:
    """K: snapshots an encoding looks at, its own included."""
    return ENCODERS[encoder].WINDOW


def snapshots(shape: Shape) -> int:
    """W = K + T: snapshots of a row's window."""
    return window(shape.encoder) + shape.rollout


def parameters(shape: Shape) -> tuple[Parameter, ...]:
    """Every tensor the on-policy update owns, encoder first."""
    heads = SUPERVISED if shape.supervised else ()
    return (
        *ENCODERS[shape.encoder].PARAMETERS,
        *policy.PARAMETERS,
        *(tensor for head in heads for tensor in head.PARAMETERS),
    )


def forward(shape: Shape) -> list[Step]:
    """Encodings and head outputs of all T + 1 states."""
    encoder = ENCODERS[shape.encoder]
    return [*_INPUTS[shape.encoder], *encoder.forward(snapshots(shape)), *policy.forward()]


def update(shape: Shape) -> list[Step]:
    """One pass over the iteration's T*B rows. The policy's backward writes grad_h first, the other heads add to it."""
    supervised: list[Step] = []
    if shape.supervised:
        supervised = [Stage("gpu_gather_frd_labels")]
        for head in SUPERVISED:
            supervised += [*head.forward(), *head.loss_and_backward()]
    return [
        Zero("nonfinite_parts"),
        *policy.losses(),
        *policy.backward(),
        *supervised,
        *ENCODERS[shape.encoder].backward(snapshots(shape)),
        *optimiser(),
    ]


def optimiser() -> list[Step]:
    """Norms, finite check, clip, Adam over the whole parameter vector."""
    return [
        Stage("rl_grad_chunk_squares", {"n_chunks": "N_CHUNKS"}),
        Stage("rl_grad_norms", {"n_chunks": "N_CHUNKS"}),
        Stage("rl_adam_step", {"n_chunks": "N_CHUNKS"}),
    ]
