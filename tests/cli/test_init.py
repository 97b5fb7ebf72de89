"""``foxhunt init``: files that change nothing until a line is edited, and that accept every line that is."""

from __future__ import annotations

import re
from pathlib import Path

from foxhunt_cli.config.load import load_config
from foxhunt_cli.config.run import RunConfig
from foxhunt_cli.isv.seeds import preset_seeds
from foxhunt_cli.isv.table import slots

ASSIGNMENT = re.compile(r"^# (\w+) = ([^;\n]+)$", re.M)  # explanations hold a range behind a semicolon


def test_as_written_they_change_nothing(foxhunt, tmp_path: Path):
    status, out, _ = foxhunt("init", str(tmp_path / "new"))
    assert status == 0
    run, seeds = map(Path, out.split())
    assert (run.name, seeds.name) == ("run.toml", "isv.toml")
    assert load_config(run, seeds) == RunConfig()


def test_every_line_counts_once_uncommented(foxhunt, tmp_path: Path):
    foxhunt("init", str(tmp_path))
    for name in ("run.toml", "isv.toml"):
        path = tmp_path / name
        path.write_text(ASSIGNMENT.sub(r"\1 = \2", path.read_text()))
    config = load_config(tmp_path / "run.toml", tmp_path / "isv.toml")
    assert config.model_copy(update={"isv": {}}) == RunConfig()
    settable = {slot.name.lower(): slot.seed for slot in slots() if slot.kind in ("tunable", "control")}
    assert config.isv == settable | preset_seeds("foxhunt")


def test_nothing_is_overwritten(foxhunt, tmp_path: Path):
    (tmp_path / "isv.toml").write_text("mine")
    status, out, err = foxhunt("init", str(tmp_path))
    assert (status, out) == (6, "")
    assert "isv.toml: exists and is left as it is" in err
    assert not (tmp_path / "run.toml").exists()
