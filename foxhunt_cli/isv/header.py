"""Renders the generated CUDA headers: slot numbers and the structural constants both sides share.

``python -m foxhunt_cli.isv.header`` rewrites them; a test renders them again and compares.
"""

from __future__ import annotations

from pathlib import Path

from foxhunt_cli.config.dims import STRUCTURE
from foxhunt_cli.isv.table import ISV_SIZE, layout_hash, slots


def render_slots() -> str:
    """Text of ``cuda_src/generated/isv_slots.cuh``."""
    lines = [
        "// Generated from foxhunt_cli/isv/slots.toml by foxhunt_cli/isv/header.py: do not edit.",
        "#pragma once",
        f"// layout {layout_hash()}",
        f"#define ISV_SIZE {ISV_SIZE}",
    ]
    lines += [f"#define ISV_{slot.name} {slot.number}  // {slot.kind}, {slot.unit}: {slot.meaning}" for slot in slots()]
    return "\n".join(lines) + "\n"


def render_structure() -> str:
    """Text of ``cuda_src/generated/structure.cuh``."""
    lines = [
        "// Generated from foxhunt_cli/config/dims.py by foxhunt_cli/isv/header.py: do not edit.",
        "#pragma once",
    ]
    lines += [f"#define {name} {value}  // {meaning}" for name, (value, meaning) in STRUCTURE.items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Rewrite both headers in the source tree."""
    generated = Path(__file__).resolve().parents[2] / "cuda_src" / "generated"
    (generated / "isv_slots.cuh").write_text(render_slots())
    (generated / "structure.cuh").write_text(render_structure())


if __name__ == "__main__":
    main()
