"""Adam over lists of tensors: one compiled function an update, with the encoder's clip or the Polyak averages in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from foxhunt_cli.bench.peer_encoder import Compiler
from foxhunt_cli.bench.peer_rules import Rules
from foxhunt_cli.bench.peer_weights import Weights


class Adam:
    """Moments and step count of ``weights``, and what happens in the same update.

    rates: learning rate by name. clipped: so many tensors from the first share one global norm, at most
    GRAD_CLIP_NORM. targets: tensors by the weights' names that follow them by TARGET_TAU.
    """

    def __init__(
        self, weights: Weights, rates: Mapping[str, float], rules: Rules, compiled: Compiler, *, clipped: int = 0,
        targets: Weights | None = None,
    ) -> None:  # fmt: skip
        self.weights = list(weights.values())
        self._rates = [-rates[name] for name in weights]
        self._rules, self._clipped = rules, clipped
        self._targets = [targets[name] for name in weights] if targets else []
        self._m, self._v = ([torch.zeros_like(w) for w in self.weights] for _ in range(2))
        self._step = torch.zeros((), device=self.weights[0].device)
        self._update = compiled(self._updated)

    def step(self, loss: Tensor) -> None:
        """Gradients of ``loss`` and one update."""
        self.apply(torch.autograd.grad(loss, self.weights))

    def apply(self, grads: Sequence[Tensor]) -> None:
        """One update from ``grads``, in the order of ``weights``."""
        with torch.no_grad():
            self._update(list(grads), self.weights, self._m, self._v, self._step, self._targets)

    def _updated(
        self, grads: list[Tensor], weights: list[Tensor], m: list[Tensor], v: list[Tensor], step: Tensor,
        targets: list[Tensor],
    ) -> None:  # fmt: skip
        rules, clipped = self._rules, self._clipped
        if clipped:
            norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads[:clipped])))
            factor = (rules.grad_clip_norm / norm).clamp(max=1.0)
            grads = [*torch._foreach_mul(grads[:clipped], factor), *grads[clipped:]]
        step.add_(1.0)
        torch._foreach_lerp_(m, grads, 1.0 - rules.adam_beta1)
        torch._foreach_mul_(v, rules.adam_beta2)
        torch._foreach_addcmul_(v, grads, grads, 1.0 - rules.adam_beta2)
        below = torch._foreach_mul(torch._foreach_sqrt(v), torch.rsqrt(1.0 - rules.adam_beta2**step))
        change = torch._foreach_div(m, torch._foreach_add(below, rules.adam_eps))
        change = torch._foreach_mul(change, 1.0 / (1.0 - rules.adam_beta1**step))
        torch._foreach_add_(weights, torch._foreach_mul(change, self._rates))
        if targets:
            torch._foreach_lerp_(targets, weights, rules.target_tau)
