"""The list that judges the supervised heads on data they never saw: encodings, outputs, labels; nothing learns."""

from __future__ import annotations

from foxhunt_cli.nets import direction, frd
from foxhunt_cli.pipeline import encoding
from foxhunt_cli.pipeline.shape import Shape
from foxhunt_cli.pipeline.stage import Fused, Stage, Step, chosen

OUTPUTS = ("frd_prob", "frd_target", "direction_logits", "direction_target")


def judging(shape: Shape) -> list[Step]:
    """One iteration of T snapshots a row: OUTPUTS of each."""
    steps: list[Step | Fused] = [
        *encoding.before_steps(shape, draw_episodes=False, policy=True, features=False),
        Stage("gpu_gather_frd_labels"),
        *frd.forward(),
        *direction.forward(),
        *encoding.follow_market(shape),
        Stage("gpu_advance_cursor"),
    ]
    return chosen(steps, shape.fusion)
