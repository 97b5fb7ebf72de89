"""foxhunt from Python: train, open a run, read its log, evaluate it. For notebooks and scripts.

>>> from foxhunt_cli import api
>>> run = api.train(steps=2000, device="cpu", encoder="mlp")
>>> log = run.columns(["loss.", "market.pnl_step_usd"])     # numpy arrays by field
>>> run.evaluate().policies["agent"]["net USD"]

Everything here does what the command of the same name does, with the same checks and errors, and prints nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foxhunt_cli.cli.console import Terminal
from foxhunt_cli.config.load import Setting, load_config
from foxhunt_cli.diag.columns import read_columns
from foxhunt_cli.diag.extras import require
from foxhunt_cli.diag.summary import Summary, summarize
from foxhunt_cli.train import run_dir

if TYPE_CHECKING:
    import pandas
    import polars

    from foxhunt_cli.config.run import RunConfig
    from foxhunt_cli.market.evaluate import Evaluation


@dataclass(frozen=True)
class Run:
    """A run directory. Files are read when asked for, so a run that is still going on can be looked at."""

    path: Path

    @property
    def manifest(self) -> dict[str, Any]:
        """What was run, on what, and how it ended. Raises FileError."""
        return run_dir.read_manifest(self.path)

    @cached_property
    def config(self) -> RunConfig:
        """The configuration it was made with. Raises FileError where this version cannot use it."""
        return run_dir.config_of(self.path, self.manifest["config"])

    def columns(self, fields: Iterable[str] | None = None) -> dict[str, np.ndarray]:
        """The log as arrays: step, iteration, time and each field; NaN where a line has none.

        fields: names such as "loss.v", or groups such as "loss."; all by default. Raises KeyError, RunLogError.
        """
        return read_columns(self.path, fields)

    def pandas(self, fields: Iterable[str] | None = None) -> pandas.DataFrame:
        """The log as a pandas frame, the environment step as its index. Raises MissingExtra without pandas."""
        return require("pandas", "notebook", "a data frame").DataFrame(self.columns(fields)).set_index("step")

    def polars(self, fields: Iterable[str] | None = None) -> polars.DataFrame:
        """The log as a polars frame. Raises MissingExtra without polars."""
        return require("polars", "notebook", "a data frame").DataFrame(self.columns(fields))

    def summary(self) -> Summary:
        """What ``foxhunt diag summarize`` rests on: statistics of every field, anomalies. Raises RunLogError."""
        return summarize(self.path)

    def evaluate(self, device: str = "auto", *, best: bool = False) -> Evaluation:
        """Plays the newest checkpoint, or the best kept, on the held-out data.

        Raises DataError, DeviceError, FileError.
        """
        from foxhunt_cli.train.evaluate import evaluate_run

        return evaluate_run(self.path, Terminal(quiet=True), device, best=best)


def train(config: Path | str | None = None, **settings: Any) -> Run:
    """Train and return the run. config: a TOML file; settings: configuration keys, dots as double underscores.

    ``train(steps=2000, isv__lr_pi=5e-4, paths=("es.dbn.zst",))``. Raises ConfigError, DataError, DeviceError,
    NumericFault; Ctrl-C ends the training cleanly and returns what there is.
    """
    from foxhunt_cli.train.loop import train as run

    given = [Setting(key.replace("__", "."), value, f"{key}=") for key, value in settings.items()]
    resolved = load_config(Path(config) if config is not None else None, options=given)
    return Run(run(resolved, Terminal(quiet=True)).run)


def load(path: Path | str) -> Run:
    """An existing run. Raises FileError where there is none."""
    run = Run(Path(path))
    _ = run.manifest
    return run
