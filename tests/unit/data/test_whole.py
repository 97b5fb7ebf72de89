"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from foxhunt_cli.data.whole import replacing


def test_a_failed_writer_leaves_what_stood_there_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "figures.csv"
    path.write_text("old")
    with pytest.raises(OSError, match="full"), replacing(path) as part:
        part.write_text("half")
        raise OSError("full")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["figures.csv"]


@pytest.mark.parametrize(("mask", "mode"), [(0o077, 0o600), (0o022, 0o644)])
def test_the_umask_decides_who_may_read_it(tmp_path: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        with replacing(tmp_path / "figures.csv") as part:
            part.write_text("1")
    finally:
        os.umask(before)
    assert (tmp_path / "figures.csv").stat().st_mode & 0o777 == mode
