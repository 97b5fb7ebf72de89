"""Evaluating a finished or stopped run from its newest checkpoint, or from the best it kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from foxhunt_cli.data.errors import DataError
from foxhunt_cli.diag.writer import FileError
from foxhunt_cli.market.evaluate import Evaluation
from foxhunt_cli.train import checkpoint, run_dir
from foxhunt_cli.train.workspace import open_workspace

if TYPE_CHECKING:
    from foxhunt_cli.cli.console import Terminal

# What decides how a policy and a critic play: weights, their target copies (the critic's encoder), and the ISV.
PLAYED = ("params", "target_params", "isv")


def evaluate_run(
    run: Path, terminal: Terminal, device: str = "auto", *, best: bool = False, paths: Sequence[Path] = ()
) -> Evaluation:
    """Play the agent and the baselines over the run's held-out range. Raises FileError, DataError or DeviceError.

    best: from the checkpoint that was kept as the best on that range, so its figures flatter it. paths: where the data
    are now, if not where the run read them.
    """
    manifest = run_dir.read_manifest(run)
    moved = {"paths": list(paths)} if paths else {}
    config = run_dir.config_of(run, manifest["config"] | {"device": device} | moved)
    folder = checkpoint.best(run) if best else checkpoint.latest(run)
    if folder is None:
        raise FileError(f"{run}: keeps no best checkpoint; train with --best, or evaluate without it")
    saved = checkpoint.load(folder)
    if best:
        terminal.note(f"checkpoint: {folder.name}, chosen on this very range")
    with run_dir.data_of(run):
        work = open_workspace(config, terminal)
    work.require_data_of(manifest)
    if work.evaluator is None:
        raise DataError(f"{run}: trained with holdout = 0, so there is no held-out range to evaluate on")
    checkpoint.restore(work.engine, saved, [name for name in PLAYED if name in work.engine.arrays])
    return work.evaluator.all_policies()
