"""Following a run's log while it is written: its last records, then new ones as they come.

Owns the polling of the file and the question whether anyone still writes it. A torn last line waits for its end.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from foxhunt_cli.diag.reader import RunLog, RunLogError

POLL_S = 0.5
_BLOCK = 1 << 20


def last_records(source: Path, count: int) -> list[dict[str, Any]]:
    """The last ``count`` whole records, read from the end of the file. Raises FileNotFoundError, RunLogError."""
    path = RunLog(source).path
    with path.open("rb") as file:
        end = file.seek(0, 2)
        blob, at = b"", end
        while at > 0 and blob.count(b"\n") <= count:
            at = max(0, at - _BLOCK)
            file.seek(at)
            blob = file.read(min(_BLOCK, end - at)) + blob
            end = at
    lines = blob.split(b"\n")[:-1][-max(count, 1) :]
    records = [record for line in lines if (record := _parse(line)) is not None]
    if lines and not records:
        raise RunLogError(f"{path}: its last {len(lines)} lines are not JSON; is this a run.jsonl?")
    return records[-count:] if count else []


def new_records(source: Path, poll_s: float = POLL_S) -> Iterator[list[dict[str, Any]]]:
    """What is appended from now on: a list a poll, empty where nothing came. Ends when nobody writes any more."""
    path = RunLog(source).path
    with path.open("rb") as file:
        file.seek(0, 2)
        rest = b""
        while True:
            alive = is_being_written(path.parent)
            rest += file.read()
            *lines, rest = rest.split(b"\n")
            yield [record for line in lines if (record := _parse(line)) is not None]
            if not alive:
                return
            time.sleep(poll_s)


def is_being_written(run: Path) -> bool:
    """Whether a trainer holds the run's lock."""
    try:
        with (run / "lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except BlockingIOError:
        return True
    except OSError:
        return False


def merge(records: list[dict[str, Any]]) -> dict[str, Any]:
    """One record for several: sums of what happened, the last value of the rest."""
    merged = records[-1]
    market = merged.get("market", {})
    for name in ("pnl_step_usd", "fees_step_usd", "trades_closed", "wins"):
        values = [record.get("market", {}).get(name) for record in records]
        if any(value is not None for value in values):
            market[name] = sum(value for value in values if value is not None)
    return {**merged, "market": market}


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return record if isinstance(record, dict) else None
