"""Damaged files end in a DataError or in a usable data set: never in another exception, never in nonsense."""

from __future__ import annotations

import resource

import numpy as np
import pytest
import zstandard
from files import header, load, market, message, write_dbn
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foxhunt_cli.data.errors import DataError
from foxhunt_cli.data.fhx import write_fhx
from foxhunt_cli.data.write import write_data

DAMAGE = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 7)), max_size=4)
FUZZ = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def originals(folder) -> dict[str, bytes]:
    """One small good file of each format."""
    data = market(60)
    plain = write_dbn(
        folder / "es.dbn", [message(k, action="T", side="B") if k % 7 == 3 else message(k) for k in range(60)]
    ).read_bytes()
    out = {
        "es.dbn": plain,
        "es.dbn.zst": zstandard.ZstdCompressor(write_checksum=True).compress(plain),
        "out.dbn": header(ts_out=True) + bytes(message(0, ts_out=5)) * 20,
    }
    write_fhx(folder / "es.fhx", data)
    out["es.fhx"] = (folder / "es.fhx").read_bytes()
    lines = ["ts_ns,bid_px_00,bid_sz_00,ask_px_00,ask_sz_00,symbol"] + [
        f"{10**18 + k},100.25,5,100.5,6,ESH4" for k in range(40)
    ]
    out["es.csv"] = "\n".join(lines).encode()
    try:
        write_data(folder / "es.parquet", data, "parquet")
        out["es.parquet"] = (folder / "es.parquet").read_bytes()
    except DataError:
        pass
    return out


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    files = originals(tmp_path_factory.mktemp("good"))
    return files.get  # a function, so that a failing example is not printed with all its bytes


def check(path) -> None:
    """The contract."""
    try:
        data = load(path, allow_dirty=True)
    except DataError as error:
        assert path.name in str(error) or str(path) in str(error)
        return
    records = data.records
    assert len(records) >= 1 and data.session_start[0] == 0 and (np.diff(data.session_start) > 0).all()
    assert (records["bid_px"][:, 0] < records["ask_px"][:, 0]).all()
    assert (records["bid_sz"][:, 0] > 0).all() and (records["ask_sz"][:, 0] > 0).all()
    assert (np.diff(records["ts_ns"].astype(np.int64)) >= 0).all()
    for name in ("bid_px", "ask_px", "bid_sz", "ask_sz", "prev_mid", "regime"):
        assert np.isfinite(records[name]).all(), name


@pytest.mark.parametrize("name", ["es.dbn", "es.dbn.zst", "out.dbn", "es.fhx", "es.csv", "es.parquet"])
@given(damage=DAMAGE, keep=st.floats(0, 1))
@FUZZ
def test_flipped_bits_and_truncation(name, good, tmp_path, damage, keep):
    if good(name) is None:
        pytest.skip("pyarrow is not installed")
    content = bytearray(good(name))
    for place, bit in damage:
        content[int(place * len(content))] ^= 1 << bit
    if keep < 0.5:
        content = content[: int(2 * keep * len(content))]
    path = tmp_path / name
    path.write_bytes(content)
    check(path)


@given(
    content=st.binary(max_size=600),
    lead=st.sampled_from([b"", b"DBN\x01", b"DBN\x03\x00\x00\x00\x00", b"\x28\xb5\x2f\xfd", b"PAR1", b"FOXHUNT\x01"]),
    name=st.sampled_from(["x.dbn", "x.csv", "x.parquet", "x.fhx", "A_2012-06-21_1_2_message_10.csv"]),
)
@FUZZ
def test_noise_of_every_name(tmp_path, content, lead, name):
    path = tmp_path / name
    path.write_bytes(lead + content)
    check(path)


LOBSTER = ("AAPL_2012-06-21_34200000_57600000_message_2.csv", "AAPL_2012-06-21_34200000_57600000_orderbook_2.csv")
LOBSTER_LINES = [
    (
        f"{34200.0 + k / 7:.9f},{1 + k % 5},{k},{10 + k},{5853300 + 100 * (k % 3)},{-1 + 2 * (k % 2)}\n",
        f"{5853400 + 100 * (k % 3)},5,5853300,{6 + k % 4},5853900,7,-9999999999,0\n",
    )
    for k in range(40)
]
CELLS = st.sampled_from(["", "x", "-1", "9" * 30, "1e9"])


@given(which=st.integers(0, 1), damage=DAMAGE, keep=st.floats(0, 1), cell=CELLS)
@FUZZ
def test_a_damaged_lobster_pair(tmp_path, which, damage, keep, cell):
    contents = [bytearray("".join(column).encode()) for column in zip(*LOBSTER_LINES, strict=True)]
    content = contents[which]
    for place, bit in damage:
        content[int(place * len(content))] ^= 1 << bit
    if keep < 0.4:
        del content[int(2.5 * keep * len(content)) :]
    elif keep < 0.7:
        at = content.rfind(b",", 0, int(keep * len(content)))
        content[at + 1 : at + 3] = cell.encode()
    for name, bytes_ in zip(LOBSTER, contents, strict=True):
        (tmp_path / name).write_bytes(bytes_)
    try:
        data = load(tmp_path / LOBSTER[0], allow_dirty=True)
    except DataError as error:
        assert "AAPL_2012-06-21" in str(error)
        return
    assert len(data.records) >= 1 and (data.records["bid_px"][:, 0] < data.records["ask_px"][:, 0]).all()


@pytest.mark.parametrize("lead", [header() + bytes(message(0)), header(), b"DBN\x03\xff\xff\xff\x7f", b"a,b\n1,2\n"])
def test_a_file_that_unpacks_to_gigabytes_is_refused_in_little_memory(tmp_path, lead):
    """2 GB of zeros behind a good start are 64 kB of zstd."""
    packer = zstandard.ZstdCompressor().compressobj()
    zeros = bytes(1 << 24)
    content = packer.compress(lead) + b"".join(packer.compress(zeros) for _ in range(128)) + packer.flush()
    path = tmp_path / "es.dbn.zst"
    path.write_bytes(content)
    assert len(content) < 1 << 17
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DataError, match="es.dbn.zst"):
        load(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000, "kilobytes"
