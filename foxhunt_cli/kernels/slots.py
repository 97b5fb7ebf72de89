"""Which slots of the internal state vector a kernel reads and which it writes.

Owns the reading of kernel text for that question: neither compiles nor runs anything. Whatever the text leaves open
counts as the whole vector, so the answer may be too wide, never too narrow; ``tests/pipeline/test_slots_touched.py``
runs the kernels with all other slots changed.

A kernel's text is its own and that of every function and macro it may call, by name. The vector is called ``isv``
throughout; it is indexed by the names of the generated header, by such a name plus a number, or by a parameter whose
name begins with ``slot``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from foxhunt_cli.isv.table import ISV_SIZE, by_name
from foxhunt_cli.kernels.contract import KernelContract
from foxhunt_cli.kernels.registry import cuda_root
from foxhunt_cli.kernels.text import definitions, include_closure, matching

WHOLE = frozenset(range(ISV_SIZE))
BLOCK = 16  # slots that a name plus a number may reach, the named one included

_NAME = re.compile(r"\bISV_([A-Z]\w*)\b(\s*\+)?")
_INDEXED = re.compile(r"\bisv\s*\[([^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*)\](\s*[-+*/]?=(?!=))?")
_POINTER = re.compile(r"(?:\bisv\s*\+|&\s*(?:\w+\.)?isv\s*\[)([^,;)\]]*)(.?)")
_ALIAS = re.compile(r"\*\s*isv\b(?!\s*[\[,)])|=\s*isv\s*;|\(\s*isv\s*\)\s*\[")
_CALL = re.compile(r"\b(\w+)\s*\(")
_PARAMETER = re.compile(r"\b(slot\w*)\b")
_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Touched:
    """Slot numbers, or names of the scalar parameters that hold them."""

    reads: frozenset[int | str]
    writes: frozenset[int | str]

    def numbers(self, scalars: Mapping[str, Any]) -> tuple[frozenset[int], frozenset[int]]:
        """(reads, writes) of a launch with these scalar arguments."""
        reads, writes = (
            frozenset(int(scalars[slot]) if isinstance(slot, str) else slot for slot in own)
            for own in (self.reads, self.writes)
        )
        return reads, writes


@cache
def touched(contract: KernelContract) -> Touched:
    """Slots of the vector that ``contract``'s kernel touches; what it writes counts as read too."""
    bodies = _bodies(contract.file.resolve())
    reads: set[int | str] = set()
    writes: set[int | str] = set()
    for text in _reachable(contract.name, bodies):
        found, assigned = _in_text(text, bodies)
        reads |= found
        writes |= assigned
    scalars = {p.name for p in contract.params if not p.pointer}
    if {slot for slot in reads | writes if isinstance(slot, str)} - scalars:
        reads, writes = set(WHOLE), set(WHOLE)
    vector = next((p for p in contract.params if p.name == "isv" and p.pointer), None)
    if vector is None or vector.const:
        writes = set()
    return Touched(frozenset(reads | writes), frozenset(writes))


@cache
def _bodies(file: Path) -> dict[str, tuple[str, ...]]:
    """Functions and macros of ``file`` and what it includes, by name; the generated names of slots are no macros."""
    included = include_closure(file, (cuda_root().resolve(),))
    texts = [text for path, text in included.items() if path.name != "isv_slots.cuh"]
    bodies: dict[str, tuple[str, ...]] = {}
    for text in texts:
        for name, body in definitions(text)[0]:
            bodies[name] = (*bodies.get(name, ()), body)
    return bodies


def _reachable(name: str, bodies: Mapping[str, tuple[str, ...]]) -> Iterable[str]:
    seen, waiting = {name}, [name]
    while waiting:
        for body in bodies.get(waiting.pop(), ()):
            yield body
            called = (set(_WORD.findall(body)) & bodies.keys()) - seen
            seen |= called
            waiting.extend(called)


def _in_text(text: str, bodies: Mapping[str, tuple[str, ...]]) -> tuple[set[int | str], set[int | str]]:
    """(all slots, assigned slots) of one function."""
    found: set[int | str] = set()
    assigned: set[int | str] = set()
    for match in _INDEXED.finditer(text):
        own = _named(match[1]) or {m for m in _PARAMETER.findall(match[1])} or set(WHOLE)
        found |= own
        if match[2]:
            assigned |= own
    for match in _POINTER.finditer(text):  # handed to a function it stands for one slot, in a variable for a block
        own = _named(match[1], block=match[2] == ";") or set(WHOLE)
        found |= own
        assigned |= own
    if _ALIAS.search(text) or _handed_on(text, bodies):
        return set(WHOLE), set(WHOLE)
    return found, assigned


def _named(index: str, *, block: bool = False) -> set[int | str]:
    """Slots of the names in an index; each with those behind it where something is added."""
    own: set[int | str] = set()
    for match in _NAME.finditer(index):
        own |= _block(match[1]) if block or match[2] else {by_name()[match[1]].number}
    return own


def _block(name: str) -> set[int | str]:
    """The slot and those directly behind it that have the same owner: tables of slots have one."""
    first, table = by_name()[name], {slot.number: slot for slot in by_name().values()}
    own: set[int | str] = set()
    for number in range(first.number, first.number + BLOCK):
        if number not in table or table[number].owner != first.owner:
            break
        own.add(number)
    return own


def _flat(arguments: str) -> str:
    """Arguments of a call without those of the calls inside."""
    while (flat := re.sub(r"\([^()]*\)", "", arguments)) != arguments:
        arguments = flat
    return arguments


def _handed_on(text: str, bodies: Mapping[str, tuple[str, ...]]) -> bool:
    """Whether the whole vector goes to a function that calls it by another name, where no index would be seen."""
    for call in _CALL.finditer(text):
        if call[1] in bodies:
            given = _flat(text[call.end() : matching(text, call.end() - 1)])
            if re.search(r"(?:^|,)\s*(?:\w+\.)?isv\s*(?:,|$)", given) and not any(
                re.search(r"\bisv\b", body) for body in bodies[call[1]]
            ):
                return True
    return False
