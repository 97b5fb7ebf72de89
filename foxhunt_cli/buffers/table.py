"""Gathers rows of the buffer table and sizes them. The table itself is ``foxhunt_cli/pipeline/tables.py``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from foxhunt_cli.buffers.row import LIFETIMES, Buffer
from foxhunt_cli.config.dims import evaluate


def gather(rows: Iterable[Buffer]) -> dict[str, Buffer]:
    """Rows by name. Raises ValueError where a name is used twice or a lifetime is unknown."""
    found: dict[str, Buffer] = {}
    for row in rows:
        if row.name in found:
            raise ValueError(f"buffer table: '{row.name}' declared twice")
        if row.lifetime not in LIFETIMES:
            raise ValueError(f"buffer table: '{row.name}': lifetime '{row.lifetime}' is not one of {LIFETIMES}")
        found[row.name] = row
    return found


def shape(row: Buffer, dims: Mapping[str, int]) -> tuple[int, ...]:
    """Shape of a buffer under the run's dimensions."""
    return tuple(evaluate(part.strip(), dims) for part in row.dims.split(","))
