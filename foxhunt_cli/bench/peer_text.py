"""The result of ``bench peers`` as lines and a table for people."""

from __future__ import annotations

from typing import Any

from foxhunt_cli.bench.text import Block, Columns, figure

_NAMES = ("B, T, R", "iteration", "ms", "low", "high", "env steps/s", "x ours", "MB", "ready s")


def peers(found: dict[str, Any]) -> list[Block]:
    """A row for each size and contestant, what could not be measured, what the peer leaves out."""
    rows = []
    for r in found["rows"]:
        times = (figure(r[name], 3) for name in ("ms", "ms_low", "ms_high"))
        rest = (figure(r["env_steps_per_s"]), f"{r['ratio']:.2f}", figure(r["MB"]), figure(r["ready_s"], 1))
        rows.append((f"{r['B']:,}, {r['T']}, {r['R']:,}", r["iteration"], *times, *rest))
    preset, updates = (", ".join(dict.fromkeys(str(r[name]) for r in found["rows"])) for name in ("preset", "U"))
    return [
        f"{found['device']}; torch {found['torch']}, {found['products']} products; preset {preset}, U = {updates}",
        Columns(_NAMES, rows, ("iteration",), spare=("low", "high", "ready s")),
        *(f"{name}: not measured: {why}" for name, why in found["missing"].items()),
        f"medians of {found['repeats']} with their range, in turn; x ours: median of the quotients",
        "MB: device memory at its peak, without the data set; ready s: data, compiling and warming up",
        "an iteration of PyTorch's leaves out: " + "; ".join(found["left_out"]),
    ]
