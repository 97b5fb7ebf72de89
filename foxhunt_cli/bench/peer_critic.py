"""The critic in PyTorch: C51 with noisy weights, IQN, path targets, and their losses.

Formulas are those of ``cuda_src/nets/{c51,iqn,noise}.cu`` and ``cuda_src/replay/path_targets.cu``. As in ours one
set of taus serves a batch, so that IQN is linear in its embedding: its expectation is one product, its quantiles are
one product with the embedding multiplied into the weights, and no [rows, taus, 128] exists.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from foxhunt_cli.bench.peer_heads import pick
from foxhunt_cli.bench.peer_market import Market
from foxhunt_cli.bench.peer_rules import ACTIONS, ATOMS, Rules, Sizes
from foxhunt_cli.bench.peer_weights import Weights
from foxhunt_cli.nets.iqn import COSINES


class Draws(NamedTuple):
    """What an update draws: noise f(e) of inputs, then outputs, for either head [128 + columns]; two sets of taus."""

    online: Tensor
    target: Tensor
    tau: Tensor  # [N_TAU] of the predictions
    next_tau: Tensor  # [N_TAU] of the targets


class Batch(NamedTuple):
    """A replay batch of R rows. value: path targets R(p, a) [R, P*11], or n-step returns [R] of the executed action."""

    h: Tensor  # [R, 128]
    next_h: Tensor  # [R, 128]
    block: Tensor  # [R] int64, block of the position class
    action: Tensor  # [R] int64, executed; not read with path targets
    value: Tensor
    keep: Tensor  # [R] gamma^n, 0 at a terminal
    weight: Tensor  # [R] importance


def draw(p: Weights, taus: int) -> Draws:
    """Fresh noise, and two sets of so many taus."""
    w = p["w_c51"]
    online, target = (torch.randn(sum(w.shape), dtype=w.dtype, device=w.device) for _ in range(2))
    drawn = torch.rand(2, taus, dtype=w.dtype, device=w.device)
    return Draws(*(torch.sign(e) * torch.sqrt(torch.abs(e)) for e in (online, target)), drawn[0], drawn[1])


def noisy(p: Weights, noise: Tensor) -> tuple[Tensor, Tensor]:
    """C51's weights and biases under factorised noise."""
    inputs, outputs = noise[: len(p["w_c51"])], noise[len(p["w_c51"]) :]
    return p["w_c51"] + p["sw_c51"] * (inputs[:, None] * outputs), p["b_c51"] + p["sb_c51"] * outputs


def atom_logits(h: Tensor, w: Tensor, b: Tensor, blocks: int) -> Tensor:
    """h [n, 128] -> [n, P, 11, 21]."""
    return torch.addmm(b, h, w)[:, : blocks * ACTIONS * ATOMS].unflatten(-1, (blocks, ACTIONS, ATOMS))


def expected(logits: Tensor, rules: Rules) -> Tensor:
    """E[Q] over the atoms."""
    atoms = torch.linspace(rules.c51_v_min, rules.c51_v_max, ATOMS, dtype=logits.dtype, device=logits.device)
    return (torch.softmax(logits, -1) * atoms).sum(-1)


def embedding(p: Weights, tau: Tensor) -> Tensor:
    """phi [taus, 128]."""
    waves = torch.arange(COSINES, dtype=tau.dtype, device=tau.device) * math.pi
    return torch.relu(torch.cos(tau[:, None] * waves) @ p["w_iqn_phi"] + p["b_iqn_phi"])


def iqn_expected(p: Weights, h: Tensor, blocks: int, taus: int) -> Tensor:
    """E[IQN] over ``taus`` midpoints of every class and action, [n, P, 11]."""
    tau = (torch.arange(taus, dtype=h.dtype, device=h.device) + 0.5) / taus
    mean = p["w_iqn"] * embedding(p, tau).mean(0)[:, None]
    return torch.addmm(p["b_iqn"], h, mean)[:, : blocks * ACTIONS].unflatten(-1, (blocks, ACTIONS))


def iqn_quantiles(p: Weights, h: Tensor, tau: Tensor, blocks: int) -> Tensor:
    """Quantiles of every class and action, [n, taus, P, 11]."""
    columns = p["w_iqn"].shape[1]
    by_tau = embedding(p, tau).t()[:, :, None] * p["w_iqn"][:, None]
    z = (h @ by_tau.flatten(1)).unflatten(-1, (len(tau), columns)) + p["b_iqn"]
    return z[..., : blocks * ACTIONS].unflatten(-1, (blocks, ACTIONS))


def ensemble(p: Weights, h: Tensor, rules: Rules, sizes: Sizes) -> Tensor:
    """alpha E[C51] + (1 - alpha) E[IQN] of every class and action without noise, [n, P, 11]."""
    c51 = expected(atom_logits(h, p["w_c51"], p["b_c51"], sizes.P), rules)
    return torch.lerp(iqn_expected(p, h, sizes.P, sizes.N_TAU), c51, rules.ensemble_alpha)


def project(value: Tensor, keep: Tensor, prob: Tensor, rules: Rules) -> Tensor:
    """Distribution of value + keep Z on the atoms, Z ~ prob: mass between two atoms is split linearly.

    value, keep [...]; prob [..., 21]. Mass that lands outside the span goes to its ends.
    """
    low, high = rules.c51_v_min, rules.c51_v_max
    atom = torch.arange(ATOMS, dtype=value.dtype, device=value.device)
    first = (value + (keep - 1.0) * low) * ((ATOMS - 1) / (high - low))  # where atom 0 lands, in atoms
    place = (first[..., None] + keep[..., None] * atom).clamp(0, ATOMS - 1)
    below = place.floor().clamp(max=ATOMS - 2)
    above, below = (place - below) * prob, below.long()
    target = torch.zeros_like(place).scatter_add_(-1, below, prob - above)
    return target.scatter_add_(-1, below + 1, above)


