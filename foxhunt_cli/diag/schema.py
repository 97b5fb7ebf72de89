"""The JSON schema of a line of run.jsonl, from the slot table and the derived fields.

``python -m foxhunt_cli.diag.schema`` prints it; ``foxhunt_cli.diag.reference`` rewrites the file beside this module,
which travels in the package for readers in other languages; a test renders it again and compares.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

import orjson

from foxhunt_cli.diag.fields import DERIVED, place
from foxhunt_cli.isv.table import slots

FILE = "run.schema.json"
_DRAFT = "https://json-schema.org/draft/2020-12/schema"
# Fields that every line has, whatever the run's list is made of: the line's own, and what a person set.
_OWN = ("step", "iteration", "time", "nonfinite")


def schema() -> dict[str, Any]:
    """The schema as an object. A number that was not finite is null; no line has a field that is not listed here."""
    root = _object("One iteration of a run: T environment steps of all rows and the learning from them.")
    root = {"$schema": _DRAFT, "$id": f"foxhunt/{FILE}", "title": "A line of run.jsonl", **root}
    for field, (kind, unit, meaning) in DERIVED.items():
        leaf = {"type": ["number", "null"] if kind == "number" else kind, "description": _described(meaning, unit)}
        if kind == "array":
            leaf["items"] = {"type": "string"}
        _add(root, field, leaf, required=field in _OWN)
    for slot in slots():
        if slot.field in DERIVED:
            continue
        meaning = f"{_described(slot.meaning, slot.unit)}; slot {slot.number}, {slot.kind}"
        leaf = {"type": ["number", "null"], "description": meaning}
        _add(root, slot.field, leaf, required=slot.kind in ("tunable", "control"))
    return root


def render() -> str:
    """Text of ``run.schema.json``."""
    return orjson.dumps(schema(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()


def shipped() -> dict[str, Any]:
    """The schema file of the installed package."""
    return orjson.loads(resources.files("foxhunt_cli.diag").joinpath(FILE).read_bytes())


def _described(meaning: str, unit: str) -> str:
    return meaning if unit == "1" else f"{meaning} [{unit}]"


def _object(description: str = "") -> dict[str, Any]:
    told = {"description": description} if description else {}
    return {**told, "type": "object", "required": [], "properties": {}, "additionalProperties": False}


def _add(root: dict[str, Any], field: str, leaf: dict[str, Any], *, required: bool) -> None:
    """Puts ``leaf`` at its place; an object or list is required where something in it is."""
    parents, name, element = place(field)
    node = root
    for parent in parents:
        _require(node, parent, required)
        node = node["properties"].setdefault(parent, _object())
    _require(node, name, required)
    if not element:
        node["properties"][name] = leaf
        return
    items = node["properties"].setdefault(name, {"type": "array", "prefixItems": [], "items": False, "minItems": 0})
    items["prefixItems"].append(leaf)
    items["minItems"] += 1


def _require(node: dict[str, Any], name: str, required: bool) -> None:
    if required and name not in node["required"]:
        node["required"].append(name)


if __name__ == "__main__":
    print(render(), end="")
