"""Windows and encodings: what the networks see before and behind the environment steps of an iteration.

By default the encoding is market-only: one window of K + T snapshots gives every state of the iteration at once. With
``context = encoder`` an iteration is one step; the window before it and the window behind it are encoded one after the
other, each with what the row holds at that moment in every snapshot's columns 40..55.
"""

from __future__ import annotations

from foxhunt_cli.pipeline import critic, learn, rollout
from foxhunt_cli.pipeline.shape import Shape
from foxhunt_cli.pipeline.stage import Fused, Stage, Step

_NOW, _NEXT = {"offset": "0"}, {"offset": "1"}
_ONE_WINDOW, _INTO_NEXT = {"W": "K"}, {"x": "x_next"}


def before_steps(shape: Shape, *, draw_episodes: bool, policy: bool, features: bool) -> list[Step | Fused]:
    """Windows, a clean start for rows on a new episode, encodings.

    policy: the encodings and outputs of the policy. features: the critic's encodings. An encoder that knows the
    position gives both at once.
    """
    draw = [Stage("gpu_sample_starts")] if draw_episodes else []
    if shape.sees_position:
        return [*draw, *_window_now(), *learn.window_forward(shape)]
    return [
        *draw,
        *_windows(shape),
        *(learn.forward(shape) if policy else ()),
        *(critic.encode(shape) if features else ()),
    ]


def behind_steps(shape: Shape) -> list[Step]:
    """The state behind the step, where it could not be encoded before: the position was not known yet."""
    if not shape.sees_position:
        return []
    return [
        *follow_market(shape),
        Stage("snap_feature_assemble_batched", {**_NEXT, **_ONE_WINDOW, **_INTO_NEXT}),
        Stage("rl_encoder_context_broadcast", {**_NEXT, **_INTO_NEXT}),
        *learn.next_window_forward(shape),
    ]


def follow_market(shape: Shape) -> list[Step]:
    """A row's own streaming features move on by the step that was just played."""
    return [Stage("rl_multires_features_update", _NEXT)] if shape.sees_position else []


def _windows(shape: Shape) -> list[Step | Fused]:
    """Windows of K + T snapshots with their gaps, and rows that are ready to play."""
    gaps = learn.gaps(shape)
    steps = (Stage("snap_feature_assemble_batched", _NOW), *rollout.iteration_begin(), *gaps)
    return [Fused((Stage("rl_windows", _NOW),), steps, exact=True)] if gaps else [*steps]


def _window_now() -> list[Step]:
    return [
        Stage("snap_feature_assemble_batched", {**_NOW, **_ONE_WINDOW}),
        *rollout.iteration_begin(),
        Stage("rl_multires_features_update", _NOW),
        Stage("rl_encoder_context_broadcast", _NOW),
    ]
