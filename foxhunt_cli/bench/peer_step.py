"""The peer's iteration in the form of preset seed: one environment step, two windows that hold the position.

The state before the step is encoded with gradient; the one behind it, known only then, without. The critic sees the
encoder's own encodings and learns the executed action's n-step return.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from foxhunt_cli.bench import peer_account, peer_critic, peer_heads, peer_replay
from foxhunt_cli.bench.peer_account import Account, Moment
from foxhunt_cli.bench.peer_base import Iteration
from foxhunt_cli.bench.peer_critic import Batch, Draws
from foxhunt_cli.bench.peer_encoder import Compiler, H
from foxhunt_cli.bench.peer_heads import Rows
from foxhunt_cli.config.dims import FEATURE_DIM, MULTIRES_DIM
from foxhunt_cli.train.engine import Engine


class StepIteration(Iteration):
    """One iteration of B rows and one step, with U replay updates of R transitions."""

    def __init__(self, engine: Engine, isv: np.ndarray, updates: int, to: torch.device, compiled: Compiler) -> None:
        super().__init__(engine, isv, updates, to, compiled)
        self.window, self.settle, self.push = map(compiled, (self._window, self._settle, self._push))
        self.quotes = compiled(self.quotes)

    def buffers(self) -> tuple[peer_replay.Fields, peer_replay.Fields]:
        s, waiting = self.sizes, int(self.rules.n_step) - 1
        kinds = {"action": torch.int64, "value": torch.float32, "keep": torch.float32}
        fields = {"h": ((H,), torch.float32), "next_h": ((H,), torch.float32)}
        fields |= {name: ((), kind) for name, kind in kinds.items()}
        kinds = {"action": torch.int64, "reward": torch.float32, "closed": torch.bool}
        tail = {name: torch.zeros(waiting, s.B, dtype=kind, device=self.to) for name, kind in kinds.items()}
        tail["h"] = torch.zeros(waiting, s.B, H, device=self.to)
        return peer_replay.store(s.C, self.rules, self.to, **fields), tail

    def iterate(self, *, critic: bool = True) -> None:
        """Everything of one iteration; without ``critic`` the replay fills and the critic does not learn yet."""
        s = self.sizes
        with torch.no_grad():
            self.draw_episodes(self.cursor, self.start, self.end)
            x, gap = self.window(self.cursor, self.account)
        h = self.encoder(self.policy, x, gap, 1, learned=s.K)[0]
        out = peer_heads.head_outputs(self.policy, h, self.to_encoder)
        with torch.no_grad():
            moments, account, context = self.play(out.detach()[None], self.quotes(self.cursor, self.end))
            x, gap = self.window(self.cursor + 1, account)
            next_h = self.encoder(self.policy, x, gap, 1, learned=0)[0]
            both = torch.cat([out.detach(), peer_heads.head_outputs(self.policy, next_h, self.to_encoder)])
            q = self.ensemble(h.detach())
            rows = self.settle(both, moments, q, self.cursor)
        self.update_policy(out, rows)
        with torch.no_grad():
            self.push(h.detach(), next_h, moments, self.cursor, self.start)
            self.carry(account, context)
        if critic:
            self.update_critic()
        with torch.no_grad():
            self.cursor += 1

    def _window(self, cursor: Tensor, account: Account) -> tuple[Tensor, Tensor]:
        """Features [B, K, 56] with what the row holds in every snapshot's columns 40..55, and gaps [K, B]."""
        s, market = self.sizes, self.market
        at = cursor[:, None] + torch.arange(1 - s.K, 1, device=cursor.device)
        held = peer_account.encoder_context(account, market.mid[cursor], self.rules, s)
        held = torch.cat([held, market.features[cursor, -MULTIRES_DIM:]], -1)
        gap = market.gap[at.t()]
        gap[0] = 0.0
        return torch.cat([market.features[at, :FEATURE_DIM], held[:, None].expand(-1, s.K, -1)], -1), gap

    def _settle(self, both: Tensor, m: Moment, q: Tensor, cursor: Tensor) -> Rows:
        """Values of both states from their head outputs [2B, columns], advantages and labels."""
        block = torch.zeros(len(both), dtype=torch.int64, device=both.device)
        value = self.values(both, self.context, block).unflatten(0, (2, self.sizes.B))
        return self.rows(m, value, q, cursor)

    def _push(self, h: Tensor, next_h: Tensor, m: Moment, cursor: Tensor, start: Tensor) -> None:
        """The moment n - 1 steps back, whose n-th successor is the state behind this step."""
        fresh = {"h": h[None], "action": m.action, "reward": m.reward, "closed": m.closed}
        joined = peer_replay.shift(self.tail, fresh)
        window = len(joined["reward"])
        open_ = torch.cumprod((~joined["closed"]).float(), 0)  # [n, B], behind each step
        before = torch.cat([torch.ones_like(open_[:1]), open_[:-1]])
        weight = self.rules.gamma ** torch.arange(window, device=cursor.device)[:, None]
        values = {"h": joined["h"][0], "next_h": next_h, "action": joined["action"][0]}
        values["value"] = (weight * before * joined["reward"]).sum(0)
        values["keep"] = self.rules.gamma**window * open_[-1]
        peer_replay.push(self.replay, cursor - (window - 1) >= start, values)

    def batch(self, fields: peer_replay.Fields, weight: Tensor) -> Batch:
        block = torch.zeros_like(fields["action"])
        return Batch(fields["h"], fields["next_h"], block, fields["action"], fields["value"], fields["keep"], weight)

    def losses_of(self, batch: Batch, draws: Draws) -> tuple[Tensor, Tensor]:
        return peer_critic.executed_losses(self.critic, self.target, batch, draws, self.rules, self.sizes)
