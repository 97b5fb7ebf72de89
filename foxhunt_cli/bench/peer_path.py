"""The peer's iteration in the form of preset foxhunt: market-only encodings, T steps, path targets.

One pass over K + T snapshots encodes all T + 1 states of a row, with gradient; a second by the target encoder gives the
critic its features.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from foxhunt_cli.bench import peer_critic, peer_heads, peer_replay, peer_weights
from foxhunt_cli.bench.peer_account import Moment, Quote, block_of
from foxhunt_cli.bench.peer_adam import flatten
from foxhunt_cli.bench.peer_base import Iteration
from foxhunt_cli.bench.peer_critic import Batch, Draws
from foxhunt_cli.bench.peer_encoder import Compiler, H
from foxhunt_cli.bench.peer_heads import Rows
from foxhunt_cli.train.engine import Engine


class PathIteration(Iteration):
    """One iteration of B rows and T steps, with U replay updates of R transitions."""

    def __init__(self, engine: Engine, isv: np.ndarray, updates: int, to: torch.device, compiled: Compiler) -> None:
        super().__init__(engine, isv, updates, to, compiled)
        encoder = [tensor.name for tensor in engine.layout.tensors if tensor.encoder]
        loaded = peer_weights.load(engine.device, engine.arrays, encoder, to, "target_")
        self.followers, views = flatten(loaded)
        self.target |= views
        self.window, self.settle, self.push = map(compiled, (self._window, self._settle, self._push))

    def buffers(self) -> tuple[peer_replay.Fields, peer_replay.Fields]:
        s, waiting = self.sizes, int(self.rules.n_step)
        fields = {"h": ((H,), torch.float32), "next_h": ((H,), torch.float32)}
        fields |= {"index": ((), torch.int64), "block": ((), torch.int64)}
        tail = {
            "h": torch.zeros(waiting, s.B, H, device=self.to),
            "block": torch.zeros(waiting, s.B, dtype=torch.int64, device=self.to),
        }
        return peer_replay.store(s.C, self.rules, self.to, **fields), tail

    def iterate(self, *, critic: bool = True) -> None:
        """Everything of one iteration; without ``critic`` the replay fills and the critic does not learn yet."""
        s = self.sizes
        with torch.no_grad():
            self.draw_episodes(self.cursor, self.start, self.end)
            x, gap, quotes = self.window(self.cursor, self.end)
            h_bar = self.encoder(self.target, x, gap, s.T + 1, learned=0)[: s.T]
        h = self.encoder(self.policy, x, gap, s.T + 1, learned=s.K + s.T - 1)
        out = peer_heads.head_outputs(self.policy, h.flatten(0, 1), self.to_encoder)
        with torch.no_grad():
            acted = out.detach().unflatten(0, (s.T + 1, s.B))
            moments, account, context = self.play(acted[: s.T], quotes)
            q = self.ensemble(h_bar.flatten(0, 1))
            rows = self.settle(out.detach(), moments, account.lots, context, q, self.cursor)
        self.update_policy(out[: s.T * s.B], rows)
        with torch.no_grad():
            self.push(h_bar, moments.block, self.cursor, self.start)
            self.carry(account, context)
        if critic:
            self.update_critic()
        with torch.no_grad():
            self._follow()
            self.cursor += s.T

    def _window(self, cursor: Tensor, end: Tensor) -> tuple[Tensor, Tensor, list[Quote]]:
        """Features [B, K+T, 56], gaps [K+T, B] and the market of each step."""
        s, market = self.sizes, self.market
        at = cursor[:, None] + torch.arange(1 - s.K, s.T + 1, device=cursor.device)
        gap = market.gap[at.t()]
        gap[0] = 0.0
        return market.features[at], gap, self.quotes(cursor, end)

    def _settle(self, out: Tensor, m: Moment, lots: Tensor, context: Tensor, q: Tensor, cursor: Tensor) -> Rows:
        """Values, advantages and labels; lots, context [B, ...] of the bootstrap state."""
        s = self.sizes
        contexts = torch.cat([m.context, context[None]]).flatten(0, 1)
        blocks = torch.cat([m.block, block_of(lots, s)[None]]).flatten()
        value = self.values(out, contexts, blocks).unflatten(0, (s.T + 1, s.B))
        return self.rows(m, value, q, cursor)

    def _push(self, h: Tensor, block: Tensor, cursor: Tensor, start: Tensor) -> None:
        """T moments a row: those n steps back, now that their n-th successors exist."""
        steps, waiting = len(h), len(self.tail["h"])
        joined = peer_replay.shift(self.tail, {"h": h, "block": block})
        index = cursor + torch.arange(-waiting, steps - waiting, device=cursor.device)[:, None]
        values = {"h": joined["h"][:steps], "next_h": joined["h"][waiting:], "index": index}
        values["block"] = joined["block"][:steps]
        flat = {name: value.flatten(0, 1) for name, value in values.items()}
        peer_replay.push(self.replay, (index >= start).flatten(), flat)

    def batch(self, fields: peer_replay.Fields, weight: Tensor) -> Batch:
        index, market = fields["index"], self.market
        value = peer_critic.path_returns(index, market, self.next_lots, self.rules, self.sizes)
        keep = torch.full_like(weight, self.rules.gamma ** int(self.rules.n_step))
        action = torch.zeros_like(index)
        return Batch(fields["h"], fields["next_h"], fields["block"], action, value, keep, weight)

    def losses_of(self, batch: Batch, draws: Draws) -> tuple[Tensor, Tensor]:
        return peer_critic.path_losses(self.critic, self.target, batch, draws, self.next_class, self.rules, self.sizes)

    def _follow(self) -> None:
        """The target encoder behind U updates: the encoder itself stands still in them, so they are one."""
        rate = 1.0 - (1.0 - self.rules.target_tau) ** self.sizes.U
        self.followers.lerp_(self.policy_adam.flat[: len(self.followers)], rate)
