"""Typed columns out of a CSV file, block by block: with pyarrow where it is installed, else with numpy.

Knows text, commas and types; knows nothing of markets. Integers are exact to 64 bits in both ways.
"""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np

from foxhunt_cli.data.errors import DataError
from foxhunt_cli.data.streams import ByteStream

BLOCK_LINES = 20_000
MISSING_INT = 2**63 - 1
"""What an empty field of an integer column becomes."""


@dataclass(frozen=True)
class Column:
    """A column to read: its place in the line, its name in the result, its type."""

    place: int
    name: str
    kind: Literal["int", "float", "text"]


def read_csv(
    path: Path, columns: list[Column], header: bool, arrow: bool | None = None
) -> Iterator[dict[str, np.ndarray]]:
    """Blocks of columns: int64 (empty = MISSING_INT), float64 (empty = NaN), str. Raises DataError naming the line."""
    if arrow is None:
        arrow = importlib.util.find_spec("pyarrow") is not None
    with ByteStream(path) as stream:
        reader = _with_arrow if arrow else _with_numpy
        yield from reader(stream, path.name, columns, header)


def _with_arrow(stream: ByteStream, name: str, columns: list[Column], header: bool) -> Iterator[dict[str, np.ndarray]]:
    import pyarrow as pa
    from pyarrow import csv

    types = {"int": pa.int64(), "float": pa.float64(), "text": pa.string()}
    text = io.BufferedReader(stream, 1 << 20)
    lead = text.peek(1 << 16)
    if not lead:
        return
    width = lead.split(b"\n", 1)[0].count(b",") + 1
    names = [f"c{i}" for i in range(width)]
    keep = [f"c{c.place}" for c in columns]
    convert = csv.ConvertOptions(
        include_columns=keep,
        column_types={f"c{c.place}": types[c.kind] for c in columns},
        null_values=["", "nan", "NaN"],
        strings_can_be_null=False,
    )
    read = csv.ReadOptions(column_names=names, skip_rows=1 if header else 0, block_size=8 << 20, use_threads=False)
    try:
        for batch in csv.open_csv(text, read_options=read, convert_options=convert):
            yield {c.name: _from_arrow(batch.column(f"c{c.place}"), c.kind) for c in columns}
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        raise DataError(
            f"{name}: {_first_line(error)}; the file is not the table that its first lines promise"
        ) from error


def _from_arrow(array, kind: str) -> np.ndarray:
    if kind == "int":
        return array.fill_null(MISSING_INT).to_numpy(zero_copy_only=False)
    return array.to_numpy(zero_copy_only=False)


def _with_numpy(stream: ByteStream, name: str, columns: list[Column], header: bool) -> Iterator[dict[str, np.ndarray]]:
    text = io.TextIOWrapper(io.BufferedReader(stream, 1 << 20), encoding="utf-8", errors="replace", newline="\n")
    if header:
        text.readline()
    kinds = {"int": "<i8", "float": "<f8", "text": "U40"}
    order = sorted(columns, key=lambda c: c.place)
    dtype = np.dtype([(c.name, kinds[c.kind]) for c in order])
    done = int(header)
    while lines := list(islice(text, BLOCK_LINES)):
        lines = [
            _filled(line, order) if ",," in line or line.startswith(",") or line.rstrip("\r\n").endswith(",") else line
            for line in lines
        ]
        try:
            table = np.loadtxt(
                lines, dtype, delimiter=",", comments=None, quotechar='"', usecols=[c.place for c in order], ndmin=1
            )
        except (ValueError, IndexError) as error:
            raise DataError(f"{name}, lines {done + 1:,} to {done + len(lines):,}: {_first_line(error)}") from error
        done += len(lines)
        yield {c.name: np.ascontiguousarray(table[c.name]) for c in order}


def _filled(line: str, columns: list[Column]) -> str:
    """A line with its empty fields written out, which numpy's parser needs."""
    fields = line.rstrip("\r\n").split(",")
    for column in columns:
        if column.place < len(fields) and fields[column.place] == "":
            fields[column.place] = {"int": str(MISSING_INT), "float": "nan", "text": "-"}[column.kind]
    return ",".join(fields)


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
