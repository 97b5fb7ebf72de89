"""Continuing a run from its newest sound checkpoint, bit for bit as if it had never stopped."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson

from foxhunt_cli.config.load import ConfigError, Setting, validated
from foxhunt_cli.config.run import RunConfig
from foxhunt_cli.diag.writer import FileError
from foxhunt_cli.train import checkpoint, run_dir

CHANGEABLE = ("steps", "log_every", "paths")  # the data themselves may not: their digest is compared


def resumed_config(run: Path, settings: Iterable[Setting]) -> RunConfig:
    """The run's own config, with what may change (``CHANGEABLE``) as given now. Changes nothing on disk.

    Raises ConfigError on any other change and on a length that the run has reached already, FileError.
    """
    config: dict[str, Any] = run_dir.read_manifest(run)["config"]
    origins: dict[str, str] = {}
    before = run_dir.config_of(run, config)
    for setting in settings:
        if setting.value is None:
            continue
        if setting.key == "steps":
            _require_longer(run, setting)
        if setting.key in CHANGEABLE:
            config[setting.key], origins[setting.key] = setting.value, setting.origin
        elif _value(before, setting.key) != setting.value:
            raise ConfigError(
                f"{setting.origin}: a resumed run keeps its configuration ({setting.key} = "
                f"{_value(before, setting.key)!r}); only --steps, --log-every and the place of --data may "
                "change: start a new run instead"
            )
    return validated(config, origins)


def _require_longer(run: Path, setting: Setting) -> None:
    """Raises ConfigError where the newest sound checkpoint is at or beyond the length asked for."""
    folder = newest_sound(run)[0]
    reached = checkpoint.progress(folder)["step"]
    if isinstance(setting.value, int) and setting.value <= reached:
        raise ConfigError(
            f"{setting.origin}: {run} has done {reached:,} steps already, --steps is the whole length of the run; "
            f"expected more than {reached}, got {setting.value}"
        )


def _value(config: RunConfig, key: str) -> Any:
    node: Any = config
    for part in key.split("."):
        node = node.get(part) if isinstance(node, dict) else getattr(node, part, None)
    return node


def newest_sound(run: Path) -> tuple[Path, dict[str, Any], list[str]]:
    """Newest checkpoint that passes its digest, its arrays, and what was wrong with newer ones. Raises FileError."""
    refused: list[str] = []
    for folder in reversed(checkpoint.saved(run)):
        try:
            return folder, checkpoint.load(folder), refused
        except FileError as error:
            refused.append(str(error))
    detail = f" ({refused[0]})" if refused else ""
    raise FileError(f"{run}: no sound checkpoint to resume from{detail}; start a new run")


def cut_log(path: Path, step: int) -> None:
    """Drop what ``path`` holds beyond ``step``, a torn last line included. Raises FileError."""
    try:
        with path.open("rb+") as file:
            keep = 0
            for line in file:
                if not line.endswith(b"\n") or int(orjson.loads(line)["step"]) > step:
                    break
                keep += len(line)
            file.truncate(keep)
    except OSError as error:
        raise FileError(f"{path}: cannot be continued: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise FileError(f"{path}: byte {keep:,}: cannot be continued: {error}; start a new run") from None
