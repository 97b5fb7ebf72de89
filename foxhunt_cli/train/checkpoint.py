"""Saving and loading the device state of a run.

A checkpoint is a directory written under a temporary name, fsynced and renamed: ``state.safetensors`` (parameters,
optimiser, every persistent buffer) and ``manifest.json`` (step, totals, digests of the state and of itself). A torn,
changed or foreign one is refused by digest.
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
from foxhunt_cli.train.run_dir import json_digest, write_json

STATE = "state.safetensors"
FORMAT = 3  # 2: the manifest holds a digest of itself; 3: each optimiser counts its own updates
_VECTORS = ("params", "adam_m", "adam_v", "target_params")


def state_names(engine: Engine) -> list[str]:
    """Arrays that make up the state: the flat vectors and every persistent buffer the run has."""
    table = buffers()
    vectors = [name for name in _VECTORS if name in engine.arrays]
    return [*vectors, *(n for n, row in table.items() if row.lifetime == "persistent" and n in engine.arrays)]


def save(
    engine: Engine,
    folder: Path,
    step: int,
    totals: dict[str, float],
    seconds: float,
    best: float | None = None,
) -> Path:
    """Write ``folder/step-N``, whole or not at all, and return it. Raises FileError.

    totals, seconds: what the host has added up so far; a resumed run goes on from them. best: what the policy earned on
    the held-out range, where that is why it is kept; the folder is ``best-N`` then.
    """
    final = folder / f"{'step' if best is None else 'best'}-{step:09d}"
    temporary = folder / f".{final.name}.part"
    tensors = {name: np.ascontiguousarray(engine.device.download(engine.arrays[name])) for name in state_names(engine)}
    payload = safetensors.numpy.save(tensors)
    digest = hashlib.sha256(payload).hexdigest()
    if _holds(final, digest):
        return final
    try:
        sweep(folder)
        temporary.mkdir()
        with (temporary / STATE).open("wb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        facts = {"format": FORMAT, "step": step, "layout": layout_hash(), "sha256": digest}
        facts |= {"totals": dict(totals), "seconds": seconds, **({} if best is None else {"held_out": best})}
        write_json(temporary / "manifest.json", facts | {"self": json_digest(facts)})
        if final.exists():
            shutil.rmtree(final)  # it is damaged, or of another state: a sound one of this state was kept above
        temporary.rename(final)
        _sync_folder(folder)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        reason = error.strerror or str(error.__cause__ or error)
        raise FileError(f"{final}: cannot be written: {reason}; the previous checkpoint is intact") from error
    return final


def sweep(folder: Path) -> None:
    """Remove what killed writers left. Only the process that holds the run's lock may call this."""
    for left in folder.glob(".*-*"):
        shutil.rmtree(left, ignore_errors=True)


def progress(checkpoint: Path) -> dict[str, Any]:
    """step, totals and seconds of a checkpoint that ``load`` has accepted; of a best one held_out. Raises FileError."""
    return _read_manifest(checkpoint)


def _holds(checkpoint: Path, digest: str) -> bool:
    """Whether a sound checkpoint of just this state stands there already: replacing it would put it at risk."""
    try:
        load(checkpoint)
        return _read_manifest(checkpoint)["sha256"] == digest
    except FileError:
        return False


def _read_manifest(checkpoint: Path) -> dict[str, Any]:
    """The manifest, if it is the one that was written. Raises FileError."""
    path = checkpoint / "manifest.json"
    try:
        facts = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise FileError(f"{checkpoint}: cannot be read ({error}); use an earlier checkpoint of the run") from None
    if not isinstance(facts, dict) or facts.get("self") != json_digest(facts):
        raise FileError(f"{path}: does not match its digest (torn or changed); use an earlier checkpoint of the run")
    if facts.get("format") != FORMAT:
        raise FileError(f"{path}: expected format {FORMAT}, got {facts.get('format')}; use the version that wrote it")
    return facts


def _sync_folder(folder: Path) -> None:
    """Make a rename in ``folder`` last through a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def saved(run: Path, kind: str = "step") -> list[Path]:
    """Checkpoint folders of ``run``, oldest step first, sound or not. kind: "step", or "best" for one kept as such."""
    found = {int(p.name[5:]): p for p in (run / "checkpoints").glob(f"{kind}-*") if p.name[5:].isdecimal()}
    return [found[step] for step in sorted(found)]


def prune(run: Path, keep: int, step: int) -> None:
    """Remove all but the ``keep`` newest checkpoints up to ``step``.

    Those beyond it are what a resumed run has refused; they must not push out the sound ones.
    """
    for old in [p for p in saved(run) if int(p.name[5:]) <= step][:-keep]:
        shutil.rmtree(old, ignore_errors=True)


def best(run: Path, step: int | None = None) -> Path | None:
    """The newest sound checkpoint that was kept as the best, of those up to ``step``; None where there is none."""
    for folder in reversed(saved(run, "best")):
        try:
            if step is None or _read_manifest(folder)["step"] <= step:
                load(folder)
                return folder
        except FileError:
            continue
    return None


def keep_best(run: Path, folder: Path) -> None:
    """Remove what was the best before ``folder``; it stands already, so there is always one."""
    for old in saved(run, "best"):
        if old != folder:
            shutil.rmtree(old, ignore_errors=True)


def latest(run: Path) -> Path:
    """The newest checkpoint of ``run``. Raises FileError where there is none."""
    found = saved(run)
    if not found:
        raise FileError(f"{run}: no checkpoint; the run ended before it could write one")
    return found[-1]


def load(checkpoint: Path) -> dict[str, np.ndarray]:
    """Arrays of a checkpoint by name. Raises FileError where it is torn, changed or of another layout."""
    meta = _read_manifest(checkpoint)
    try:
        payload = (checkpoint / STATE).read_bytes()
    except OSError as error:
        raise FileError(f"{checkpoint}: cannot be read ({error}); use an earlier checkpoint of the run") from None
    if hashlib.sha256(payload).hexdigest() != meta["sha256"]:
        raise FileError(f"{checkpoint}: does not match its digest (torn or changed); use an earlier checkpoint")
    if meta["layout"] != layout_hash():
        raise FileError(f"{checkpoint}: written by a foxhunt with another slot layout; evaluate it with that version")
    try:
        return safetensors.numpy.load(payload)
    except Exception as error:  # one class for each way a header can be wrong, some of them Rust's
        raise FileError(f"{checkpoint}: not a safetensors file ({error}); use an earlier checkpoint") from None


def restore(engine: Engine, arrays: dict[str, np.ndarray], names: list[str] | None = None) -> None:
    """Write saved arrays (all of the state, or ``names``) into the engine. Raises FileError on a misshapen one."""
    for name in names or state_names(engine):
        target = engine.arrays[name]
        found = arrays.get(name)
        want, got = (f"{a.dtype}{list(a.shape)}" if a is not None else "nothing" for a in (target, found))
        if want != got:
            raise FileError(f"checkpoint: '{name}': expected {want}, got {got}; same config needed")
        engine.device.write(target, found)
