"""The record's layout: the table of the specification, the dtype, the C struct."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest

from foxhunt_cli.data.record import FIELDS, SNAPSHOT, mid_ticks, render_header
from foxhunt_cli.kernels.registry import cuda_root

HEADER = cuda_root() / "generated" / "snapshot.cuh"


def test_layout_is_216_bytes_with_the_agreed_offsets():
    offsets = {
        "bid_px": 0,
        "bid_sz": 40,
        "ask_px": 80,
        "ask_sz": 120,
        "prev_mid": 160,
        "trade_signed_vol": 164,
        "trade_count": 168,
        "padding": 172,
        "ts_ns": 176,
        "prev_ts_ns": 184,
        "regime": 192,
    }
    assert SNAPSHOT.itemsize == 216
    assert {name: SNAPSHOT.fields[name][1] for name in SNAPSHOT.names} == offsets
    assert [f.name for f in FIELDS] == list(offsets)


def test_committed_header_is_up_to_date():
    assert HEADER.read_text() == render_header(), (
        "run: python -m foxhunt_cli.data.record > cuda_src/generated/snapshot.cuh"
    )


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler here")
def test_c_struct_has_the_dtype_s_offsets(tmp_path):
    checks = "".join(
        f'static_assert(offsetof(Snapshot, {n}) == {SNAPSHOT.fields[n][1]}, "{n}");\n' for n in SNAPSHOT.names
    )
    source = tmp_path / "check.cpp"
    source.write_text(f'#include <cstddef>\n#include "{HEADER}"\n{checks}')
    subprocess.run(["g++", "-std=c++17", "-fsyntax-only", str(source)], check=True)


def test_mid_of_half_ticks_is_exact():
    records = np.zeros(2, SNAPSHOT)
    records["bid_px"][:, 0], records["ask_px"][:, 0] = [4, -3], [5, -1]
    assert mid_ticks(records).tolist() == [4.5, -2.0]
