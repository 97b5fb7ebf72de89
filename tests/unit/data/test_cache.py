"""Converted files and the cache folder: faithful, detected when damaged, safe side by side."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import numpy as np
import pytest
from files import load, market, message, same_records, write_dbn

from foxhunt_cli.data import cache
from foxhunt_cli.data.errors import DataError, DataFileError
from foxhunt_cli.data.fhx import DamagedFile, read_fhx, write_fhx
from foxhunt_cli.data.market_data import checksum


@pytest.fixture(autouse=True)
def cache_home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "foxhunt" / "data"


def entries(folder) -> list:
    return sorted(folder.glob("*")) if folder.exists() else []


def test_second_read_comes_from_the_cache_and_says_the_same(tmp_path, cache_home, monkeypatch):
    path = write_dbn(tmp_path / "es.dbn", [message(k) for k in range(50)] + [message(40)])
    first = load(path, cache=True)
    assert len(entries(cache_home)) == 1 and entries(cache_home)[0].suffix == ".fhx"
    monkeypatch.setattr("foxhunt_cli.data.source._read", lambda *a: pytest.fail("read again"))
    second = load(path, cache=True)
    assert same_records(first, second) and (second.digest, second.source) == (first.digest, first.source)
    assert (
        second.report == first.report and second.instrument == first.instrument and not second.records.flags.writeable
    )


def test_options_and_content_are_part_of_the_key(tmp_path, cache_home):
    path = write_dbn(tmp_path / "es.dbn", [message(k) for k in range(50)])
    assert len(load(path, cache=True)) == 50
    assert len(load(path, cache=True, stride=2)) == 25
    write_dbn(path, [message(k) for k in range(60)])
    assert len(load(path, cache=True)) == 60
    assert len(entries(cache_home)) == 3


def test_cached_data_still_differ_by_fee(tmp_path):
    path = write_dbn(tmp_path / "es.dbn", [message(k) for k in range(50)])
    assert load(path, cache=True).instrument.fee_usd == 2.05
    assert load(path, cache=True, fee=0.5).instrument.fee_usd == 0.5


@pytest.mark.parametrize("at", [0, 9, 20, 40, 400, 5000, -1])
def test_a_flipped_bit_is_detected_and_the_entry_rebuilt(tmp_path, cache_home, at):
    path = write_dbn(tmp_path / "es.dbn", [message(k) for k in range(50)])
    good = load(path, cache=True)
    entry = entries(cache_home)[0]
    content = bytearray(entry.read_bytes())
    content[at] ^= 0x10
    entry.write_bytes(content)
    with pytest.raises(DamagedFile):
        read_fhx(entry)
    assert same_records(load(path, cache=True), good)
    assert same_records(read_fhx(entry), good), "rebuilt"


@pytest.mark.parametrize("size", [0, 10, 31, 4096, 5000, -7])
def test_a_truncated_entry_is_rebuilt(tmp_path, cache_home, size):
    path = write_dbn(tmp_path / "es.dbn", [message(k) for k in range(50)])
    good = load(path, cache=True)
    entry = entries(cache_home)[0]
    entry.write_bytes(entry.read_bytes()[:size])
    assert same_records(load(path, cache=True), good)


def test_two_processes_at_once(tmp_path, cache_home):
    path = write_dbn(tmp_path / "es.dbn", [message(k / 10) for k in range(3000)])
    code = (
        "import sys; from pathlib import Path; from foxhunt_cli.data.source import *\n"
        "d = load_market_data(Path(sys.argv[1]), DataOptions(), SyntheticOptions()); print(d.digest)"
    )
    runs = [
        subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    digests = {run.communicate(timeout=60)[0].strip() for run in runs}
    assert all(run.returncode == 0 for run in runs) and digests == {load(path).digest}
    assert len(entries(cache_home)) == 1, "no temporary file is left"


@pytest.mark.skipif(os.name != "posix", reason="needs a path below a plain file")
def test_a_cache_that_cannot_be_written_is_a_warning(tmp_path, monkeypatch):
    path = write_dbn(tmp_path / "es.dbn", [message(k) for k in range(50)])
    (tmp_path / "plain").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "plain"))
    data = load(path, cache=True)
    assert len(data) == 50 and "could not be cached" in data.report.warnings[-1]


def test_fhx_as_a_source(tmp_path):
    original = market(3000, sessions=3)
    write_fhx(tmp_path / "es.fhx", original)
    data = load(tmp_path / "es.fhx")
    assert same_records(data, original) and data.instrument == original.instrument
    assert len(load(tmp_path / "es.fhx", max_snapshots=10)) == 10
    assert load(tmp_path / "es.fhx", stride=3).session_start.tolist() == [0, 334, 668]
    assert load(tmp_path / "es.fhx", fee=1.0).instrument.fee_usd == 1.0
    with pytest.raises(DataError, match="convert the source again"):
        load(tmp_path / "es.fhx", instrument="CL")
    with pytest.raises(DataError, match="no snapshot in the time span"):
        load(tmp_path / "es.fhx", start="2030-01-01")
    with pytest.raises(DataFileError):
        write_fhx(tmp_path / "es.fhx" / "below", original)


def test_large_files_are_keyed_by_samples(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "FULL_DIGEST_BYTES", 100)
    monkeypatch.setattr(cache, "_SAMPLE_BYTES", 10)
    path = tmp_path / "big"
    path.write_bytes(bytes(1000))
    before = cache.file_digest(path)
    path.write_bytes(bytes(999) + b"x")
    assert cache.file_digest(path) != before


def test_checksum_sees_bits_order_and_length():
    records = market(3000).records.copy()
    base = checksum(records)
    swapped = records.copy()
    swapped[[5, 6]] = swapped[[6, 5]]
    flipped = records.copy()
    flipped.view(np.uint8)[100_000] ^= 1
    assert len({base, checksum(swapped), checksum(flipped), checksum(records[:-1])}) == 4


def test_reading_a_converted_file_is_fast(tmp_path):
    data = market(200_000)
    write_fhx(tmp_path / "es.fhx", data)
    best = min(_seconds(lambda: read_fhx(tmp_path / "es.fhx")) for _ in range(5))
    # 10 M records/s is the aim on an idle core; shared test machines get a fifth of it.
    assert len(data) / best > 2e6


def _seconds(action) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start
