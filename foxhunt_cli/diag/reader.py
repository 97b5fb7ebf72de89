"""Reading run.jsonl: one object a line, in bounded memory, however long the run was.

Owns the tolerance of a torn last line (a kill leaves at most one) and the refusal of everything else that is not a
whole line.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

LINE_MAX = 4 * 1024 * 1024  # bytes; a line of ours is below 20 kB


class RunLogError(ValueError):
    """A run log cannot be read; the message names file, line and remedy."""


class RunLog:
    """The lines of a run log. Iterate once or more; ``torn_bytes`` is known after an iteration."""

    def __init__(self, source: Path) -> None:
        """``source``: a run directory or its run.jsonl. Raises FileNotFoundError."""
        self.path = source / "run.jsonl" if source.is_dir() else source
        if not self.path.exists():
            raise FileNotFoundError(
                errno.ENOENT, "no such run log; give a run directory or its run.jsonl", str(self.path)
            )
        self.torn_bytes = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Every whole line as a dict, in file order. Raises RunLogError at a corrupt one."""
        self.torn_bytes = 0
        with self.path.open("rb") as file:
            number = 0
            while line := file.readline(LINE_MAX):
                number += 1
                if len(line) == LINE_MAX and not line.endswith(b"\n"):
                    raise self._corrupt(number, f"longer than {LINE_MAX:,} bytes")
                if not line.strip():
                    continue
                record = self._parse(line, number)
                if record is None:
                    self.torn_bytes = len(line)
                    return
                yield record

    def _parse(self, line: bytes, number: int) -> dict[str, Any] | None:
        """The line's object; None for a torn last line, one that has no end and does not parse."""
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            if not line.endswith(b"\n"):
                return None
            raise self._corrupt(number, f"not JSON ({error.msg} at column {error.colno})") from None
        if not isinstance(record, dict):
            raise self._corrupt(number, f"expected one JSON object, got a {type(record).__name__}")
        for name in ("step", "iteration"):
            value = record.get(name, 0)
            if value is not None and (type(value) is not int or not 0 <= value < 2**63):
                raise self._corrupt(number, f"'{name}': expected a whole number, got {str(value)[:40]}")
        named = record.get("nonfinite")
        if named is not None and not (isinstance(named, list) and all(isinstance(name, str) for name in named)):
            raise self._corrupt(number, f"'nonfinite': expected a list of names, got {str(named)[:40]}")
        return record

    def _corrupt(self, number: int, problem: str) -> RunLogError:
        remedy = f"keep the lines before it with 'head -n {number - 1}'" if number > 1 else "is this a run.jsonl?"
        return RunLogError(f"{self.path} line {number}: {problem}; {remedy}")


def torn_note(source: Path) -> str | None:
    """What to tell of a torn last line; None where the last line is whole. Reads no more than a line."""
    path = RunLog(source).path
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - LINE_MAX))
        tail = file.read().rpartition(b"\n")[2]
    try:
        orjson.loads(tail or b"null")
    except orjson.JSONDecodeError:
        return f"{path}: the last line is torn ({len(tail):,} bytes) and was left out"
    return None


def flatten(record: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves of a nested record by dotted name; elements of lists by index, as in ``actions.share.2``."""
    for key, value in record.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{key}.")
        elif isinstance(value, list) and value and not isinstance(value[0], str):
            yield from ((f"{prefix}{key}.{index}", item) for index, item in enumerate(value))
        else:
            yield prefix + key, value
