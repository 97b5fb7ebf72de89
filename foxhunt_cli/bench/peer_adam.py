"""Adam over one flat vector: the weights are views of it, so an update is one function of whole vectors.

Clip, moments, weights and Polyak averages are that one function, compiled, whatever the number of tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from foxhunt_cli.bench.peer_encoder import Compiler
from foxhunt_cli.bench.peer_rules import Rules
from foxhunt_cli.bench.peer_weights import Weights

ALIGN = 64
"""Elements: every tensor of a flat vector begins at a multiple of so many."""


def padded(count: int) -> int:
    """``count`` elements and the gap behind them."""
    return -(-count // ALIGN) * ALIGN


def flatten(weights: Mapping[str, Tensor]) -> tuple[Tensor, Weights]:
    """A flat vector that begins with ``weights`` in their order, and the views of it that hold them; gaps are zero."""
    some = next(iter(weights.values()))
    flat = torch.zeros(sum(padded(w.numel()) for w in weights.values()), dtype=some.dtype, device=some.device)
    views, first = {}, 0
    for name, weight in weights.items():
        views[name] = flat[first : first + weight.numel()].view(weight.shape)
        views[name].copy_(weight)
        first += padded(weight.numel())
    return flat, views


class Adam:
    """Holds ``weights`` (its own copies, which are to be used), their moments and step count, and makes updates.

    rates: learning rate by name. clipped: so many tensors from the first share one global norm, at most
    GRAD_CLIP_NORM. targets: a flat vector of the same tensors that follows them by TARGET_TAU.
    """

    def __init__(
        self, weights: Weights, rates: Mapping[str, float], rules: Rules, compiled: Compiler, *, clipped: int = 0,
        targets: Tensor | None = None,
    ) -> None:  # fmt: skip
        self.flat, self.weights = flatten(weights)
        self._grad, grads = flatten({name: torch.zeros_like(w) for name, w in weights.items()})
        self._rate, _ = flatten({name: torch.full_like(w, rates[name]) for name, w in weights.items()})
        self._grads, self._rules, self._targets = list(grads.values()), rules, targets
        self._clipped = sum(padded(w.numel()) for w in list(weights.values())[:clipped])
        self._m, self._v = (torch.zeros_like(self.flat) for _ in range(2))
        self._step = torch.zeros((), device=self.flat.device)
        self._update = compiled(self._updated)
        for weight in self.weights.values():
            weight.requires_grad_()

    def step(self, loss: Tensor) -> None:
        """Gradients of ``loss`` and one update."""
        self.apply(torch.autograd.grad(loss, list(self.weights.values())))

    def apply(self, grads: Iterable[Tensor]) -> None:
        """One update from the gradients of all weights, in their order."""
        with torch.no_grad():
            torch._foreach_copy_(self._grads, list(grads))
            self._update()

    def _updated(self) -> None:
        rules, grad, m, v, step = self._rules, self._grad, self._m, self._v, self._step
        if self._clipped:
            own = grad[: self._clipped]
            own.mul_((rules.grad_clip_norm / torch.linalg.vector_norm(own)).clamp(max=1.0))
        step.add_(1.0)
        m.lerp_(grad, 1.0 - rules.adam_beta1)
        v.mul_(rules.adam_beta2).addcmul_(grad, grad, value=1.0 - rules.adam_beta2)
        below = torch.sqrt(v) * torch.rsqrt(1.0 - rules.adam_beta2**step) + rules.adam_eps
        self.flat.sub_(self._rate * (m / below) / (1.0 - rules.adam_beta1**step))
        if self._targets is not None:
            self._targets.lerp_(self.flat, rules.target_tau)
