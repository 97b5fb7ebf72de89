"""What a sweep is made of: the grid of its settings times its seeds, each a labelled run with a checked configuration.

Owns labels and the meaning of ``--vary``. Reads configuration files and touches nothing else.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from foxhunt_cli.config.load import ConfigError, Setting, load_config, parse_set
from foxhunt_cli.config.run import RunConfig

RUNS_MAX = 10_000
LABEL_MAX = 80  # characters; a name of a run has at most 100
# Keys that the sweep sets itself, and what a user meant by varying them.
_OWN = {
    "seed": "--seeds N takes seeds 0 to N - 1, counted from seed",
    "name": "the NAME of the sweep names its folder, labels its runs",
    "runs_dir": "all runs stand in the folder of the sweep",
    "device": "use one sweep for each device",
    "cpu_threads": "--cpus-per-run says how many",
}


@dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep. label: its folder's name; setting: what of the grid it has, by configuration key."""

    label: str
    setting: dict[str, Any]
    seed: int
    config: RunConfig


def plan(
    name: str,
    varied: Sequence[str],
    seeds: int,
    *,
    file: Path | None = None,
    sets: Sequence[str] = (),
    options: Sequence[Setting] = (),
) -> list[PlannedRun]:
    """All runs of a sweep, settings in the order of the grid, seeds within. Raises ConfigError.

    varied: texts ``KEY=V1,V2``; file, sets, options: as in ``load_config``, the same for all runs.
    """  # fmt: skip
    base = load_config(file, None, sets, options)
    if base.name is not None:
        raise ConfigError(f"name = {base.name}: {_OWN['name']}; give NAME as the argument of foxhunt sweep instead")
    grid = list(itertools.product(*_axes(varied, options)))
    if len(grid) * seeds > RUNS_MAX:
        raise ConfigError(f"a sweep has at most {RUNS_MAX:,} runs, got {len(grid):,} settings x {seeds:,} seeds")
    folder = base.runs_dir.absolute() / name
    labels = _labels([[(s.key, s.value) for s in point] for point in grid])
    runs = []
    for point, text in zip(grid, labels, strict=True):
        for seed in range(base.seed, base.seed + seeds):
            label = f"{text}--seed-{seed}" if text else f"seed-{seed}"
            own = {"seed": seed, "name": label, "runs_dir": folder}
            given = [*options, *point, *(Setting(key, value, "--seeds") for key, value in own.items())]
            config = load_config(file, None, sets, given)
            runs.append(PlannedRun(label, {s.key: s.value for s in point}, seed, _anywhere(config)))
    return runs


def folder_of(name: str, file: Path | None, sets: Sequence[str]) -> Path:
    """Where a sweep of that name stands. Raises ConfigError."""
    if not is_name(name):
        raise ConfigError(
            f"NAME: expected 1 to 100 letters, digits, '.', '_' or '-', not starting with a sign, got '{name}'"
        )
    return load_config(file, None, sets).runs_dir.absolute() / name


def is_name(text: str) -> bool:
    """Whether a run or a sweep can have that name: one folder, nothing that leads elsewhere."""
    try:
        RunConfig(name=text)
    except ValueError:
        return False
    return True


def words(setting: dict[str, Any]) -> str:
    """A setting for people: ``batch=32 isv.lr_pi=0.001``; a dash where nothing is varied."""
    return " ".join(f"{key}={value}" for key, value in setting.items()) or "-"


def parse_vary(text: str) -> list[Setting]:
    """``KEY=V1,V2`` as one Setting a value; commas within brackets and quotes are the value's. Raises ConfigError."""
    key, equals, raw = text.partition("=")
    values = _split(raw)
    if not equals or not key.strip() or not all(values):
        raise ConfigError(f"--vary {text}: expected KEY=V1,V2, e.g. --vary isv.lr_pi=0.0003,0.001")
    if len(set(values)) < len(values):
        raise ConfigError(f"--vary {text}: expected each value once; --seeds N repeats a setting")
    return [replace(parse_set(f"{key}={value}"), origin=f"--vary {key}={value}") for value in values]


def _axes(varied: Sequence[str], options: Sequence[Setting]) -> list[list[Setting]]:
    """One list of values for each ``--vary``. Raises ConfigError on a key that has a value already."""
    axes = [parse_vary(text) for text in varied]
    taken = {option.key: option.origin for option in options}
    for axis, text in zip(axes, varied, strict=True):
        key = axis[0].key
        if key in _OWN:
            raise ConfigError(f"--vary {text}: {key} cannot be varied: {_OWN[key]}")
        if key in taken:
            raise ConfigError(f"--vary {text}: {key} is given by {taken[key]} too; leave out one")
        taken[key] = f"--vary {text}"
    return axes


def _split(raw: str) -> list[str]:
    """``raw`` at its outermost commas."""
    parts, depth, quote = [""], 0, ""
    for character in raw:
        if character == "," and not depth and not quote:
            parts.append("")
            continue
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        else:
            depth += (character in "[{") - (character in "]}")
        parts[-1] += character
    return [part.strip() for part in parts]


def _labels(grid: Sequence[Sequence[tuple[str, Any]]]) -> list[str]:
    """A folder name for each point: keys and values in it, or where that would not tell them apart, its number."""
    found = ["--".join(f"{key.split('.')[-1]}-{_plain(value)}" for key, value in point) for point in grid]
    if len(set(found)) < len(found) or max(map(len, found)) > LABEL_MAX:
        return [f"setting-{index}" for index in range(len(grid))]
    return found


def _plain(value: Any) -> str:
    """A value with nothing in it but what names of runs may have."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-") if not text.startswith("-") else text


def _anywhere(config: RunConfig) -> RunConfig:
    """With whole paths: a node of a cluster has another working directory."""
    paths = None if config.paths is None else tuple(path.absolute() for path in config.paths)
    return config.model_copy(update={"paths": paths})
