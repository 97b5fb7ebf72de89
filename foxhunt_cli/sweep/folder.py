"""The folder of a sweep: sweep.json says what was asked, the run directories in it say how far each run is.

Owns the layout: ``runs/<sweep>/``: sweep.json, lock, configs/<label>.toml, logs/<label>.log, and a run directory
for each label.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

import foxhunt_cli
from foxhunt_cli.config.load import ConfigError, dump_toml
from foxhunt_cli.diag.writer import FileError
from foxhunt_cli.sweep.plan import PlannedRun, is_name
from foxhunt_cli.train import run_dir

REQUEST = "sweep.json"
FORMAT = 1
STOP = "stop"  # a file that asks all runs to save and end; every node sees it


def config_path(folder: Path, label: str) -> Path:
    """The configuration that a new run is started with."""
    return folder / "configs" / f"{label}.toml"


def log_path(folder: Path, label: str) -> Path:
    """What the newest attempt at a run has printed; it is there from the attempt's first moment on."""
    return folder / "logs" / f"{label}.log"


def exists(folder: Path) -> bool:
    """Whether a sweep was begun there."""
    return (folder / REQUEST).exists()


def begin(folder: Path, runs: Sequence[PlannedRun]) -> None:
    """Write down what was asked, unless it is there already. Raises FileError."""
    if exists(folder):
        return
    try:
        for child in ("configs", "logs"):
            (folder / child).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(
            f"{folder}: cannot be made: {error.strerror}; choose another place with --set runs_dir=DIR"
        ) from None
    facts = {"format": FORMAT, "foxhunt": foxhunt_cli.__version__, "runs": [_entry(run) for run in runs]}
    run_dir.write_json(folder / REQUEST, facts | {"self": run_dir.json_digest(facts)})


def require_same(folder: Path, asked: Sequence[PlannedRun]) -> None:
    """Raises ConfigError with the first thing that another sweep, begun there before, has otherwise. FileError."""
    if not exists(folder):
        return
    known = {entry["label"]: entry for entry in _asked(folder)}
    for entry in orjson.loads(orjson.dumps([_entry(run) for run in asked], default=str)):
        label, before = entry["label"], known.pop(entry["label"], None)
        if before is None:
            raise ConfigError(_another(folder, f"it has no run {label}"))
        there, config = before["config"], entry["config"]
        key = next((key for key in {**there, **config} if there.get(key) != config.get(key)), None)
        if key is not None:
            got = f"{there.get(key)!r} there, {config.get(key)!r} asked"
            raise ConfigError(_another(folder, f"{label} has {key} = {got}"))
    if known:
        raise ConfigError(_another(folder, f"it has a run {next(iter(known))} too"))


def read(folder: Path) -> list[PlannedRun]:
    """The runs of a sweep that was begun. Raises FileError."""
    return [
        PlannedRun(e["label"], e["setting"], e["seed"], run_dir.config_of(folder / e["label"], e["config"]))
        for e in _asked(folder)
    ]


def write_config(folder: Path, run: PlannedRun, device: str, threads: int | None) -> None:
    """The file that a new run is started with: its configuration, on the device it was given. Raises FileError."""
    own = {"device": device} | ({} if run.config.cpu_threads or not threads else {"cpu_threads": threads})
    path = config_path(folder, run.label)
    try:
        path.write_text(dump_toml(run.config.model_copy(update=own)), encoding="utf-8")
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror}; free space or choose another runs_dir") from None


def is_done(folder: Path, label: str) -> bool:
    """Whether that run has its whole length. Raises FileError on a damaged one."""
    path = folder / label
    return (path / run_dir.MANIFEST).exists() and run_dir.read_manifest(path).get("status") == "done"


def ask_to_stop(folder: Path, stop: bool) -> None:
    """Ask every run to save and end, or take that back. Raises FileError."""
    try:
        if stop:
            (folder / STOP).touch()
        else:
            (folder / STOP).unlink(missing_ok=True)
    except OSError as error:
        raise FileError(f"{folder / STOP}: {error.strerror}; the folder of a sweep must be writable") from None


def is_stopping(folder: Path) -> bool:
    """Whether the runs were asked to end."""
    return (folder / STOP).exists()


def _entry(run: PlannedRun) -> dict[str, Any]:
    config = run_dir.recorded(run.config)
    return {"label": run.label, "setting": run.setting, "seed": run.seed, "config": config}


def _asked(folder: Path) -> list[dict[str, Any]]:
    path = folder / REQUEST
    facts = run_dir.read_json(path, "the folder of a sweep", "choose another NAME")
    if facts.get("self") != run_dir.json_digest(facts):
        raise FileError(f"{path}: does not match its digest (changed or damaged); choose another NAME")
    if facts["format"] != FORMAT:
        raise FileError(f"{path}: expected format {FORMAT}, got {facts['format']}; use the version that wrote it")
    for entry in facts["runs"]:
        if not is_name(entry["label"]):  # else it could be a path out of the folder
            raise FileError(f"{path}: '{entry['label']}' is no label of a run; choose another NAME")
    return facts["runs"]


def _another(folder: Path, what: str) -> str:
    return (
        f"{folder}: another sweep of that name was begun: {what}; choose another NAME, or give NAME without options "
        "to go on with that one"
    )
