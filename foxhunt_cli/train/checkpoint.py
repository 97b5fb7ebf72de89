"""Saving and loading the device state of a run.

A checkpoint is a directory written under a temporary name, fsynced and renamed: ``state.safetensors`` (parameters,
optimiser, every persistent buffer) and ``manifest.json`` (step, digest). A torn or foreign one is refused by digest.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import safetensors.numpy

from foxhunt_cli.diag.writer import FileError
from foxhunt_cli.isv.table import layout_hash
from foxhunt_cli.pipeline.tables import buffers
from foxhunt_cli.train.engine import Engine
from foxhunt_cli.train.run_dir import write_json

STATE = "state.safetensors"
_VECTORS = ("params", "adam_m", "adam_v", "target_params")


def state_names(engine: Engine) -> list[str]:
    """Arrays that make up the state: the flat vectors and every persistent buffer the run has."""
    table = buffers()
    vectors = [name for name in _VECTORS if name in engine.arrays]
    return [*vectors, *(n for n, row in table.items() if row.lifetime == "persistent" and n in engine.arrays)]


def save(engine: Engine, folder: Path, step: int, totals: dict[str, float], seconds: float) -> Path:
    """Write ``folder/step-N``, whole or not at all, and return it. Raises FileError.

    totals, seconds: what the host has added up so far; a resumed run goes on from them.
    """
    final = folder / f"step-{step:09d}"
    temporary = folder / f".{final.name}.{os.getpid()}"
    tensors = {name: np.ascontiguousarray(engine.device.download(engine.arrays[name])) for name in state_names(engine)}
    payload = safetensors.numpy.save(tensors)
    try:
        temporary.mkdir()
        with (temporary / STATE).open("wb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        digest = hashlib.sha256(payload).hexdigest()
        facts = {"format": 1, "step": step, "layout": layout_hash(), "sha256": digest}
        write_json(temporary / "manifest.json", facts | {"totals": totals, "seconds": seconds})
        if final.exists():
            shutil.rmtree(final)
        temporary.rename(final)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise FileError(f"{final}: cannot be written: {error.strerror}; the previous checkpoint is intact") from error
    return final


def progress(checkpoint: Path) -> dict[str, Any]:
    """step, totals and seconds of a checkpoint that ``load`` has accepted."""
    return orjson.loads((checkpoint / "manifest.json").read_bytes())


def prune(folder: Path, keep: int) -> None:
    """Remove all but the ``keep`` newest checkpoints."""
    for old in sorted(folder.glob("step-*"))[:-keep]:
        shutil.rmtree(old, ignore_errors=True)


def latest(run: Path) -> Path:
    """The newest checkpoint of ``run``. Raises FileError where there is none."""
    found = sorted((run / "checkpoints").glob("step-*"))
    if not found:
        raise FileError(f"{run}: no checkpoint; the run ended before it could write one")
    return found[-1]


def load(checkpoint: Path) -> dict[str, np.ndarray]:
    """Arrays of a checkpoint by name. Raises FileError where it is torn, changed or of another layout."""
    try:
        meta: dict[str, Any] = orjson.loads((checkpoint / "manifest.json").read_bytes())
        payload = (checkpoint / STATE).read_bytes()
    except (OSError, orjson.JSONDecodeError) as error:
        raise FileError(f"{checkpoint}: cannot be read ({error}); use an earlier checkpoint of the run") from None
    if hashlib.sha256(payload).hexdigest() != meta.get("sha256"):
        raise FileError(
            f"{checkpoint}: its contents do not match its digest (torn or changed); use an earlier checkpoint"
        )
    if meta.get("layout") != layout_hash():
        raise FileError(f"{checkpoint}: written by a foxhunt with another slot layout; evaluate it with that version")
    return safetensors.numpy.load(payload)


def restore(engine: Engine, arrays: dict[str, np.ndarray], names: list[str] | None = None) -> None:
    """Write saved arrays (all of the state, or ``names``) into the engine. Raises FileError on a misshapen one."""
    for name in names or state_names(engine):
        target = engine.arrays[name]
        saved = arrays.get(name)
        if saved is None or tuple(saved.shape) != tuple(target.shape):
            got = "nothing" if saved is None else f"shape {saved.shape}"
            raise FileError(
                f"checkpoint: '{name}': expected shape {tuple(target.shape)}, got {got}; same config needed"
            )
        engine.device.write(target, saved)
