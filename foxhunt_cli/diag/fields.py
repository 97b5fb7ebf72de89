"""From one ISV copy to one record of run.jsonl.

Owns the derived fields and the nesting. Every other field is a slot: its place in the record is the table's
``field``. A signal or diagnostic whose owner kernel is not part of the run's list is left out: it would be a zero
that nobody measured.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from foxhunt_cli.isv.table import Slot, number, slots

_SHARES = "actions.share."


def live_slots(kernels: Collection[str]) -> tuple[Slot, ...]:
    """Slots a run with these kernels reports: what a person set, and what one of the kernels writes."""
    always = ("tunable", "control")
    return tuple(s for s in slots() if s.kind in always or s.owner == "host" or s.owner in kernels)


def record(isv: np.ndarray, live: Collection[Slot], extra: dict[str, Any]) -> dict[str, Any]:
    """One nested record. isv: float32 [ISV_SIZE]; extra: derived values by dotted field, put in first."""
    out: dict[str, Any] = {}
    for field, value in extra.items():
        _put(out, field, value)
    shares: list[float] = []
    for slot in live:
        value = float(isv[slot.number])
        if slot.field.startswith(_SHARES):
            shares.append(value)
        elif slot.name == "TRAIN_STEP":
            out["step"] = int(value)
        else:
            _put(out, slot.field, value)
    if shares:
        out.setdefault("actions", {})["share"] = shares
    trades = float(isv[number("TRADES_CLOSED")])
    if trades > 0:
        _put(out, "market.win_rate", float(isv[number("WINS")]) / trades)
    return out


def _put(tree: dict[str, Any], dotted: str, value: Any) -> None:
    *parents, leaf = dotted.split(".")
    for parent in parents:
        tree = tree.setdefault(parent, {})
    tree[leaf] = value
