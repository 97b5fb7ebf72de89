"""From one ISV copy to one record of run.jsonl.

Owns the derived fields and the nesting. Every other field is a slot: its place in the record is the table's
``field``; fields that end in a number are the elements of a list. A signal or diagnostic whose owner kernel is not part
of the run's list is left out: it would be a zero that nobody measured.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

import numpy as np

from foxhunt_cli.isv.table import Slot, number, slots

# Fields that are no slot: name -> (JSON type, unit, what it is).
DERIVED = {
    "step": ("integer", "steps", "environment steps done by a row at the end of the iteration"),
    "iteration": ("integer", "1", "iterations done"),
    "time": ("number", "s", "wall clock at the drain, seconds since 1970"),
    "nonfinite": (
        "array",
        "names",
        "fields of this line whose number was not finite and is null here; an empty list is the rule",
    ),
    "market.win_rate": ("number", "1", "wins / trades_closed of this iteration; absent where none closed"),
    "perf.env_steps_per_s": ("number", "steps/s", "environment steps a second, all rows, since the drain before"),
    "perf.step_us": ("number", "us", "wall time of one environment step of all rows, learning included"),
}


def live_slots(kernels: Collection[str], named: Mapping[str, Collection[int]] | None = None) -> tuple[Slot, ...]:
    """Slots a run reports: what a person set, and what one of ``kernels`` writes.

    named: of kernels that take the number of their slot, which ones the run has them write.
    """
    always, named = ("tunable", "control"), named or {}
    written = (s for s in slots() if s.owner in kernels and s.number in named.get(s.owner, (s.number,)))
    numbers = {s.number for s in written}
    return tuple(s for s in slots() if s.kind in always or s.owner == "host" or s.number in numbers)


def record(isv: np.ndarray, live: Collection[Slot], extra: dict[str, Any]) -> dict[str, Any]:
    """One nested record. isv: float32 [ISV_SIZE]; extra: derived values by dotted field, put in first."""
    out: dict[str, Any] = {}
    for field, value in extra.items():
        _put(out, field, value)
    values = isv.tolist()
    for slot in live:
        value = values[slot.number]
        _put(out, slot.field, int(value) if slot.field == "step" else value)
    trades = values[number("TRADES_CLOSED")]
    if trades > 0:
        _put(out, "market.win_rate", values[number("WINS")] / trades)
    return out


@cache
def place(field: str) -> tuple[tuple[str, ...], str, bool]:
    """(names of the objects around it, its own name, whether it is an element of the list of that name)."""
    *parents, leaf = field.split(".")
    return (tuple(parents[:-1]), parents[-1], True) if leaf.isdecimal() else (tuple(parents), leaf, False)


def _put(tree: dict[str, Any], field: str, value: Any) -> None:
    """Elements of a list come in their order."""
    parents, leaf, element = place(field)
    for parent in parents:
        tree = tree.setdefault(parent, {})
    if element:
        tree.setdefault(leaf, []).append(value)
    else:
        tree[leaf] = value