def quantile_huber(z: Tensor, target: Tensor, tau: Tensor) -> Tensor:
    """Sum over the quantiles z [..., taus] of the mean over ``target`` [..., taus] of the quantile Huber loss."""
    z, target = torch.broadcast_tensors(z[..., None], target[..., None, :])
    side = torch.where(target < z, 1.0 - tau[:, None], tau[:, None])
    return (side * F.smooth_l1_loss(z, target, reduction="none")).mean(-1).sum(-1)


def path_losses(
    p: Weights, target: Weights, batch: Batch, draws: Draws, next_class: Tensor, rules: Rules, sizes: Sizes
) -> tuple[Tensor, Tensor]:
    """C51 cross-entropy [R], mean over every class and action, and IQN's loss [R] at the visited class.

    next_class [P, 11] int64: class after each action from each class.
    """
    value, keep = batch.value.unflatten(-1, (sizes.P, ACTIONS)), batch.keep
    w, b = noisy(p, draws.online)
    with torch.no_grad():
        best = expected(atom_logits(batch.next_h, w, b, sizes.P), rules).argmax(-1)  # [R, P]
        later = atom_logits(batch.next_h, *noisy(target, draws.target), sizes.P)
        prob = torch.softmax(pick(later.flatten(0, 1), best.flatten()), -1).unflatten(0, best.shape)
        projected = project(value, keep[:, None, None].expand_as(value), prob[:, next_class], rules)
        to = next_class[batch.block]  # [R, 11]
        chosen = to * ACTIONS + iqn_expected(p, batch.next_h, sizes.P, sizes.N_TAU).argmax(-1).gather(1, to)
        later = iqn_quantiles(target, batch.next_h, draws.next_tau, sizes.P).flatten(2)
        later = later.gather(2, chosen[:, None].expand(-1, sizes.N_TAU, -1)).transpose(1, 2)  # [R, 11, taus]
        wanted = pick(value, batch.block)[..., None] + keep[:, None, None] * later
    logits = atom_logits(batch.h, w, b, sizes.P)
    c51 = -(projected * torch.log_softmax(logits, -1)).sum(-1).mean((1, 2))
    z = iqn_quantiles(p, batch.h, draws.tau, sizes.P).transpose(1, 2)  # [R, P, taus, 11]
    return c51, quantile_huber(pick(z, batch.block).transpose(1, 2), wanted, draws.tau).mean(1)


def executed_losses(
    p: Weights, target: Weights, batch: Batch, draws: Draws, rules: Rules, sizes: Sizes
) -> tuple[Tensor, Tensor]:
    """The same for the executed action alone, with one block: the encoding knows the position."""
    w, b = noisy(p, draws.online)
    with torch.no_grad():
        best = expected(atom_logits(batch.next_h, w, b, 1), rules)[:, 0].argmax(-1)
        later = pick(atom_logits(batch.next_h, *noisy(target, draws.target), 1)[:, 0], best)
        projected = project(batch.value, batch.keep, torch.softmax(later, -1), rules)
        best = iqn_expected(p, batch.next_h, 1, sizes.N_TAU)[:, 0].argmax(-1)
        later = pick(iqn_quantiles(target, batch.next_h, draws.next_tau, 1)[:, :, 0].transpose(1, 2), best)
        wanted = batch.value[:, None] + batch.keep[:, None] * later
    logits = pick(atom_logits(batch.h, w, b, 1)[:, 0], batch.action)
    z = pick(iqn_quantiles(p, batch.h, draws.tau, 1)[:, :, 0].transpose(1, 2), batch.action)
    return -(projected * torch.log_softmax(logits, -1)).sum(-1), quantile_huber(z, wanted, draws.tau)


def path_returns(index: Tensor, market: Market, next_lots: Tensor, rules: Rules, sizes: Sizes) -> Tensor:
    """R(p, a) [R, P*11] of every class and action from snapshots ``index`` [R], scaled reward; latency 1.

    The position is held over the first mid change, the one after the action over the other n - 1; the order pays half
    the spread of the next snapshot and the fees. next_lots [P, 11].
    """
    ahead = torch.arange(int(rules.n_step) + 1, device=index.device)
    mid = market.mid[index[:, None] + ahead]
    change = (mid[:, 1:] - mid[:, :-1]) * rules.gamma ** ahead[:-1]
    first, rest = change[:, :1, None], change[:, 1:].sum(1)[:, None, None]
    lots = (torch.arange(sizes.P, dtype=mid.dtype, device=index.device) - sizes.lot_limit)[:, None]
    half = 0.5 * (market.ask[index + 1] - market.bid[index + 1]) * sizes.tick_value_usd + sizes.fee_usd
    gain = sizes.tick_value_usd * (lots * first + next_lots * rest)
    return rules.reward_scale * (gain - half[:, None, None] * (next_lots - lots).abs()).flatten(1)


def critic_loss(c51: Tensor, iqn: Tensor, weight: Tensor, rules: Rules) -> Tensor:
    """The loss of an update from both losses of its rows."""
    return rules.loss_lambda_q * (weight * (c51 + iqn)).mean()
