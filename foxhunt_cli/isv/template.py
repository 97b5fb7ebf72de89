"""A seeds file for people to edit: every slot that may be set, with its meaning, unit and range, commented out."""

from __future__ import annotations

from foxhunt_cli.isv.seeds import preset_seeds
from foxhunt_cli.isv.table import Slot, slots

_HEAD = """\
# Seeds of the internal state vector (ISV): what the kernels read while they train.
# Use it with: foxhunt train --seeds isv.toml
# A line counts once its leading '# ' is gone. The values are those of the default preset.

[isv]
"""
_PARTS = {
    "tunable": "# Tunables: constant in a run.",
    "control": "# Controls: where each controller starts. One that is fixed keeps its seed.",
}


def render() -> str:
    """Text of the file; reads back as no seed at all."""
    parts = [_HEAD]
    for kind, title in _PARTS.items():
        parts.append(f"{title}\n\n" + "\n".join(_entry(slot) for slot in slots() if slot.kind == kind) + "\n")
    return "\n".join(parts)


def _entry(slot: Slot) -> str:
    name = slot.name.lower()
    unit = "" if slot.unit == "1" else f" [{slot.unit}]"
    value = preset_seeds("foxhunt").get(name, slot.seed)
    return f"# {slot.meaning}{unit}; {slot.lower:g} to {slot.upper:g}\n# {name} = {float(value)!r}\n"
