"""What both forms of the peer's training iteration share: weights, optimisers, accounts, the market, static buffers.

The peer is our training iteration written for PyTorch as a good engineer would: whole tensors, few and large products,
nothing allocated by Python between iterations, every piece compiled on its own, the whole captured as one CUDA graph.
It takes weights, data and numbers from an engine of ours. What it leaves out: ``LEFT_OUT``.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from foxhunt_cli.bench import peer_account, peer_critic, peer_heads, peer_market, peer_replay, peer_weights
from foxhunt_cli.bench.peer_account import Account, Moment, Quote
from foxhunt_cli.bench.peer_adam import Adam, flatten
from foxhunt_cli.bench.peer_critic import Batch, Draws
from foxhunt_cli.bench.peer_encoder import Compiler, Encoder
from foxhunt_cli.bench.peer_heads import Rows
from foxhunt_cli.bench.peer_rules import Rules, Sizes
from foxhunt_cli.bench.peer_weights import Weights
from foxhunt_cli.train.engine import Engine

LEFT_OUT = (
    "trailing, drawdown and heat stops, minimum hold, entry gates, pyramid units",
    "the walk through ten levels of the book (orders fill at the best price), orders under way",
    "hindsight transitions, shorter windows at the end of an episode",
    "controllers, signals, diagnostics, the check for numbers that are not finite",
    "movement of PopArt and of the atom span, the spectral cap, shaping of the reward",
)
"""What an iteration of ours does and the peer's does not."""


