"""The slot table: reads ``slots.toml`` once and answers questions about slots.

Owns the meaning of slot numbers on the host. It holds no values of a run: those live in the device vector.
"""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources

ISV_SIZE = 640
KINDS = ("tunable", "control", "signal", "diag")


@dataclass(frozen=True)
class Slot:
    """One element of the vector: number, name, kind, seed, bounds, unit, owner, JSONL field and meaning."""

    number: int
    name: str
    kind: str
    seed: float
    lower: float
    upper: float
    unit: str
    owner: str
    field: str
    meaning: str


@cache
def slots() -> tuple[Slot, ...]:
    """All slots in order of number. Raises ValueError where the table contradicts itself."""
    rows = tomllib.loads(resources.files(__package__).joinpath("slots.toml").read_text())["slot"]
    table = tuple(_slot(row) for row in rows)
    _check(table)
    return table


@cache
def by_name() -> dict[str, Slot]:
    """Slots by upper-case name."""
    return {slot.name: slot for slot in slots()}


def number(name: str) -> int:
    """Slot number of ``name`` (upper case)."""
    return by_name()[name].number


def layout_hash() -> str:
    """Hex digest of numbers and names: a checkpoint of another layout is refused by it."""
    text = "\n".join(f"{slot.number} {slot.name}" for slot in slots())
    return hashlib.sha256(f"{ISV_SIZE}\n{text}".encode()).hexdigest()[:16]


def _slot(row: dict) -> Slot:
    lower, upper = row["bounds"]
    keys = ("number", "name", "kind", "seed", "unit", "owner", "field", "meaning")
    return Slot(lower=lower, upper=upper, **{key: row[key] for key in keys})


def _check(table: tuple[Slot, ...]) -> None:
    for attribute in ("number", "name", "field"):
        values = [getattr(slot, attribute) for slot in table]
        twice = {v for v in values if values.count(v) > 1}
        if twice:
            raise ValueError(f"slots.toml: {attribute} used twice: {sorted(twice)}")
    for slot in table:
        if not 0 <= slot.number < ISV_SIZE or slot.kind not in KINDS:
            raise ValueError(
                f"slots.toml: slot {slot.number} {slot.name}: number outside 0..{ISV_SIZE - 1} or unknown kind"
            )
        if not slot.lower <= slot.seed <= slot.upper:
            raise ValueError(f"slots.toml: {slot.name}: seed {slot.seed} outside [{slot.lower}, {slot.upper}]")
