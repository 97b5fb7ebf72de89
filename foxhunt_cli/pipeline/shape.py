"""What decides the ordered list: the sizes that unroll it and the choices that change it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """rollout: T. encoder: "mlp" or "full". supervised: the heads that learn from labels (FRD, direction, outcome)."""

    rollout: int
    encoder: str = "full"
    supervised: bool = True
