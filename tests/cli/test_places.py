"""Files that have moved, names that shells would split, places that cannot be written: nothing is lost or half."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from foxhunt_cli.config.load import ConfigError, load_config
from foxhunt_cli.diag import columns, writer
from foxhunt_cli.train import loop, run_dir

FILE_RUN = "train --device cpu --steps 16 -b 2 --rollout 8 --encoder mlp --data ESH4.mbp-10.dbn.zst --name file"


@pytest.fixture
def of_file(workplace, foxhunt) -> Path:
    """A run whose data are a file that was named from here."""
    status, _, err = foxhunt(*FILE_RUN.split())
    assert status == 0, err
    return workplace


def test_a_run_is_evaluated_from_any_folder(of_file, foxhunt, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    status, _, err = foxhunt("eval", str(of_file / "runs/file"), "--device", "cpu")
    assert status == 0, err


@pytest.mark.parametrize("command", ["eval runs/file --device cpu", "train --resume runs/file --steps 32"])
def test_moved_data_are_named_and_checked(of_file, foxhunt, command):
    market = of_file / "ESH4.mbp-10.dbn.zst"
    elsewhere = market.rename(of_file / "elsewhere.dbn.zst")
    status, _, err = foxhunt(*command.split())
    assert status == 6
    assert f"{market}: no such file" in err and "runs/file" in err and "--data FILE" in err
    assert foxhunt("data", "make-synthetic", "--snapshots", "5000", "--seed", "9", "-o", "another.dbn")[0] == 0
    status, _, err = foxhunt(*command.split(), "--data", "another.dbn")
    assert status == 5 and "not the data this run was trained on" in err
    status, _, err = foxhunt(*command.split(), "--data", str(elsewhere))
    assert status == 0, err


def test_a_policy_nobody_has_is_refused_before_anything_is_read(workplace, foxhunt):
    status, _, err = foxhunt("eval", "runs/demo", "--policy", "greedy")
    assert status == 2 and err.startswith("error: ") and err.count("\n") == 1


@pytest.mark.parametrize("option", ["--blotter x.parquet", "--plots x"])
def test_a_missing_package_is_said_before_a_minute_of_playing(workplace, foxhunt, monkeypatch, option):
    for package in ("pyarrow", "matplotlib"):
        monkeypatch.setitem(sys.modules, package, None)
    status, out, err = foxhunt("eval", "runs/demo", *option.split())
    assert (status, out) == (2, "") and "pip install 'foxhunt[" in err and err.count("\n") == 1


def test_hints_can_be_pasted_whatever_the_names(tmp_path, monkeypatch, foxhunt):
    monkeypatch.chdir(tmp_path)
    status, _, err = foxhunt("init", "my settings")
    assert status == 0
    words = shlex.split(err)
    assert words[words.index("--config") + 1] == "my settings/run.toml"
    small = "--device cpu --steps 16 -b 2 --rollout 8 --encoder mlp --set synthetic.snapshots=20000 --name x"
    status, out, _ = foxhunt("train", *small.split(), "--set", "runs_dir=my runs")
    assert status == 0
    assert shlex.split(out.splitlines()[-1])[-1] == "my runs/x"


def test_a_run_with_its_whole_length_says_that_nothing_is_left_to_train(workplace, foxhunt):
    status, _, err = foxhunt("train", "--resume", "runs/demo")
    assert status == 0 and "give --steps, more than it has done" in err


def test_a_name_that_is_no_text_is_refused_where_a_manifest_has_to_hold_it():
    with pytest.raises(ConfigError, match="expected a name in UTF-8"):
        load_config(sets=["runs_dir=r\udcff"])


def test_a_run_that_cannot_begin_leaves_no_directory(tmp_path, monkeypatch, foxhunt):
    def refuse(*_: object) -> None:
        raise writer.FileError("no room for the manifest")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_dir, "write_manifest", refuse)
    small = "--device cpu --steps 16 -b 2 --rollout 8 --encoder mlp --set synthetic.snapshots=20000"
    status, _, err = foxhunt("train", *small.split())
    assert status == 6 and "no room for the manifest" in err
    assert loop.run_dir is run_dir and not list(tmp_path.glob("runs/*"))


def test_a_table_that_cannot_be_finished_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "deep" / "run.csv"
    table = columns.read_columns.__globals__["np"].arange(3)
    columns.write_csv({"step": table}, path)  # its folder is made
    before = path.read_bytes()

    def full(*_: object, **__: object):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(columns, "_cells", full)
    with pytest.raises(writer.FileError, match=r"run.csv: cannot be written: No space left on device"):
        columns.write_csv({"step": table}, path)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["run.csv"]


@pytest.mark.parametrize("command", ["oracle rng", "train --steps 16 --encoder mlp --set synthetic.snapshots=20000"])
def test_a_cache_that_cannot_be_written_is_one_error(tmp_path, command):
    (tmp_path / "file").touch()
    line = [sys.executable, "-m", "foxhunt_cli.cli", *command.split(), "--device", "cpu"]
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "file")}
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=120, env=environment)
    errors = [text for text in done.stderr.splitlines() if text.startswith("error: ")]
    assert (done.returncode, len(errors)) == (3, 1), done.stderr
    assert "set XDG_CACHE_HOME" in errors[0] and "Traceback" not in done.stdout + done.stderr


def test_doctor_tries_the_cache(tmp_path, foxhunt, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    found = {finding["topic"]: finding for finding in json.loads(foxhunt("doctor", "--json")[1])["findings"]}
    assert found["cache"]["mark"] == "missing"


def test_a_home_that_cannot_be_written_leaves_the_cpu(tmp_path):
    pytest.importorskip("cupy")
    (tmp_path / "file").touch()
    environment = {name: value for name, value in os.environ.items() if name != "CUPY_CACHE_DIR"}
    environment |= {"HOME": str(tmp_path / "file")}
    code = "from foxhunt_cli.device.cuda_errors import usable_gpus; print(*usable_gpus())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("0 CuPy cannot be loaded") and "CUPY_CACHE_DIR" in done.stdout
