"""`foxhunt data`: what it prints, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from files import header, message, write_dbn

from foxhunt_cli.cli.app import main


@pytest.fixture
def run(capsys):
    """Run `foxhunt data ...`; gives (exit status, stdout, stderr)."""

    def call(*arguments) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main(["data", *map(str, arguments)])
        out, err = capsys.readouterr()
        return int(caught.value.code or 0), out, err

    return call


@pytest.fixture
def es(tmp_path):
    return write_dbn(
        tmp_path / "es.dbn", [message(k, 4800 + 0.25 * (k % 3), 4800.25 + 0.25 * (k % 3)) for k in range(400)]
    )


def test_info(run, es):
    status, out, _ = run("info", es)
    assert status == 0 and "ES: tick 0.25" in out and "400" in out
    status, out, _ = run("info", es, "--json")
    facts = json.loads(out)
    assert status == 0 and facts["snapshots"] == 400 and facts["sessions"] == 1 and facts["highest ask"] == "4800.75"


def test_info_of_two_records(run, tmp_path):
    assert run("info", write_dbn(tmp_path / "es.dbn", [message(0), message(1)]))[0] == 0


def test_validate(run, es, tmp_path):
    assert run("validate", es)[0] == 0
    status, out, _ = run("validate", write_dbn(tmp_path / "short.dbn", [message(0), message(1)]), "--json")
    assert status == 1 and not json.loads(out)["passed"]


@pytest.mark.parametrize("kind", ["dbn", "dbn.zst", "parquet", "fhx"])
def test_make_synthetic_and_convert(run, tmp_path, kind):
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    made, again = tmp_path / f"made.{kind}", tmp_path / "again.fhx"
    assert run("make-synthetic", "-o", made, "--snapshots", 600, "--preset", "dirty", "--seed", 3)[0] == 0
    status, out, _ = run("convert", made, "-o", again, "--stride", 2)
    assert status == 0 and "snapshots" in out
    status, out, _ = run("info", again, "--json")
    assert status == 0 and json.loads(out)["snapshots"] >= 290


def test_statistics_table(run, tmp_path):
    status, out, _ = run(
        "make-synthetic", "-o", tmp_path / "m.fhx", "--snapshots", 5000, "--preset", "realistic", "--stats"
    )
    assert status == 0 and "reversal probability" in out
    assert len(json.loads(run("info", tmp_path / "m.fhx", "--stats", "--json")[1])["statistics"]) > 15


def test_exit_statuses(run, tmp_path):
    assert run("info", tmp_path / "absent.dbn")[0] == 6
    (tmp_path / "cut.dbn").write_bytes(header()[:20])
    status, _, err = run("info", tmp_path / "cut.dbn")
    assert status == 5 and err.startswith("error: cut.dbn") and err.count("\n") == 1
    assert run("make-synthetic", "-o", tmp_path / "x.txt")[0] == 2
    assert run("make-synthetic", "-o", tmp_path / "x.fhx", "--preset", "calm")[0] == 2
    assert run("info", tmp_path / "absent.dbn", "--tick-size", "abc")[0] == 2


def test_help_does_not_load_numpy():
    code = "import sys; import foxhunt_cli.cli.data; sys.exit('numpy' in sys.modules or 'pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
