"""Prioritised replay in PyTorch: static buffers, stratified sampling over a running sum of the priorities.

A transition needs its state n steps later, so a row's last n moments wait in a short tail until the next iteration. A
moment whose window crosses the end of its episode is written with priority 0 and never drawn (ours flushes it with a
shorter window). No hindsight.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from foxhunt_cli.bench.peer_rules import Rules

Fields = dict[str, Tensor]

_PRIORITY_FLOOR = 1e-6
_MAX_DECAY = 0.999  # of the largest priority, an update
_BELOW_ONE = 1.0 - 1e-6  # keeps the last stratum under the total, whatever rounding does


def store(capacity: int, rules: Rules, device: torch.device, **fields: tuple[tuple[int, ...], torch.dtype]) -> Fields:
    """An empty store: ``fields`` with their shape of one transition, priorities, the largest of them, the next slot."""
    held = {name: torch.zeros(capacity, *shape, dtype=dtype, device=device) for name, (shape, dtype) in fields.items()}
    return held | {
        "priority": torch.zeros(capacity, device=device),
        "largest": torch.tensor(rules.per_max_priority, device=device),
        "head": torch.zeros((), dtype=torch.int64, device=device),
    }


def push(held: Fields, valid: Tensor, values: Mapping[str, Tensor]) -> None:
    """Writes transitions [n, ...] at the head, with the largest priority where ``valid`` [n], else 0."""
    count, capacity = len(valid), len(held["priority"])
    slots = (held["head"] + torch.arange(count, device=valid.device)) % capacity
    for name, value in values.items():
        held[name].index_copy_(0, slots, value)
    held["priority"].index_copy_(0, slots, held["largest"] * valid)
    held["head"].copy_((held["head"] + count) % capacity)


def sample(held: Fields, rows: int, rules: Rules) -> tuple[Tensor, Tensor, Fields]:
    """One transition a stratum of the total priority: slots [rows], importance weights of at most 1, their fields."""
    total = torch.cumsum(held["priority"], 0)
    within = torch.rand(rows, device=total.device)
    mass = (torch.arange(rows, device=total.device) + within) * (total[-1] * (_BELOW_ONE / rows))
    slots = torch.searchsorted(total, mass, right=True).clamp(max=len(total) - 1)
    drawn = held["priority"][slots]
    weight = (drawn.min() / drawn) ** rules.per_beta
    fields = {name: value[slots] for name, value in held.items() if name not in ("priority", "largest", "head")}
    return slots, weight, fields


def reprioritise(held: Fields, slots: Tensor, td: Tensor, rules: Rules) -> None:
    """Priorities of a batch from its TD errors [rows]."""
    priority = td.abs() ** rules.per_alpha + _PRIORITY_FLOOR
    held["priority"].index_copy_(0, slots, priority)
    held["largest"].copy_(torch.maximum(held["largest"] * _MAX_DECAY, priority.max()))


def shift(tail: Fields, fresh: Mapping[str, Tensor]) -> Fields:
    """The tail [n, B, ...] and what follows it [T, B, ...] in one piece [n + T, B, ...]; its last n become the tail."""
    joined = {name: torch.cat([tail[name], value]) for name, value in fresh.items()}
    for name, value in joined.items():
        tail[name].copy_(value[-len(tail[name]) :])
    return joined
