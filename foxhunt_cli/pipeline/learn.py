"""The on-policy update: losses, backward through heads and encoder, optimiser. The critic learns in ``critic.py``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType

from foxhunt_cli.kernels.registry import kernel
from foxhunt_cli.nets import encoder_full, encoder_mlp, policy, supervised
from foxhunt_cli.nets.params import Parameter
from foxhunt_cli.nets.target import nonfinite_parts
from foxhunt_cli.pipeline.shape import Shape
from foxhunt_cli.pipeline.stage import Fused, Stage, Step, Zero, only_when

# Each has PARAMETERS, BUFFERS, WINDOW (K), gaps, forward, backward and the two *window_forward, as encoder_full says.
ENCODERS: dict[str, ModuleType] = {"mlp": encoder_mlp, "full": encoder_full}


def window(encoder: str) -> int:
    """K: snapshots an encoding looks at, its own included."""
    return ENCODERS[encoder].WINDOW


def snapshots(shape: Shape) -> int:
    """W = K + T: snapshots of a row's window."""
    return window(shape.encoder) + shape.rollout


def sizes(shape: Shape, lot_limit: int) -> dict[str, int]:
    """The dimensions that need no data: rows, steps, windows, position classes, replay batch and capacity."""
    return {
        "B": shape.batch,
        "T": shape.rollout,
        "K": window(shape.encoder),
        "W": snapshots(shape),
        "P": 1 if shape.sees_position else 2 * lot_limit + 1,
        "R": shape.replay_batch,
        "C": shape.capacity,
    }


def parameters(shape: Shape) -> tuple[Parameter, ...]:
    """Every tensor the on-policy update owns, the encoder's first.

    Those have target copies where the critic looks through a target encoder.
    """
    return (
        *(replace(tensor, target=not shape.sees_position) for tensor in ENCODERS[shape.encoder].PARAMETERS),
        *policy.PARAMETERS,
        *(supervised.PARAMETERS if shape.supervised else ()),
    )


def gaps(shape: Shape) -> list[Step]:
    """What the encoder needs beside the windows."""
    return ENCODERS[shape.encoder].gaps()


def forward(shape: Shape) -> list[Step | Fused]:
    """Encodings and head outputs of all T + 1 states, market-only."""
    heads = policy.forward((shape.rollout + 1) * shape.batch)
    return [*ENCODERS[shape.encoder].forward(snapshots(shape), "", shape.batch), *heads]


def window_forward(shape: Shape) -> list[Step]:
    """Encoding and policy of the state before the step, where the encoding knows the position."""
    return [*ENCODERS[shape.encoder].window_forward(shape.batch), *policy.policy_at(0), *policy.value_at(0)]


def next_window_forward(shape: Shape) -> list[Step]:
    """Encoding and value of the state behind the step: what targets bootstrap from. Forward only."""
    return [
        *ENCODERS[shape.encoder].next_window_forward(shape.batch),
        Stage("rl_encoder_next_state"),
        *policy.value_at(1),
    ]


def update(
    shape: Shape, lessons: Sequence[Step | Fused] = (), encoder_lessons: Sequence[Step | Fused] = ()
) -> list[Step | Fused]:
    """The first pass over the iteration's T*B rows.

    lessons: what adds to the logits' gradient between the surrogate and the backward (distillation). encoder_lessons:
    what adds to the encodings' gradient beside the heads.
    """
    return [Zero("nonfinite_parts"), *_pass(shape, lessons, encoder_lessons)]


def further_passes(
    shape: Shape, lessons: Sequence[Step | Fused] = (), encoder_lessons: Sequence[Step | Fused] = ()
) -> list[Step | Fused]:
    """Passes 2 to ``shape.passes`` over the same rows, each from new encodings and outputs.

    Where the controller of slot ROLLOUT_STEPS runs, the device decides in each iteration how many of them there are.
    """
    adaptive = shape.passes > 1 and "rollout_steps" not in shape.frozen
    steps: list[Step | Fused] = [Stage("rl_open_passes")] if adaptive else []
    encode = window_forward if shape.sees_position else forward
    for number in range(2, shape.passes + 1):
        own = [*encode(shape), *_pass(shape, lessons, encoder_lessons, again=True)]
        steps += only_when(f"pass_{number}", own) if adaptive else own
    return steps


def _pass(
    shape: Shape,
    lessons: Sequence[Step | Fused],
    encoder_lessons: Sequence[Step | Fused],
    *,
    again: bool = False,
) -> list[Step | Fused]:
    """Losses, backward, update. The supervised heads write grad_h first: they need no advantages; the others add to it.

    What the critic teaches comes last of the heads: its values take longest, and the others need not wait for them.
    """
    context = not shape.sees_position
    ready = shape.entry_gates and not again  # the gate needed the forward returns before the rollout
    rows = shape.rollout * shape.batch
    heads = [supervised.update(rows, first=True, frd_ready=ready, labelled=again)] if shape.supervised else []
    return [
        *heads,
        *policy.losses(again=again),
        *lessons,
        policy.backward(rows, first=not heads, context=context),
        *encoder_lessons,
        *ENCODERS[shape.encoder].backward(snapshots(shape), shape.batch),
        optimiser("policy", publish=not again),
    ]


def optimiser(span: str, *, publish: bool = False) -> Fused:
    """Norms, finite check, clip, Adam over one span of the parameter vector: "policy" (on-policy) or "critic".

    publish: the first update of the iteration, where the count of bad numbers starts anew.
    """
    codes = ("group_code", "branch_code", "encoder_code")
    takes = ("params", "grads", "adam_m", "adam_v", *codes, "chunk_square", "fault", "adam_step", "update_control")
    own = {name: f"{name}_{span}" for name in takes} | {"n_chunks": f"N_{span.upper()}_CHUNKS"}
    own["nonfinite_parts"] = nonfinite_parts(span)
    told = {"publish": str(int(publish)), "norms": str(int(span == "policy"))}

    def stage(name: str) -> Stage:
        known = {**own, **told}
        return Stage(name, {p.name: known[p.name] for p in kernel(name).params if p.name in known})

    steps = tuple(map(stage, ("rl_grad_chunk_squares", "rl_grad_norms", "rl_adam_step")))
    return Fused(tuple(map(stage, ("rl_span_squares", "rl_span_step"))), steps)
