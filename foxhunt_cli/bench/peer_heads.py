"""Policy, value and supervised heads in PyTorch: one product for all of them, and the losses of the on-policy update.

Formulas and weights are those of ``cuda_src/nets/{policy,ppo,distill,frd,direction,outcome}.cu``; gradients come from
autograd, so this is also what the tests compare ours with.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from foxhunt_cli.bench.peer_rules import ACTIONS, BUCKETS, HORIZONS, Rules, Sizes
from foxhunt_cli.bench.peer_weights import Weights
from foxhunt_cli.config.dims import STRUCTURE
from foxhunt_cli.nets.outcome import N_OUTCOMES

HOLD = STRUCTURE["ACTION_HOLD"][0]
_STD_FLOOR, _GAP_FLOOR = 1e-6, 1e-6


class Rows(NamedTuple):
    """What the on-policy losses learn from: n = T*B rows, r = t*B + b. Labels below zero: none."""

    block: Tensor  # [n] int64, block of the row's position class
    action: Tensor  # [n] int64, drawn
    log_prob: Tensor  # [n] of the action when it was drawn, nats
    counted: Tensor  # [n] bool, the surrogate counts the row
    context: Tensor  # [n, 3] trade context
    advantage: Tensor  # [n] not normalised
    value_target: Tensor  # [n] scaled reward
    ensemble_q: Tensor  # [n, P, 11] scaled reward
    frd: Tensor  # [n, 3] bucket
    direction: Tensor  # [n, 3] 0 / 1
    outcome: Tensor  # [n] 0, 1, 2


class _Heads(torch.autograd.Function):
    """h W + b. The gradient of h is that of each column times a factor of its own; weights get theirs undiminished."""

    @staticmethod
    def forward(ctx, h, w, b, to_encoder):  # noqa: ANN001
        ctx.save_for_backward(h, w, to_encoder)
        return torch.addmm(b, h, w)

    @staticmethod
    def backward(ctx, grad):  # noqa: ANN001
        h, w, to_encoder = ctx.saved_tensors
        return (grad * to_encoder) @ w.t(), h.t() @ grad, grad.sum(0), None


def head_outputs(p: Weights, h: Tensor, to_encoder: Tensor) -> Tensor:
    """h [rows, 128] -> every head's outputs with their biases [rows, columns]; to_encoder as ``encoder_shares``."""
    return _Heads.apply(h, p["w_heads"], p["b_heads"], to_encoder)


def encoder_shares(sizes: Sizes, rules: Rules, like: Tensor) -> Tensor:
    """What of each output's gradient goes on to the encoder, a factor a column of ``like`` (b_heads)."""
    pi, v, frd, direction, outcome = sizes.head_widths
    factors = [1.0] * (pi + v) + [rules.frd_lambda] * frd + [1.0] * direction + [rules.outcome_lambda] * outcome
    return torch.tensor(factors + [0.0] * (len(like) - len(factors)), dtype=like.dtype, device=like.device)


def with_context(out: Tensor, context: Tensor, w_context: Tensor, sizes: Sizes) -> tuple[Tensor, Tensor]:
    """Policy logits [rows, P, 11] and normalised values [rows, P] of every class under the row's trade context.

    One block (the encoding knows the position) has no context term.
    """
    pi, v = sizes.head_widths[:2]
    outputs = out[:, : pi + v]
    if sizes.P > 1:
        outputs = outputs + sum(context[:, k : k + 1] * w_context[k, : pi + v] for k in range(context.shape[1]))
    return outputs[:, :pi].unflatten(-1, (sizes.P, ACTIONS)), outputs[:, pi:]


def pick(x: Tensor, block: Tensor) -> Tensor:
    """x [n, P, ...] at each row's block [n]."""
    where = block.view(-1, 1, *(1 for _ in x.shape[2:])).expand(-1, 1, *x.shape[2:])
    return x.gather(1, where)[:, 0]


def floored(logits: Tensor, p_min: float) -> Tensor:
    """Probabilities that actions are drawn with."""
    return p_min + (1.0 - ACTIONS * p_min) * torch.softmax(logits, -1)


def kl(p: Tensor, log_q: Tensor) -> Tensor:
    """KL(p || q) over the last axis, nats."""
    return (torch.xlogy(p, p) - p * log_q).sum(-1)


def labelled_mean(loss: Tensor, label: Tensor) -> Tensor:
    """Mean of ``loss`` where ``label`` is not below zero; 0 where nothing is labelled."""
    known = label >= 0
    return (loss * known).sum() / known.sum().clamp(min=1)


