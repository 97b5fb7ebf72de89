"""One environment step of all rows in PyTorch: draw, order, fill, position, money, reward, trade context; then GAE.

Orders fill whole at the best price of the next snapshot (latency 1), without the walk through ten levels, units, stops,
minimum hold or heat cap: a row holds one position with an average entry price.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from foxhunt_cli.bench.peer_heads import floored, pick, with_context
from foxhunt_cli.bench.peer_rules import Rules, Sizes

_AGE_SCALE, _R_LIMIT, _SIGMA_LIMIT, _RISK_FLOOR = 256.0, 10.0, 16.0, 1e-6
_VOLATILITY_HORIZON = 10.0  # s: the initial trail is the volatility over so long


class Account(NamedTuple):
    """What a row holds, each [B] float32; all but cash and sides is of the open trade and 0 when flat."""

    lots: Tensor  # signed
    basis: Tensor  # signed lots x average entry price, ticks x lots
    cash: Tensor  # minus the sum of price x signed lots filled, ticks x lots
    sides: Tensor  # lots filled: fees = fee x this
    age: Tensor  # steps
    best: Tensor  # best mid, ticks
    risk: Tensor  # initial distance of the trail, ticks
    pnl: Tensor  # realised by partial closes, net of all fees, USD
    most: Tensor  # largest |lots|


class Quote(NamedTuple):
    """The market of a step, each [B]: the mid it begins at, and the book that fills and ends it."""

    mid: Tensor
    bid: Tensor
    ask: Tensor
    next_mid: Tensor
    volatility: Tensor
    last: Tensor  # bool, last step of the row's episode: the position is closed


class Moment(NamedTuple):
    """What a step leaves for learning, each [B] but for context [B, 3]."""

    block: Tensor  # int64, block of the position class before the step
    action: Tensor  # int64, drawn
    log_prob: Tensor
    context: Tensor  # before the step
    reward: Tensor  # scaled
    closed: Tensor  # bool, the position reached zero or changed sign
    outcome: Tensor  # int64: 0 loss, 1 scratch, 2 win of the trade that closed; -1 = none
    pnl_usd: Tensor  # change of equity


def flat(rows: int, device: torch.device) -> Account:
    """Accounts that never traded."""
    return Account(*(torch.zeros(rows, device=device) for _ in Account._fields))


def block_of(lots: Tensor, sizes: Sizes) -> Tensor:
    """Block of the heads that a position uses, int64."""
    return (lots.long() + sizes.lot_limit) if sizes.P > 1 else torch.zeros_like(lots, dtype=torch.int64)


def act(logits: Tensor, race: Tensor, p_min: float) -> tuple[Tensor, Tensor]:
    """Draws from logits [B, 11] by a race of exponentials (race [B, 11]); actions and their log-probabilities."""
    prob = floored(logits, p_min)
    action = (prob / race).argmax(-1)
    return action, torch.log(prob.gather(1, action[:, None])[:, 0])


def step(
    account: Account, context: Tensor, out: Tensor, w_context: Tensor, race: Tensor, quote: Quote, *, next_lots: Tensor,
    rules: Rules, sizes: Sizes,
) -> tuple[Account, Tensor, Moment]:  # fmt: skip
    """out [B, columns] of the heads, without the context's term; next_lots [2 L + 1, 11] position after an action."""
    block = block_of(account.lots, sizes)
    logits = pick(with_context(out, context, w_context, sizes)[0], block)
    action, log_prob = act(logits, race, rules.p_min)
    wanted = next_lots[account.lots.long() + sizes.lot_limit].gather(1, action[:, None])[:, 0]
    after, closed, closed_pnl, closed_most, pnl_usd = fill(
        account, torch.where(quote.last, 0.0, wanted), quote, rules, sizes
    )
    paid = closed_pnl if sizes.realised_reward else pnl_usd
    reward = (paid * rules.reward_scale).clamp(-rules.reward_clamp_loss, rules.reward_clamp_win)
    kind = torch.where(closed_pnl > 0, 2, 0)
    kind = torch.where(closed_pnl.abs() < sizes.tick_value_usd * closed_most.clamp(min=1.0), 1, kind)
    outcome = torch.where(closed, kind, -1)
    moment = Moment(block, action, log_prob, context, reward, closed, outcome, pnl_usd)
    return after, trade_context(after, quote.next_mid), moment


