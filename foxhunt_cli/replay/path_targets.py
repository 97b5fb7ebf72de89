"""Steps of the path targets: what every position and action would have earned from a stored moment."""

from __future__ import annotations

from foxhunt_cli.pipeline.stage import Stage, Step


def table() -> list[Step]:
    """next_class [P, 11], once an iteration (its slots are constant in a run)."""
    return [Stage("rl_path_next_class")]


def targets() -> list[Step]:
    """path_return [R, P*11] and path_discount [R] of the batch just sampled."""
    return [Stage("rl_path_targets")]