def surrogate(own: Tensor, rows: Rows, rules: Rules) -> tuple[Tensor, Tensor]:
    """Clipped surrogate over the counted rows, and the softmax's entropy, at the rows' own logits [n, 11]."""
    count = rows.counted.sum().clamp(min=1)
    mean = (rows.advantage * rows.counted).sum() / count
    spread = torch.sqrt(((rows.advantage - mean).square() * rows.counted).sum() / count) + _STD_FLOOR
    advantage = torch.where(count > 1, (rows.advantage - mean) / spread, rows.advantage)
    drawn = floored(own, rules.p_min).gather(1, rows.action[:, None])[:, 0]
    ratio = torch.exp(torch.log(drawn) - rows.log_prob)
    ratio = ratio.clamp(1.0 / rules.ppo_ratio_clamp_max, rules.ppo_ratio_clamp_max)
    clipped = ratio.clamp(1.0 - rules.ppo_clip_eps, 1.0 + rules.ppo_clip_eps)
    loss = -torch.minimum(ratio * advantage, clipped * advantage)
    log_soft = torch.log_softmax(own, -1)
    return (loss * rows.counted).sum() / count, -(log_soft.exp() * log_soft).sum(-1).mean()


def alike(next_class: Tensor) -> Tensor:
    """[P, 11, 11] 0 or 1: actions of a class that lead to the same position; next_class [P, 11]."""
    return (next_class[:, :, None] == next_class[:, None, :]).float()


def teaching(logits: Tensor, rows: Rows, rules: Rules, same: Tensor | None) -> Tensor:
    """Distillation of the ensemble's values into every block [n, P, 11]; its temperature follows the action gap.

    same: as ``alike``: what such actions are to have together each gets in proportion to what it has. With one block
    there is none, and the temperature is the slot's own.
    """
    q, temperature = rows.ensemble_q, rules.q_distill_temperature
    best = q.amax(-1, keepdim=True)
    if same is None:
        return kl(torch.softmax((q - best) / temperature, -1), torch.log_softmax(logits, -1)).mean()
    temperature = temperature * (best[..., 0] - q.mean(-1)).mean().clamp(min=_GAP_FLOOR)
    soft = torch.softmax(logits.detach(), -1)
    target = torch.softmax((q - best) / temperature, -1)
    wanted, held = ((p[..., None] * same).sum(-2) for p in (target, soft))
    return kl(wanted * soft / held, torch.log_softmax(logits, -1)).mean()


def reference(own: Tensor, rules: Rules) -> Tensor:
    """KL of the reference policy from the rows' own."""
    rest = (1.0 - rules.kl_ref_hold) / (ACTIONS - 1)
    policy = own.new_full((ACTIONS,), rest)
    policy[HOLD] = rules.kl_ref_hold
    return kl(policy, torch.log_softmax(own, -1)).mean()


def supervised(out: Tensor, p: Weights, rows: Rows, sizes: Sizes) -> tuple[Tensor, Tensor, Tensor]:
    """Losses of the forward-return, direction and outcome heads, means over their labels."""
    _, _, frd, direction, outcome = out[:, : sum(sizes.head_widths)].split(list(sizes.head_widths), -1)
    logits = torch.addmm(p["b_frd2"], torch.relu(frd), p["w_frd2"]).view(-1, BUCKETS)
    label = rows.frd.reshape(-1)
    buckets = F.cross_entropy(logits, label.clamp(min=0), reduction="none")
    up = F.binary_cross_entropy_with_logits(direction, rows.direction.clamp(min=0).to(out.dtype), reduction="none")
    own = pick(outcome.unflatten(-1, (sizes.P, N_OUTCOMES)), rows.block)
    kinds = F.cross_entropy(own, rows.outcome.clamp(min=0), reduction="none")
    return (
        labelled_mean(buckets, label),
        labelled_mean(up.reshape(len(out), HORIZONS), rows.direction),
        labelled_mean(kinds, rows.outcome),
    )


def policy_loss(
    out: Tensor, p: Weights, rows: Rows, rules: Rules, sizes: Sizes, same: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The on-policy loss of outputs ``out`` [n, columns], and its parts without weights, in the order of PARTS.

    same: as in ``teaching``.
    """
    logits, values = with_context(out, rows.context, p["w_context"], sizes)
    own = pick(logits, rows.block)
    pi, entropy = surrogate(own, rows, rules)
    target = (rows.value_target - rules.popart_mean) / rules.value_sigma
    v = F.smooth_l1_loss(pick(values, rows.block), target)
    distilled, ref = teaching(logits, rows, rules, same), reference(own, rules)
    frd, direction, outcome = supervised(out, p, rows, sizes)
    loss = (
        rules.loss_lambda_pi * (pi - rules.entropy_coef * entropy)
        + rules.loss_lambda_v * v
        + rules.q_distill_lambda * distilled
        + rules.kl_ref_beta * ref
        + rules.loss_lambda_aux * (frd + outcome)
        + rules.loss_lambda_bce * direction
    )
    return loss, torch.stack([pi, entropy, v, distilled, ref, frd, direction, outcome]).detach()


PARTS = ("surrogate", "entropy", "value", "distillation", "reference", "frd", "direction", "outcome")
