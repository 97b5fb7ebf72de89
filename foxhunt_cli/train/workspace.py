"""Opens what a run works on: the device, the data cut in two, the engine, the evaluator. Makes no file of the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foxhunt_cli.config.run import RunConfig
from foxhunt_cli.data.errors import DataError
from foxhunt_cli.data.market_data import MarketData
from foxhunt_cli.data.report import CleaningReport
from foxhunt_cli.data.source import load_market_data
from foxhunt_cli.device.select import select
from foxhunt_cli.market.evaluate import Evaluator
from foxhunt_cli.train.compile_bar import compile_bar
from foxhunt_cli.train.engine import Engine, build_engine, compile_run
from foxhunt_cli.train.prepare import prepare_training
from foxhunt_cli.train.shapes import shape_of
from foxhunt_cli.train.split import Split, split

if TYPE_CHECKING:
    from foxhunt_cli.cli.console import Terminal


@dataclass(frozen=True)
class Workspace:
    """A run's machinery, ready to iterate. evaluator: None where nothing is held out."""

    market: MarketData
    parts: Split
    engine: Engine
    evaluator: Evaluator | None

    def require_data_of(self, manifest: dict[str, Any]) -> None:
        """Raises DataError where the data are not those that the run of ``manifest`` was trained on."""
        if self.market.digest != manifest["data"]["digest"]:
            raise DataError(
                f"{self.market.source}: not the data this run was trained on (digest differs); restore the same file, "
                "or say with --data where it is"
            )

    def data_facts(self) -> dict[str, Any]:
        """What the manifest records of the data."""
        market, parts = self.market, self.parts
        return {
            "source": market.source,
            "digest": market.digest,
            "snapshots": len(market.records),
            "train_snapshots": len(parts.train.records),
            "held_out_snapshots": len(parts.held_out.records) if parts.held_out else 0,
            "purge_snapshots": parts.purge,
            "reference_ticks": market.reference_ticks,
            "instrument": market.instrument.model_dump(mode="json"),
        }


def open_workspace(config: RunConfig, terminal: Terminal) -> Workspace:
    """Select the device, read and prepare the data, compile, build. Says what it finds, a line each.

    Raises ConfigError, DeviceError, DataError, DataFileError.
    """
    shape_of(config)  # what does not fit together is said before anything is read
    selection = select(config.device, precision=config.precision, threads=config.cpu_threads)
    terminal.note(selection.line)
    market = load_market_data(config.paths or None, config.data, config.synthetic)
    terminal.note(f"data: {market.source}")
    for line in _report_lines(market.report):
        terminal.note(f"data: {line}")
    parts = split(market, config.holdout)
    with compile_bar(terminal) as progress:
        compile_run(selection.device, config, progress)
    data = prepare_training(selection.device, parts.train, config)
    for line in data.notes:
        terminal.note(f"data: {line}")
    engine = build_engine(selection.device, config, data)
    evaluator = None if parts.held_out is None else Evaluator(config, engine, parts.held_out, data.sigmas)
    return Workspace(market, parts, engine, evaluator)


def _report_lines(report: CleaningReport) -> list[str]:
    """What the cleaning stage found, one line a reason."""
    found = []
    for f in report.findings:
        fate = "dropped" if f.dropped else "kept"
        found.append(f"{f.count:,} {f.reason} ({fate}; first: record {f.first_record:,} {f.example}".rstrip() + ")")
    return [*found, *report.warnings]
