"""Typed columns out of a Parquet file, block by block, through pyarrow (extra `parquet`).

Knows files and types; knows nothing of markets.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from foxhunt_cli.data.csv_columns import BLOCK_LINES, MISSING_INT
from foxhunt_cli.data.errors import DataError, file_error


def _arrow_parquet(path: Path):
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise DataError(f"{path.name}: reading Parquet needs pyarrow; pip install 'foxhunt[parquet]'") from error
    try:
        return parquet.ParquetFile(path)
    except Exception as error:  # on damaged files pyarrow raises nearly anything
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> DataError:
    if isinstance(error, OSError) and error.errno is not None:
        return file_error(path, "read", error)
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return DataError(f"{path.name}: the Parquet file is damaged ({reason}); fetch it again")


def parquet_head(path: Path, lines: int) -> tuple[list[str], list[list]]:
    """Column names, and the values of the first rows. Raises DataError for a file that is no Parquet."""
    file = _arrow_parquet(path)
    names = _names(file, path)
    for batch in _batches(file, path, names, lines):
        columns = [_arrow_column(c) for c in batch.columns]
        return names, [list(line) for line in zip(*[c.tolist() for c in columns], strict=True)]
    return names, []


def _names(file, path: Path) -> list[str]:
    try:
        return file.schema_arrow.names
    except Exception as error:
        raise _damaged(path, error) from error


def parquet_blocks(path: Path, wanted: dict[str, int]) -> Iterator[dict[str, np.ndarray]]:
    """Blocks of the columns `wanted` (name in the result -> place in the file)."""
    file = _arrow_parquet(path)
    names = _names(file, path)
    for batch in _batches(file, path, [names[place] for place in wanted.values()], BLOCK_LINES):
        yield {name: _arrow_column(batch.column(names[place])) for name, place in wanted.items()}


def _batches(file, path: Path, names: list[str], size: int) -> Iterator:
    """Record batches of the named columns."""
    try:
        yield from file.iter_batches(batch_size=size, columns=names, use_threads=False)
    except Exception as error:
        raise _damaged(path, error) from error


def _arrow_column(array) -> np.ndarray:
    """An arrow array as numpy: integers exact (null = MISSING_INT), times as datetime64[ns] in UTC, text as str."""
    import pyarrow as pa

    kind = array.type
    if pa.types.is_dictionary(kind):
        array = array.dictionary_decode()
        kind = array.type
    if pa.types.is_timestamp(kind):
        return array.to_numpy(zero_copy_only=False).astype("datetime64[ns]")
    if pa.types.is_integer(kind):
        if kind.bit_width == 64 and not pa.types.is_signed_integer(kind):
            return np.minimum(array.fill_null(MISSING_INT).to_numpy(zero_copy_only=False), MISSING_INT).astype(np.int64)
        return array.cast(pa.int64()).fill_null(MISSING_INT).to_numpy(zero_copy_only=False)
    if pa.types.is_decimal(kind):
        array = array.cast(pa.float64())
    if pa.types.is_floating(array.type):
        return array.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return np.array(
        [("" if v is None else v.decode() if isinstance(v, bytes) else str(v)) for v in array.to_pylist()], "U40"
    )
