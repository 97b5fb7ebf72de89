"""Runs of a sweep as tasks of a Ray cluster. The one module that knows Ray; what a task does stands in ``work.py``."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from foxhunt_cli.device.base import DeviceError
from foxhunt_cli.diag.extras import require
from foxhunt_cli.sweep.folder import ask_to_stop, log_path
from foxhunt_cli.sweep.work import FAILED, Outcome, attempt
from foxhunt_cli.train.signals import StopRequest

_STORE_BYTES = 100 << 20  # Ray's object store: results are a few words each
_LOOK_EVERY_S = 0.5


@dataclass(frozen=True)
class Need:
    """What a run asks of a node. gpus: a share of one lets several runs have it at once."""

    cpus: int
    gpus: float

    def __str__(self) -> str:
        return f"{self.cpus} CPU{'s' if self.cpus > 1 else ''}" + (f" and {self.gpus:g} GPU" if self.gpus else "")


def load() -> ModuleType:
    """Ray, which then reports to nobody. Raises MissingExtra."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else each task on the CPU warns of its change
    return require("ray", "ray", "foxhunt sweep")


@contextmanager
def cluster(address: str | None) -> Iterator[ModuleType]:
    """Ray, connected: to a cluster that is there, or to one of this machine that ends with the context.

    Raises MissingExtra, DeviceError.
    """
    ray = load()
    options: dict[str, Any] = {"address": address or "local", "log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        cores = len(os.sched_getaffinity(0))
        options |= {"num_cpus": cores, "include_dashboard": False, "object_store_memory": _STORE_BYTES}
    try:
        ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DeviceError(f"Ray at {address or 'this machine'}: {first}; see ray status there") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def device_for(ray: ModuleType, asked: str) -> str:
    """``auto`` is CUDA where the cluster has GPUs."""
    return asked if asked != "auto" else "cuda" if ray.cluster_resources().get("GPU") else "cpu"


def require_room(ray: ModuleType, need: Need) -> None:
    """Raises DeviceError where no node could ever take a run: it would wait for ever."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not any(n.get("CPU", 0) >= need.cpus and n.get("GPU", 0) >= need.gpus for n in nodes):
        has = "; ".join(f"{n.get('CPU', 0):g} CPUs, {n.get('GPU', 0):g} GPUs" for n in nodes) or "no node"
        raise DeviceError(
            f"a run asks {need}, the nodes of the cluster have {has}; lower --cpus-per-run or --gpus-per-run, or use "
            "--device cpu"
        )


def conduct(
    ray: ModuleType,
    folder: Path,
    labels: Sequence[str],
    need: Need,
    *,
    ended: Callable[[Outcome], None],
    note: Callable[[str], None],
    stop: StopRequest,
) -> list[Outcome]:
    """Attempt all these runs, as many at once as the cluster has room for, until they are done or asked to stop.

    ended: told once a run; note: one line on each run that begins, and on a stop.
    """
    task = ray.remote(num_cpus=need.cpus, num_gpus=need.gpus)(attempt)
    for label in labels:
        log_path(folder, label).unlink(missing_ok=True)
    waiting = {task.options(name=label).remote(folder, label): label for label in labels}
    unseen, outcomes, told = list(labels), [], False
    while waiting:
        ready, _ = ray.wait(list(waiting), num_returns=1, timeout=_LOOK_EVERY_S)
        for label in [label for label in unseen if log_path(folder, label).exists()]:
            unseen.remove(label)
            note(f"began {label}")
        for reference in ready:
            outcomes.append(_outcome(ray, reference, waiting.pop(reference)))
            ended(outcomes[-1])
        if stop.requested and not told:
            ask_to_stop(folder, True)
            note("stopping: the runs save and end; Ctrl-C again leaves at once")
            told = True
    return outcomes


def _outcome(ray: ModuleType, reference: Any, label: str) -> Outcome:
    """What the task returned; a task that could not return is a failure of its run alone."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayError as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return Outcome(label, FAILED, f"Ray: {lines[-1]}")
