"""What decides the ordered list: the sizes that unroll it and the choices that change it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """Sizes and choices of one run.

    rollout: T. batch: B. encoder: "mlp" or "full". updates: U, replay updates an iteration; 0 = no critic.
    replay_batch: R. capacity: slots of the replay. supervised: the heads that learn from labels.
    """

    rollout: int
    batch: int = 16
    encoder: str = "full"
    updates: int = 4
    replay_batch: int = 256
    capacity: int = 32_768
    supervised: bool = True

    @property
    def critic(self) -> bool:
        """Whether there is a critic at all."""
        return self.updates > 0
