"""The on-policy update: losses, backward through heads and encoder, optimiser."""

from __future__ import annotations

from types import ModuleType

from foxhunt_cli.nets import encoder_mlp, policy
from foxhunt_cli.nets.params import Parameter
from foxhunt_cli.pipeline.stage import Stage, Step

ENCODERS: dict[str, ModuleType] = {"mlp": encoder_mlp}


def parameters(encoder: str) -> tuple[Parameter, ...]:
    """Every tensor the on-policy update owns, encoder first."""
    return (*ENCODERS[encoder].PARAMETERS, *policy.PARAMETERS)


def forward(encoder: str) -> list[Step]:
    """Encodings and head outputs of all T + 1 states."""
    return [*ENCODERS[encoder].forward(), *policy.forward()]


def update(encoder: str) -> list[Step]:
    """One pass over the iteration's T*B rows."""
    return [*policy.losses(), *policy.backward(), *ENCODERS[encoder].backward(), *optimiser()]


def optimiser() -> list[Step]:
    """Norms, finite check, clip, Adam over the whole parameter vector."""
    return [
        Stage("rl_grad_chunk_squares", {"n_chunks": "N_CHUNKS"}),
        Stage("rl_grad_norms", {"n_chunks": "N_CHUNKS"}),
        Stage("rl_adam_step", {"n_chunks": "N_CHUNKS"}),
    ]


def window(encoder: str) -> int:
    """K: snapshots an encoding looks at, its own included."""
    return ENCODERS[encoder].WINDOW
