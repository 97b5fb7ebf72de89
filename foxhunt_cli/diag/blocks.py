"""A run log as matrices: consecutive lines of one shape, a row a line and a column a field.

Owns the step from nested records to numbers. Readers of long logs work on blocks; a Python loop over every number
of a gigabyte would take minutes.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foxhunt_cli.diag.reader import flatten

LINES = 1_024  # lines of a block at most
_APART = ("step", "iteration", "time", "nonfinite")  # not numbers of the run, or read on their own


@dataclass(frozen=True)
class Block:
    """Lines that have the same fields, in file order."""

    steps: np.ndarray
    """[n] int64, environment steps done by a row."""
    iterations: list[int | None]
    """[n], None where a line has none."""
    times: list[float]
    """[n] seconds, NaN where unknown."""
    nonfinite: list[tuple[int, Sequence[str]]]
    """(line of the block, fields that were not finite) of the lines that have any."""
    names: tuple[str, ...]
    """Fields by dotted name."""
    values: np.ndarray
    """[n, fields] float64; NaN stands for null."""

    def column(self, name: str) -> np.ndarray | None:
        """[n] values of a field, None where the lines lack it."""
        return self.values[:, self.names.index(name)] if name in self.names else None


def blocks(records: Iterable[dict[str, Any]], lines: int = LINES) -> Iterator[Block]:
    """Groups ``records`` into blocks. Reads and empties what it is given."""
    shape: tuple[Any, ...] | None = None
    names: tuple[str, ...] = ()
    held: list[dict[str, Any]] = []
    rows: list[list[Any]] = []
    for record in records:
        apart = {name: record.pop(name, None) for name in _APART}
        if isinstance(market := record.get("market"), dict):
            market.setdefault("win_rate", None)  # stands only in lines with a closed trade; lines keep one shape
        keys: list[Any] = []
        row: list[Any] = []
        _leaves(record, keys, row)
        if tuple(keys) != shape or len(rows) == lines:
            if rows:
                yield _block(held, names, rows)
            shape, names, held, rows = tuple(keys), _names(record), [], []
        held.append(apart)
        rows.append(row)
    if rows:
        yield _block(held, names, rows)


def _leaves(record: dict[str, Any], keys: list[Any], row: list[Any]) -> None:
    """Values of ``record`` in order, and keys that describe its shape."""
    for key, value in record.items():
        keys.append(key)
        kind = type(value)
        if kind is dict:
            _leaves(value, keys, row)
            keys.append(None)
        elif kind is list:
            keys.append(len(value))
            row.extend(value)
        else:
            row.append(value)


def _names(record: dict[str, Any]) -> tuple[str, ...]:
    """Dotted names of what ``_leaves`` puts into a row. Lists of words keep their place under a name of their own."""
    names: list[str] = []
    for name, value in flatten(record):
        names += [f"{name}.{i}" for i in range(len(value))] if isinstance(value, list) else [name]
    return tuple(names)


def _block(held: list[dict[str, Any]], names: tuple[str, ...], rows: list[list[Any]]) -> Block:
    try:
        values = np.array(rows, dtype=np.float64).reshape(len(rows), len(names))
    except (TypeError, ValueError):  # words among the numbers
        values = np.array([[_number(value) for value in row] for row in rows], np.float64).reshape(
            len(rows), len(names)
        )
        numeric = [
            any(isinstance(row[i], int | float) and not isinstance(row[i], bool) for row in rows)
            for i in range(len(names))
        ]
        names, values = tuple(n for n, keep in zip(names, numeric, strict=True) if keep), values[:, numeric]
    return Block(
        steps=np.array([int(line["step"] or 0) for line in held], np.int64),
        iterations=[int(line["iteration"]) if line["iteration"] else None for line in held],
        times=[_seconds(line["time"]) for line in held],
        nonfinite=[(i, line["nonfinite"]) for i, line in enumerate(held) if line["nonfinite"]],
        names=names,
        values=values,
    )


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def _seconds(time: Any) -> float:
    """A line's time, in seconds, as a number or an ISO date; NaN for anything else."""
    if isinstance(time, int | float):
        return float(time)
    try:
        return datetime.datetime.fromisoformat(time).timestamp()
    except (TypeError, ValueError):
        return math.nan
