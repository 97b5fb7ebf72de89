"""The run directory: its name, its manifest, its files. Owns the layout on disk.

``runs/<name>/``: manifest.json, run.jsonl, checkpoints/, eval/, log.txt.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

import foxhunt_cli
from foxhunt_cli.config.run import RunConfig
from foxhunt_cli.data.errors import DataFileError
from foxhunt_cli.diag.writer import FileError
from foxhunt_cli.isv.table import layout_hash
from foxhunt_cli.kernels.registry import cuda_root

MANIFEST = "manifest.json"
RUN_LOG = "run.jsonl"
NOTES = "log.txt"
_WORDS = (
    "amber", "badger", "birch", "brook", "cedar", "clover", "copse", "dawn", "dusk", "fern", "fjord", "flint",
    "gorse", "heath", "heron", "holly", "juniper", "larch", "linden", "lynx", "maple", "marten", "moor", "moss",
    "oak", "otter", "pine", "raven", "reed", "ridge", "rowan", "sable", "sorrel", "tarn", "thistle", "vixen",
    "willow",
)  # fmt: skip
_NEEDED = {"config": dict, "data": dict, "kernel_hash": str}  # keys that readers rely on
_PACKAGES = ("numpy", "pydantic", "databento-dbn", "cupy-cuda12x", "cupy-cuda13x", "nvidia-cuda-nvrtc-cu12")


def create(config: RunConfig) -> Path:
    """Make the directory of a new run and return it. Raises FileError where it exists or cannot be made."""
    name = config.name or fresh_name()
    path = config.runs_dir / name
    try:
        path.mkdir(parents=True)
        for child in ("checkpoints", "eval"):
            (path / child).mkdir()
    except FileExistsError:
        raise FileError(f"{path}: a run of that name exists; choose another --name or remove it") from None
    except OSError as error:
        raise FileError(
            f"{path}: cannot be made: {error.strerror}; choose another place with --set runs_dir=DIR"
        ) from None
    return path


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON, whole or not at all (temporary name, fsync, rename). Raises FileError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    options = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
    try:
        with temporary.open("wb") as file:
            file.write(orjson.dumps(value, option=options, default=str))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise FileError(
            f"{path}: cannot be written: {error.strerror}; free space or choose another runs_dir"
        ) from error


def write_manifest(run: Path, manifest: dict[str, Any]) -> None:
    """Write the manifest of ``run``, whole or not at all, with a digest of itself. Raises FileError."""
    write_json(run / MANIFEST, manifest | {"self": json_digest(manifest)})


def json_digest(facts: dict[str, Any]) -> str:
    """Digest of what ``facts`` says as JSON, but for its key ``self``: a changed bit in a manifest is noticed."""
    named = {key: value for key, value in facts.items() if key != "self"}
    options = orjson.OPT_SORT_KEYS | orjson.OPT_SERIALIZE_NUMPY
    return hashlib.sha256(orjson.dumps(named, option=options, default=str)).hexdigest()


def read_json(path: Path, place: str, remedy: str) -> dict[str, Any]:
    """The JSON object in ``path``. Raises FileError: place is what was expected to hold it, remedy ends the message."""
    try:
        found = orjson.loads(path.read_bytes())
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}; expected {place}") from None
    except orjson.JSONDecodeError as error:
        raise FileError(f"{path}: not valid JSON ({error}); {remedy}") from None
    if not isinstance(found, dict):
        raise FileError(f"{path}: expected one JSON object, got a {type(found).__name__}; {remedy}")
    return found


def read_manifest(run: Path) -> dict[str, Any]:
    """The manifest of ``run``. Raises FileError where it is missing, not JSON or not a manifest."""
    path = run / MANIFEST
    found = read_json(path, "a run directory made by 'foxhunt train'", "the run cannot be read")
    for key, kind in _NEEDED.items():
        if not isinstance(found.get(key), kind):
            got = type(found[key]).__name__ if key in found else "nothing"
            raise FileError(f"{path}: '{key}': expected a {kind.__name__}, got {got}; the run cannot be read")
    if found.get("self") != json_digest(found):
        raise FileError(f"{path}: does not match its digest (changed or damaged); the run cannot be continued")
    if not isinstance(found["data"].get("digest"), str):
        raise FileError(f"{path}: 'data.digest' is missing; the run cannot be read")
    return found


def config_of(run: Path, config: dict[str, Any]) -> RunConfig:
    """``config`` of the manifest of ``run``, checked. Raises FileError where this version cannot use it."""
    try:
        return RunConfig.model_validate(config)
    except ValueError as error:
        first = str(error).replace("\n", " ")[:200]
        raise FileError(f"{run / MANIFEST}: 'config': {first}; the run cannot be continued with this version") from None


def manifest(
    config: RunConfig, device: dict[str, Any], data: dict[str, Any], isv: dict[str, float], kernels: Iterable[str]
) -> dict[str, Any]:
    """What identifies a run: resolved config, seeds, data, versions, device, the kernels it runs and their digest."""
    return {
        "format": 1,
        "foxhunt": foxhunt_cli.__version__,
        "status": "running",
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "config": recorded(config),
        "isv_seeds": isv,
        "isv_layout": layout_hash(),
        "kernel_hash": kernel_hash(),
        "kernels": sorted(kernels),
        "data": data,
        "device": device,
        "versions": _versions(),
    }


@contextmanager
def data_of(run: Path) -> Iterator[None]:
    """Reading the data that ``run`` was trained on: where they are gone, the error says how to name their new place."""
    try:
        yield
    except DataFileError as error:
        raise DataFileError(f"{error} (data of {run}; if they have moved, --data FILE says where to)") from None


def recorded(config: RunConfig) -> dict[str, Any]:
    """``config`` as a manifest holds it: with whole paths, so that a run can be read from any folder."""
    paths = None if config.paths is None else [str(path.absolute()) for path in config.paths]
    return config.model_dump(mode="json") | {"paths": paths}


def kernel_hash() -> str:
    """Digest of every file under ``cuda_src``: two runs with one hash ran the same kernels."""
    root = cuda_root()
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.cu*")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def fresh_name() -> str:
    """UTC time and a word."""
    now = datetime.now(UTC)
    return f"{now:%Y%m%d-%H%M%S}-{_WORDS[now.microsecond % len(_WORDS)]}"
