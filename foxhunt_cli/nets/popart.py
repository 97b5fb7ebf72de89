"""PopArt: running moments of the returns; the value head is rescaled so that its outputs stay what they were."""

from __future__ import annotations

from foxhunt_cli.nets.target import NONFINITE_POPART
from foxhunt_cli.pipeline.stage import Stage, Step


def update() -> list[Step]:
    """Moments towards those of this iteration's returns; w_v, b_v, w_v_ctx rescaled. Once an iteration."""
    sizes = {"n_w": "HIDDEN_DIM*P", "n_b": "P", "n_ctx": "HEAD_CONTEXT_DIM*P"}
    return [Stage("rl_popart_update", {"moments": "adv_moments", "part": NONFINITE_POPART, **sizes})]
