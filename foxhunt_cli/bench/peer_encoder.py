"""The encoder in PyTorch: variable selection, two Mamba-2 blocks, the CfC cell. One pass over all snapshots of a row.

What ``foxhunt_cli/nets/encoder_full.py`` computes, as a good engineer writes it for PyTorch: the scans in their
quadratic (SSD) form over all snapshots at once (Dao and Gu 2024), the CfC's input product hoisted out of its loop, its
four gates in one product, and its backward by hand, so that weight gradients are products over all snapshots.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from foxhunt_cli.bench.peer_weights import Weights

Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]
"""``torch.compile`` or the identity."""

INPUTS, H, HEADS, HEAD, STATE, TAPS = 56, 128, 8, 16, 16, 4
NORM_EPS = 1e-5
AMPLITUDE, SLOPE = 1.7159, 2.0 / 3.0  # of the backbone's tanh


def select(p: Weights, x: Tensor) -> Tensor:
    """Variable selection of x [..., 56]."""
    return INPUTS * torch.softmax(x @ p["w_vsn"] + p["b_vsn"], -1) * x


def scan(x: Tensor, b: Tensor, c: Tensor, dt: Tensor, a_log: Tensor) -> Tensor:
    """y_i = sum over j <= i of (c_i . b_j) exp(cum_i - cum_j) dt_j x_j, cum the running sum of -exp(a_log) dt.

    x [B, W, 128], b, c [B, W, 16], dt [B, W, 8] -> [B, W, 128].
    """
    snapshots = x.shape[1]
    dt = dt.transpose(1, 2)
    cum = torch.cumsum(-torch.exp(a_log)[:, None] * dt, -1)
    later = torch.ones(snapshots, snapshots, dtype=torch.bool, device=x.device).triu(1)
    decay = torch.exp((cum[..., :, None] - cum[..., None, :]).masked_fill(later, -torch.inf))
    mix = (c @ b.transpose(1, 2))[:, None] * decay * dt[..., None, :]
    return (mix @ x.unflatten(-1, (HEADS, HEAD)).transpose(1, 2)).transpose(1, 2).flatten(2)


def mamba2(p: Weights, tag: str, x: Tensor) -> Tensor:
    """One block, [B, W, width] -> [B, W, 128]."""
    snapshots = x.shape[1]
    z, xbc, dt = (x @ p[f"w_{tag}_in"]).split([H, H + 2 * STATE, HEADS], -1)
    padded, taps = F.pad(xbc, (0, 0, TAPS - 1, 0)), p[f"w_{tag}_conv"]
    xbc = F.silu(p[f"b_{tag}_conv"] + sum(taps[k] * padded[:, k : k + snapshots] for k in range(TAPS)))
    x, b, c = xbc.split([H, STATE, STATE], -1)
    y = scan(x, b, c, F.softplus(dt + p[f"b_{tag}_dt"]), p[f"a_log_{tag}"])
    y = (y + p[f"skip_{tag}"].repeat_interleave(HEAD) * x) * F.silu(z)
    y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + NORM_EPS) * p[f"w_{tag}_norm"]
    return y @ p[f"w_{tag}_out"]


def trunk(p: Weights, x: Tensor) -> Tensor:
    """x [B, W, 56] -> the input half of the CfC's backbone with its bias, [W, B, 128]."""
    x = mamba2(p, "m1", select(p, x))
    x = (x + mamba2(p, "m2", x)).transpose(0, 1)
    return x @ p["w_cfc_backbone"][:H] + p["b_cfc_backbone"]


def _cell(
    pre: Tensor, gap: Tensor, h: Tensor, w_h: Tensor, w_gates: Tensor, b_gates: Tensor,
    h_out: Tensor, u_out: Tensor, f_out: Tensor, g_out: Tensor, s_out: Tensor,
) -> None:  # fmt: skip
    """One snapshot: h [B, 128] before it -> h_out behind it; u, f, g and the blend s for the backward."""
    u = AMPLITUDE * torch.tanh(SLOPE * (pre + h @ w_h))
    f, g, rate, offset = (u @ w_gates + b_gates).chunk(4, -1)
    f, g, s = torch.tanh(f), torch.tanh(g), torch.sigmoid(offset - rate * gap[:, None])
    h_out.copy_(g + s * (f - g))
    u_out.copy_(u), f_out.copy_(f), g_out.copy_(g), s_out.copy_(s)


