"""A run log as columns: one array a field, for notebooks and for files that other programs read.

Owns the shape of the table: a row a line of run.jsonl, fields by dotted name, NaN for null and for a field that a line
lacks.
"""

from __future__ import annotations

import csv
import difflib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from foxhunt_cli.diag.blocks import Block, blocks
from foxhunt_cli.diag.extras import require
from foxhunt_cli.diag.reader import RunLog
from foxhunt_cli.diag.writer import FileError, whole_file

INTEGERS = ("step", "iteration")


def read_columns(source: Path, fields: Iterable[str] | None = None) -> dict[str, np.ndarray]:
    """step, iteration (int64), time (seconds) and every field, or those asked for (exact names, or groups: ``loss.``).

    Raises FileNotFoundError, RunLogError (corrupt), KeyError (a field that no line has).
    """
    wanted = None if fields is None else tuple(fields)
    parts = [_narrow(block, wanted) for block in blocks(RunLog(source))]
    names = dict.fromkeys(name for _, names, _ in parts for name in names)
    for field in wanted or ():
        if not any(_asked(name, (field,)) for name in names):
            raise KeyError(f"{source}: no line has '{field}'{_nearest(field, parts)}")
    columns: dict[str, np.ndarray] = {
        "step": _joined([block.steps for block, _, _ in parts], np.int64),
        "iteration": _joined([[i or 0 for i in block.iterations] for block, _, _ in parts], np.int64),
        "time": _joined([block.times for block, _, _ in parts], np.float64),
    }
    for name in names:
        columns[name] = _joined([_column(*part, name) for part in parts], np.float64)
    return columns


def write_csv(columns: dict[str, np.ndarray], path: Path) -> None:
    """One line of names, then a line a record; NaN is an empty cell. Raises FileError."""
    with whole_file(path) as temporary, temporary.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for row in zip(*map(_cells, columns.values()), strict=True):
            writer.writerow(["" if value != value else value for value in row])


def write_parquet(columns: dict[str, np.ndarray], path: Path) -> None:
    """The table as Parquet. Raises MissingExtra without pyarrow, FileError."""
    arrow = require("pyarrow", "parquet", "a Parquet file")
    parquet = require("pyarrow.parquet", "parquet", "a Parquet file")
    with whole_file(path) as temporary, temporary.open("wb") as file:  # opened here: its own errors name the file anew
        parquet.write_table(arrow.table(columns), file)


def write_tensorboard(columns: dict[str, np.ndarray], folder: Path) -> None:
    """Event files with one scalar a field, at the environment step. Raises MissingExtra, FileError."""
    writer_of = require("tensorboardX", "tensorboard", "a TensorBoard export").SummaryWriter
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder}: cannot be written: {error.strerror}; choose another place") from error
    with writer_of(str(folder)) as writer:
        for name, values in columns.items():
            if name in (*INTEGERS, "time"):
                continue
            for step, time, value in zip(columns["step"], columns["time"], values, strict=True):
                if value == value:
                    writer.add_scalar(name.replace(".", "/", 1), value, int(step), walltime=float(time))


def _cells(values: np.ndarray) -> list:
    """Python values; times as ISO text in UTC."""
    if values.dtype.kind == "M":
        return [f"{text}Z" for text in np.datetime_as_string(values, "ns")]
    return values.tolist()


def _narrow(block: Block, wanted: tuple[str, ...] | None) -> tuple[Block, tuple[str, ...], np.ndarray]:
    """The block, the fields of it that were asked for, and their values."""
    keep = [i for i, name in enumerate(block.names) if wanted is None or _asked(name, wanted)]
    return block, tuple(block.names[i] for i in keep), block.values[:, keep]


def _nearest(field: str, parts: list[tuple[Block, tuple[str, ...], np.ndarray]]) -> str:
    """What was meant, or the groups there are."""
    known = dict.fromkeys(name for block, _, _ in parts for name in block.names)
    close = difflib.get_close_matches(field, known, n=1)
    groups = dict.fromkeys(f"{name.split('.')[0]}." for name in known if "." in name)
    return f"; did you mean '{close[0]}'?" if close else f"; groups are {' '.join(groups)}"


def _asked(name: str, wanted: tuple[str, ...]) -> bool:
    return any(name == field or (field.endswith(".") and name.startswith(field)) for field in wanted)


def _column(block: Block, names: tuple[str, ...], values: np.ndarray, name: str) -> np.ndarray:
    return values[:, names.index(name)] if name in names else np.full(len(block.steps), np.nan)


def _joined(parts: list, dtype: type) -> np.ndarray:
    return np.concatenate([np.asarray(part, dtype) for part in parts]) if parts else np.zeros(0, dtype)
