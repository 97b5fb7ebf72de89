"""What decides the ordered list: the sizes that unroll it and the choices that change it."""

from __future__ import annotations

from dataclasses import dataclass

from foxhunt_cli.pipeline.stage import Fusion


@dataclass(frozen=True)
class Shape:
    """Sizes and choices of one run."""

    rollout: int
    """T: environment steps of an iteration."""
    batch: int = 16
    """B: rows."""
    encoder: str = "full"
    """"mlp" or "full"."""
    context: str = "heads"
    """Where the position enters: "heads" (encodings are market-only) or "encoder" (one step an iteration)."""
    updates: int = 4
    """U: replay updates an iteration; 0 = no critic."""
    replay_batch: int = 256
    """R: transitions of a replay batch."""
    capacity: int = 32_768
    """C: slots of the replay."""
    n_step: int = 8
    """Steps of a replay window, at most: what it begins with where it is annealed."""
    fresh: bool = False
    """Sampled moments are encoded anew instead of learned from as they were stored."""
    hindsight: str = "path"
    """What the critic learns from and hindsight adds: "none", "close", "peak" or "path"."""
    directions: str = "both"
    """Which hindsight adds transitions: "both", "backward", "forward" or "off"."""
    passes: int = 1
    """On-policy passes over an iteration's rows, at most; slot ROLLOUT_STEPS decides where its controller runs."""
    supervised: bool = True
    """The heads that learn from labels (forward returns, direction, outcome)."""
    entry_gates: bool = False
    """The confidence and forward-return gates judge what the policy drew."""
    frozen: frozenset[str] = frozenset()
    """Controllers that do not run: their slots keep their seeds."""
    plateau: bool = False
    """The learning rate halves when a loss stands still."""
    every_class: bool = True
    """The critic teaches the policy every position class, with a gap-scaled temperature, not the row's own alone."""
    distils: bool = True
    """The critic teaches the policy at all."""
    quantiles: bool = True
    """The critic has a quantile head (IQN) beside C51."""
    noisy: bool = True
    """C51 learns under noise on its weights."""
    critic_teaches_encoder: bool = False
    """The critic's loss on the iteration's own moments gives the encoder a gradient as well."""
    reproject: bool = True
    """The critic's distributions stay where they were when the atom span grows."""
    fusion: Fusion = "none"
    """Which fused kernels stand for the steps they do at once."""

    @property
    def sees_position(self) -> bool:
        """Whether the encoding knows the position: windows are encoded one by one, heads have one block."""
        return self.context == "encoder"

    @property
    def features(self) -> str:
        """Buffer of the encodings that the critic sees: the target encoder's where they are market-only."""
        return "h" if self.sees_position else "target_h"

    @property
    def critic(self) -> bool:
        """Whether there is a critic at all."""
        return self.updates > 0

    @property
    def drifts(self) -> bool:
        """Whether stored encodings can be made again, and so how far they have drifted can be measured."""
        return self.critic and not self.sees_position

    @property
    def path(self) -> bool:
        """Whether the critic learns every class and action from the price path, not the executed action alone."""
        return self.hindsight == "path"

    @property
    def injects(self) -> bool:
        """Whether hindsight adds transitions to the replay."""
        return self.critic and self.hindsight != "none" and self.directions != "off"