class Iteration:
    """``iterate`` enqueues one iteration. Compiled pieces are attributes with the names of what they compute."""

    def __init__(self, engine: Engine, isv: np.ndarray, updates: int, to: torch.device, compiled: Compiler) -> None:
        self.rules, self.sizes, self.to = Rules.of(isv), Sizes.of(engine.dims, updates), to
        self.market = peer_market.load(engine.device, engine.arrays, to)
        classes = peer_market.next_class(engine.device, isv, self.sizes.lot_limit)
        self.next_class = torch.from_numpy(classes).to(to)
        self.alike = peer_heads.alike(self.next_class) if self.sizes.P > 1 else None
        self.next_lots = (self.next_class - self.sizes.lot_limit).float()
        self.episode_len = int(engine.dims["episode_len"])
        self._load(engine, isv, compiled)
        rows = self.sizes.B
        self.account = peer_account.flat(rows, to)
        self.context = torch.zeros(rows, 3, device=to)
        self.cursor, self.start, self.end = (torch.zeros(rows, dtype=torch.int64, device=to) for _ in range(3))
        self.counted = torch.ones(rows * self.sizes.T, dtype=torch.bool, device=to)
        self.losses = torch.zeros(len(peer_heads.PARTS) + 2, device=to)
        """Of the last iteration: ``peer_heads.PARTS``, then C51 and IQN of its last update."""
        self.replay, self.tail = self.buffers()
        self.encoder = Encoder(compiled)
        self.draw_episodes, self.env_step = compiled(self._draw_episodes), compiled(self._env_step)
        self.ensemble, self.policy_loss = compiled(self._ensemble), compiled(self._policy_loss)
        self.sample, self.critic_loss = compiled(self._sample), compiled(self._critic_loss)
        self.reprioritise = compiled(self._reprioritise)

    def buffers(self) -> tuple[peer_replay.Fields, peer_replay.Fields]:
        """The replay's store, and the moments that wait for their n-th successor."""
        raise NotImplementedError

    def batch(self, fields: peer_replay.Fields, weight: Tensor) -> Batch:
        """What an update learns from the transitions drawn."""
        raise NotImplementedError

    def losses_of(self, batch: Batch, draws: Draws) -> tuple[Tensor, Tensor]:
        """C51 and IQN losses of each row of a batch."""
        raise NotImplementedError

    def _load(self, engine: Engine, isv: np.ndarray, compiled: Compiler) -> None:
        layout = engine.layout
        policy, critic = peer_weights.spans(layout)
        encoder = sum(tensor.encoder for tensor in layout.tensors)  # the first ones

        def load(names: Iterable[str], prefix: str = "") -> Weights:
            return peer_weights.load(engine.device, engine.arrays, names, self.to, prefix)

        held = load(policy)
        still = {} if self.sizes.P > 1 else {"w_context": held.pop("w_context")}
        rates = peer_weights.rates(layout, isv)
        self.policy_adam = Adam(held, rates, self.rules, compiled, clipped=encoder)
        targets, self.target = flatten(load(critic, "target_"))
        self.critic_adam = Adam(load(critic), rates, self.rules, compiled, targets=targets)
        self.policy, self.critic = {**self.policy_adam.weights, **still}, self.critic_adam.weights
        self.to_encoder = peer_heads.encoder_shares(self.sizes, self.rules, self.policy["b_heads"])

    def _draw_episodes(self, cursor: Tensor, start: Tensor, end: Tensor) -> None:
        """A new start for rows whose episode is over; their position was closed in its last step."""
        over = cursor >= end
        fresh = self.market.starts(len(cursor))
        end.copy_(torch.where(over, fresh + self.episode_len, end))
        cursor.copy_(torch.where(over, fresh, cursor))
        start.copy_(torch.where(over, fresh, start))

    def quotes(self, cursor: Tensor, end: Tensor) -> list[Quote]:
        """The market of each of the T steps."""
        market, steps = self.market, self.sizes.T
        at = cursor + torch.arange(steps + 1, device=cursor.device)[:, None]
        mid, bid, ask, volatility = (table[at] for table in (market.mid, market.bid, market.ask, market.volatility))
        last = at[1:] >= end
        return [Quote(mid[t], bid[t + 1], ask[t + 1], mid[t + 1], volatility[t + 1], last[t]) for t in range(steps)]

    def play(self, out: Tensor, quotes: list[Quote]) -> tuple[Moment, Account, Tensor]:
        """T environment steps from head outputs [T, B, columns]: moments [T, B, ...], accounts and contexts behind."""
        account, context, moments = self.account, self.context, []
        race = torch.empty(*out.shape[:2], peer_heads.ACTIONS, device=self.to).exponential_()
        for t, quote in enumerate(quotes):
            account, context, moment = self.env_step(account, context, out[t], race[t], quote)
            moments.append(moment)
        return Moment(*(torch.stack(column) for column in zip(*moments, strict=True))), account, context

    def values(self, out: Tensor, context: Tensor, block: Tensor) -> Tensor:
        """Values of states [n] at their own classes, in units of the scaled reward."""
        raw = peer_heads.with_context(out, context, self.policy["w_context"], self.sizes)[1]
        return self.rules.popart_mean + self.rules.value_sigma * peer_heads.pick(raw, block)

    def rows(self, m: Moment, value: Tensor, ensemble_q: Tensor, cursor: Tensor) -> Rows:
        """What the on-policy losses learn from: moments [T, B, ...], value [T+1, B], ensemble_q [n, P, 11]."""
        advantage, target = peer_account.advantages(m.reward, value, m.closed, self.rules, self.sizes)
        at = (cursor + torch.arange(self.sizes.T, device=self.to)[:, None]).flatten()
        return Rows(
            *(column.flatten() for column in (m.block, m.action, m.log_prob)), self.counted, m.context.flatten(0, 1),
            advantage.flatten(), target.flatten(), ensemble_q, self.market.frd[at], self.market.direction[at],
            m.outcome.flatten(),
        )  # fmt: skip

    def carry(self, account: Account, context: Tensor) -> None:
        """Accounts and contexts for the next iteration."""
        torch._foreach_copy_([*self.account, self.context], [*account, context])

    def update_policy(self, out: Tensor, rows: Rows) -> None:
        """One on-policy update from the head outputs of the rows, through heads and encoder."""
        loss, parts = self.policy_loss(out, rows)
        self.policy_adam.step(loss)
        self.losses[:-2].copy_(parts)

    def update_critic(self) -> None:
        """U replay updates, each with fresh noise and taus, and their priorities."""
        for _ in range(self.sizes.U):
            with torch.no_grad():
                slots, batch = self.sample()
            loss, td, parts = self.critic_loss(batch)
            self.critic_adam.step(loss)
            with torch.no_grad():
                self.reprioritise(slots, td)
        if self.sizes.U:
            self.losses[-2:].copy_(parts)

    def _env_step(
        self, account: Account, context: Tensor, out: Tensor, race: Tensor, quote: Quote
    ) -> tuple[Account, Tensor, Moment]:
        known = {"next_lots": self.next_lots, "rules": self.rules, "sizes": self.sizes}
        return peer_account.step(account, context, out, self.policy["w_context"], race, quote, **known)

    def _ensemble(self, h: Tensor) -> Tensor:
        return peer_critic.ensemble(self.critic, h, self.rules, self.sizes)

    def _policy_loss(self, out: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        return peer_heads.policy_loss(out, self.policy, rows, self.rules, self.sizes, self.alike)

    def _sample(self) -> tuple[Tensor, Batch]:
        slots, weight, fields = peer_replay.sample(self.replay, self.sizes.R, self.rules)
        return slots, self.batch(fields, weight)

    def _critic_loss(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        c51, iqn = self.losses_of(batch, peer_critic.draw(self.critic, self.sizes.N_TAU))
        loss = peer_critic.critic_loss(c51, iqn, batch.weight, self.rules)
        return loss, c51.detach(), torch.stack([c51.mean(), iqn.mean()]).detach()

    def _reprioritise(self, slots: Tensor, td: Tensor) -> None:
        peer_replay.reprioritise(self.replay, slots, td, self.rules)
