"""The on-policy update: losses, backward through heads and encoder, optimiser. The critic learns in ``critic.py``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType

from foxhunt_cli.nets import direction, encoder_full, encoder_mlp, frd, outcome, policy
from foxhunt_cli.nets.params import Parameter
from foxhunt_cli.pipeline.shape import Shape
from foxhunt_cli.pipeline.stage import Stage, Step, Zero

ENCODERS: dict[str, ModuleType] = {"mlp": encoder_mlp, "full": encoder_full}
SUPERVISED = (frd, direction, outcome)


def window(encoder: str) -> int:
    """K: snapshots an encoding looks at, its own included."""
    return ENCODERS[encoder].WINDOW


def snapshots(shape: Shape) -> int:
    """W = K + T: snapshots of a row's window."""
    return window(shape.encoder) + shape.rollout


def parameters(shape: Shape) -> tuple[Parameter, ...]:
    """Every tensor the on-policy update owns, the encoder's first.

    Those have target copies where the critic looks through a target encoder.
    """
    heads = SUPERVISED if shape.supervised else ()
    return (
        *(replace(tensor, target=not shape.sees_position) for tensor in ENCODERS[shape.encoder].PARAMETERS),
        *policy.PARAMETERS,
        *(tensor for head in heads for tensor in head.PARAMETERS),
    )


def gaps(shape: Shape) -> list[Step]:
    """What the encoder needs beside the windows."""
    return ENCODERS[shape.encoder].gaps()


def forward(shape: Shape) -> list[Step]:
    """Encodings and head outputs of all T + 1 states, market-only."""
    return [*ENCODERS[shape.encoder].forward(snapshots(shape)), *policy.forward()]


def window_forward(shape: Shape) -> list[Step]:
    """Encoding and policy of the state before the step, where the encoding knows the position."""
    return [*ENCODERS[shape.encoder].window_forward(), *policy.policy_at(0), *policy.value_at(0)]


def next_window_forward(shape: Shape) -> list[Step]:
    """Encoding and value of the state behind the step: what targets bootstrap from. Forward only."""
    return [*ENCODERS[shape.encoder].next_window_forward(), Stage("rl_encoder_next_state"), *policy.value_at(1)]


def update(shape: Shape, lessons: Sequence[Step] = ()) -> list[Step]:
    """One pass over the iteration's T*B rows. The policy's backward writes grad_h first, the other heads add to it.

    lessons: what adds to the logits' gradient between the surrogate and the backward (distillation).
    """
    supervised: list[Step] = []
    if shape.supervised:
        supervised = [Stage("gpu_gather_frd_labels")]
        for head in SUPERVISED:
            ready = head is frd and shape.entry_gates  # the gate needed it before the rollout
            supervised += [*(() if ready else head.forward()), *head.loss_and_backward()]
    return [
        Zero("nonfinite_parts"),
        *policy.losses(),
        *lessons,
        *policy.backward(context=not shape.sees_position),
        *supervised,
        *ENCODERS[shape.encoder].backward(snapshots(shape)),
        *optimiser("policy"),
    ]


def optimiser(span: str) -> list[Step]:
    """Norms, finite check, clip, Adam over one span of the parameter vector: "policy" (on-policy) or "critic"."""
    vectors, codes = ("params", "grads", "adam_m", "adam_v"), ("group_code", "branch_code", "encoder_code")
    own = {name: f"{name}_{span}" for name in (*vectors, *codes, "chunk_square", "fault")}
    size = {"n_chunks": f"N_{span.upper()}_CHUNKS"}

    def stage(kernel: str, *takes: str, **scalars: str) -> Stage:
        return Stage(kernel, {**{name: own[name] for name in takes}, **size, **scalars})

    return [
        stage("rl_grad_chunk_squares", "grads", "chunk_square"),
        stage("rl_grad_norms", "chunk_square", *codes, "fault", publish=str(int(span == "policy"))),
        stage("rl_adam_step", "params", "grads", "adam_m", "adam_v", *codes),
    ]