def _cell_backward(
    grad: Tensor, gap: Tensor, u: Tensor, f: Tensor, g: Tensor, s: Tensor, w_h: Tensor, w_gates: Tensor,
    gates_out: Tensor, pre_out: Tensor, above: Tensor | None,
) -> Tensor:  # fmt: skip
    """grad of h behind a snapshot -> of its gates' product and of its backbone; returns the gradient of h before it.

    above: what the loss itself adds to the gradient of h behind this snapshot.
    """
    grad = grad if above is None else grad + above
    blend = grad * (f - g) * s * (1 - s)
    gates = (grad * s * (1 - f * f), grad * (1 - s) * (1 - g * g), -blend * gap[:, None], blend)
    gates_out.copy_(torch.cat(gates, -1))
    pre_out.copy_((gates_out @ w_gates.t()) * (AMPLITUDE * SLOPE - SLOPE / AMPLITUDE * u * u))
    return pre_out @ w_h.t()


class Encoder:
    """The encoder with its pieces compiled once; weights are arguments, so that the target's copy uses the same."""

    def __init__(self, compiled: Compiler) -> None:
        self._trunk, self._cell, self._cell_backward = map(compiled, (trunk, _cell, _cell_backward))

    def __call__(self, p: Weights, x: Tensor, gap: Tensor, states: int, learned: int) -> Tensor:
        """x [B, W, 56], gap [W, B] -> the encodings behind the last ``states`` snapshots, [states, B, 128].

        learned: snapshots, from the first, whose encodings may carry a gradient (a bootstrap state's does not).
        """
        w_h = p["w_cfc_backbone"][H:]
        pre = self._trunk(p, x)
        return _Cfc.apply(self, pre, gap, w_h, p["w_cfc_gates"], p["b_cfc_gates"], states, learned, pre.requires_grad)

    def forward_cells(self, pre: Tensor, gap: Tensor, weights: tuple[Tensor, ...], keep: bool) -> tuple[Tensor, ...]:
        """h before each snapshot and behind the last [W+1, B, 128]; u, f, g, s [W, B, 128], of one if not ``keep``."""
        snapshots, *row = pre.shape
        h = pre.new_empty(snapshots + 1, *row)
        h[0].zero_()
        saved = [pre.new_empty(snapshots if keep else 1, *row) for _ in range(4)]
        for w in range(snapshots):
            self._cell(pre[w], gap[w], h[w], *weights, h[w + 1], *(part[w if keep else 0] for part in saved))
        return h, *saved

    def backward_cells(
        self, grad_h: Tensor, gap: Tensor, saved: tuple[Tensor, ...], weights: tuple[Tensor, ...], learned: int
    ) -> tuple[Tensor, Tensor]:
        """Gradients of the gates' product [learned, B, 512] and of ``pre`` [W, B, 128]."""
        u = saved[0]
        snapshots, rows = u.shape[:2]
        first = snapshots - len(grad_h)  # snapshot of the first encoding that is used
        gates, pre = u.new_empty(learned, rows, 4 * H), torch.empty_like(u)
        pre[learned:].zero_()
        carry = torch.zeros_like(u[0])
        for w in range(learned - 1, -1, -1):
            above = grad_h[w - first] if w >= first else None
            carry = self._cell_backward(
                carry, gap[w], *(part[w] for part in saved), *weights[:2], gates[w], pre[w], above
            )
        return gates, pre


class _Cfc(torch.autograd.Function):
    """The recurrence over all snapshots; weight gradients are one product each, over all of them."""

    @staticmethod
    def forward(ctx, cells, pre, gap, w_h, w_gates, b_gates, states, learned, keep):  # noqa: ANN001
        weights = (w_h.detach(), w_gates.detach(), b_gates.detach())
        h, *saved = cells.forward_cells(pre.detach(), gap, weights, keep)
        if keep:
            ctx.cells, ctx.learned = cells, learned
            ctx.save_for_backward(gap, h, *saved, w_h, w_gates)
        return h[-states:]

    @staticmethod
    def backward(ctx, grad_h):  # noqa: ANN001
        gap, h, *saved, w_h, w_gates = ctx.saved_tensors
        n = ctx.learned
        gates, pre = ctx.cells.backward_cells(grad_h, gap, tuple(saved), (w_h, w_gates), n)
        gates = gates.flatten(0, 1)
        grad_w_h = h[:n].flatten(0, 1).t() @ pre[:n].flatten(0, 1)
        return None, pre, None, grad_w_h, saved[0][:n].flatten(0, 1).t() @ gates, gates.sum(0), None, None, None
