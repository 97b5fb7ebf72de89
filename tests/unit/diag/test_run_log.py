"""The run log on disk: whole lines, nothing masked, torn tails tolerated, corruption refused."""

from __future__ import annotations

import errno
import math
import tracemalloc
from pathlib import Path

import numpy as np
import orjson
import pytest

from foxhunt_cli.diag.reader import LINE_MAX, RunLog, RunLogError, flatten
from foxhunt_cli.diag.writer import FileError, RunLogWriter, encode


def test_what_is_written_reads_back(tmp_path: Path):
    rows = [{"step": n, "loss": {"total": n / 3}, "nonfinite": []} for n in range(100)]
    with RunLogWriter(tmp_path / "run.jsonl") as writer:
        writer.write(rows[:60])
        writer.write([])
        writer.write(rows[60:])
    assert list(RunLog(tmp_path)) == rows


def test_an_existing_log_is_appended_to(tmp_path: Path):
    for step in (1, 2):
        with RunLogWriter(tmp_path / "run.jsonl") as writer:
            writer.write([{"step": step}])
    assert [row["step"] for row in RunLog(tmp_path)] == [1, 2]


def test_numbers_that_are_not_finite_become_null_and_are_named():
    record = {
        "step": 1,
        "loss": {"pi": math.nan, "v": 1.0, "q": np.float32("inf")},
        "actions": {"share": [0.5, -math.inf]},
        "name": "nan",
        "none": None,
        "nonfinite": ["loss.pi"],
    }
    line = orjson.loads(encode(record))
    assert line["loss"] == {"pi": None, "v": 1.0, "q": None}
    assert line["actions"]["share"] == [0.5, None]
    assert line["nonfinite"] == ["loss.pi", "loss.q", "actions.share.1"]


def test_a_torn_last_line_is_left_out_and_reported(tmp_path: Path):
    path = tmp_path / "run.jsonl"
    path.write_bytes(b'{"step": 1}\n{"step": 2}\n{"step": 3, "lo')
    log = RunLog(path)
    assert [row["step"] for row in log] == [1, 2]
    assert log.torn_bytes == 15


def test_a_whole_last_line_needs_no_newline(tmp_path: Path):
    (tmp_path / "run.jsonl").write_bytes(b'{"step": 1}\n{"step": 2}')
    log = RunLog(tmp_path)
    assert [row["step"] for row in log] == [1, 2]
    assert log.torn_bytes == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"step": 1}\n{"step"\n{"step": 3}\n', r"run.jsonl line 2: not JSON .*; keep the lines before .*head -n 1"),
        (b'{"step": 1}\n[1, 2]\n', r"line 2: expected one JSON object, got a list"),
        (b"a,b,c\n1,2,3\n", r"line 1: not JSON .*; is this a run.jsonl\?"),
        (b'{"step": 1}\n' + b"x" * (LINE_MAX + 1), r"line 2: longer than 4,194,304 bytes"),
    ],
)
def test_corruption_is_refused_by_line(tmp_path: Path, content, message):
    (tmp_path / "run.jsonl").write_bytes(content)
    with pytest.raises(RunLogError, match=message):
        list(RunLog(tmp_path))


def test_an_absent_log_is_a_file_error(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="give a run directory or its run.jsonl"):
        RunLog(tmp_path)


class FullDisk:
    """A file that takes ``room`` bytes and then has no space left."""

    def __init__(self, file, room: int) -> None:
        self.file, self.room = file, room

    def write(self, data) -> int:
        if self.room == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = self.file.write(data[: self.room])
        self.room -= taken
        return taken

    def __getattr__(self, name):
        return getattr(self.file, name)


def test_a_full_disk_leaves_whole_lines_and_one_clear_error(tmp_path: Path):
    path = tmp_path / "run.jsonl"
    writer = RunLogWriter(path)
    writer.write([{"step": 1}])
    writer._file = FullDisk(writer._file, room=20)
    with pytest.raises(FileError, match=r"run.jsonl: cannot be written: No space left on device; free space"):
        writer.write([{"step": 2}, {"step": 3}])
    writer.close()
    assert [row["step"] for row in RunLog(path)] == [1]


def test_an_unwritable_place_is_one_clear_error(tmp_path: Path):
    with pytest.raises(FileError, match=r"absent.run.jsonl: cannot be written: No such file or directory"):
        RunLogWriter(tmp_path / "absent" / "run.jsonl")


def test_reading_needs_little_memory(tmp_path: Path):
    path = tmp_path / "run.jsonl"
    path.write_bytes(b'{"step": 1, "pad": "' + b"x" * 1_000 + b'"}\n' * 1)
    path.write_bytes(path.read_bytes() * 20_000)  # 20 MB
    tracemalloc.start()
    assert sum(1 for _ in RunLog(path)) == 20_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000


def test_flatten_names_leaves_and_elements():
    record = {"a": {"b": 1, "c": [2, 3]}, "d": None, "names": ["x"], "none": []}
    assert dict(flatten(record)) == {"a.b": 1, "a.c.0": 2, "a.c.1": 3, "d": None, "names": ["x"], "none": []}