def fill(
    a: Account, target: Tensor, quote: Quote, rules: Rules, sizes: Sizes
) -> tuple[Account, Tensor, Tensor, Tensor, Tensor]:
    """The account behind an order to ``target`` lots, closed, the closed trade's PnL and largest size, equity's change.

    A flip is a close, then an open. PnL and equity in USD.
    """
    change = target - a.lots
    size, side = change.abs(), torch.sign(change)
    price = torch.where(change > 0, quote.ask, quote.bid)
    closing = torch.where(a.lots * change < 0, torch.minimum(a.lots.abs(), size), 0.0)
    opening = size - closing
    closed = (a.lots != 0) & (target * a.lots <= 0)
    opens = (target != 0) & ((a.lots == 0) | closed)
    released = a.basis * closing / a.lots.abs().clamp(min=1.0)
    gross = -side * closing * price - released
    basis = torch.where(target == 0, 0.0, a.basis - released + side * opening * price)
    pnl = a.pnl + gross * sizes.tick_value_usd - closing * sizes.fee_usd
    fees = opening * sizes.fee_usd
    risk = (rules.trail_k_init * _VOLATILITY_HORIZON**0.5 * quote.volatility).clamp(rules.trail_min, rules.trail_max)
    direction = torch.sign(target)
    seen = torch.where(
        opens, quote.next_mid, torch.where(direction * a.best > direction * quote.next_mid, a.best, quote.next_mid)
    )
    held = target != 0
    after = Account(
        lots=target,
        basis=basis,
        cash=a.cash - change * price,
        sides=a.sides + size,
        age=torch.where(held & ~opens, a.age + 1.0, 0.0),
        best=torch.where(held, seen, 0.0),
        risk=torch.where(opens, risk, torch.where(held, a.risk, 0.0)),
        pnl=torch.where(held, torch.where(opens, 0.0, pnl) - fees, 0.0),
        most=torch.where(opens, target.abs(), torch.where(held, torch.maximum(a.most, target.abs()), 0.0)),
    )
    moved = target * quote.next_mid - a.lots * quote.mid - change * price
    pnl_usd = moved * sizes.tick_value_usd - size * sizes.fee_usd
    return after, closed, torch.where(closed, pnl, 0.0), torch.where(closed, a.most, 0.0), pnl_usd


def trade_context(a: Account, mid: Tensor) -> Tensor:
    """[B, 3]: time in trade / 256, unrealised R, drawdown from the trade's best in R; 0 when flat."""
    risk = (a.risk * a.lots.abs()).clamp(min=_RISK_FLOOR)
    parts = (
        a.age / _AGE_SCALE,
        ((a.lots * mid - a.basis) / risk).clamp(-_R_LIMIT, _R_LIMIT),
        (a.lots * (a.best - mid) / risk).clamp(-_R_LIMIT, _R_LIMIT),
    )
    return torch.where((a.lots != 0)[:, None], torch.stack(parts, -1), 0.0)


def encoder_context(a: Account, mid: Tensor, rules: Rules, sizes: Sizes) -> Tensor:
    """[B, 4], columns 40..43 of an encoder that sees the position: time, R, signed lots, distance in sigma."""
    away = mid - a.basis / torch.where(a.lots == 0, 1.0, a.lots)
    unrealised = torch.sign(a.lots) * away / a.risk.clamp(min=_RISK_FLOOR)
    parts = (
        a.age / _AGE_SCALE,
        unrealised.clamp(-_R_LIMIT, _R_LIMIT),
        a.lots / sizes.lot_limit,
        (away / max(rules.frd_sigma_medium, _RISK_FLOOR)).clamp(-_SIGMA_LIMIT, _SIGMA_LIMIT),
    )
    return torch.where((a.lots != 0)[:, None], torch.stack(parts, -1), 0.0)


def advantages(reward: Tensor, value: Tensor, closed: Tensor, rules: Rules, sizes: Sizes) -> tuple[Tensor, Tensor]:
    """GAE and value targets [T, B] of reward [T, B] and value [T+1, B], in units of the scaled reward.

    Closes are terminal where the reward is realised at the close (then T = 1 and nothing is summed over time).
    """
    steps = len(reward)
    keep = rules.gamma * (~closed).to(reward.dtype) if sizes.realised_reward else rules.gamma
    delta = reward + keep * value[1:] - value[:-1]
    later = torch.arange(steps, device=reward.device)
    lag = (later[None] - later[:, None]).to(reward.dtype)
    weight = torch.where(lag >= 0, (rules.gamma * rules.gae_lambda) ** lag.clamp(min=0), 0.0)
    advantage = weight @ delta
    return advantage, (advantage + value[:-1]).clamp(-rules.v_target_clamp, rules.v_target_clamp)
