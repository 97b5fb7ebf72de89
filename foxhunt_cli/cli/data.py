"""``foxhunt data``: look at, check, convert and make market data.

Thin: parses and calls the package ``data``; ``data_tables.py`` renders. Numeric libraries are imported when a command
runs. Options go to the models of the package by their names (``_options``).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from foxhunt_cli.cli.data_tables import (
    facts,
    found_document,
    show_checks,
    show_facts,
    show_findings,
    show_statistics,
    statistics_document,
)

if TYPE_CHECKING:
    from pydantic import BaseModel

    from foxhunt_cli.data.market_data import MarketData
    from foxhunt_cli.data.options import DataOptions

    Model = TypeVar("Model", bound=BaseModel)

data_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Look at, check, convert and make market data."
)

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE", readable=False, help="Databento .dbn or .dbn.zst (mbp-10), LOBSTER, .csv, .parquet, .fhx."
    ),
]
Output = Annotated[Path, typer.Option("-o", "--output", help="File to write.")]
FormatOption = Annotated[str | None, typer.Option("--format", help="dbn, parquet or fhx [by the output's name].")]
InstrumentOption = Annotated[
    str | None, typer.Option("--instrument", help="Instrument preset, e.g. ES, EQUITY [inferred].")
]
TickOption = Annotated[str | None, typer.Option("--tick-size", help="Tick size, e.g. 0.25 or 1/64.")]
SymbolOption = Annotated[str | None, typer.Option("--symbol", help="Which symbol of a file with several.")]
IdOption = Annotated[int | None, typer.Option("--instrument-id", help="Which instrument id of a file with several.")]
GapOption = Annotated[float, typer.Option("--session-gap", metavar="SECONDS", help="A longer pause ends a session.")]
StartOption = Annotated[str | None, typer.Option("--start", help="First time used, ISO 8601, UTC.")]
EndOption = Annotated[str | None, typer.Option("--end", help="Time to stop before, ISO 8601, UTC.")]
MaxOption = Annotated[int | None, typer.Option("--max-snapshots", help="Use at most so many.")]
StrideOption = Annotated[int, typer.Option("--stride", help="Keep every N-th snapshot; trades between are summed.")]
DirtyOption = Annotated[
    bool, typer.Option("--allow-dirty", help="Accept a source of which over 5 % had to be dropped.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]

_FIELD = {"session_gap": "session_gap_s"}  # option -> field of DataOptions, where they differ


@data_app.command("info")
def info(
    call: typer.Context,
    files: Files,
    instrument: InstrumentOption = None,
    tick_size: TickOption = None,
    symbol: SymbolOption = None,
    instrument_id: IdOption = None,
    session_gap: GapOption = 1800.0,
    start: StartOption = None,
    end: EndOption = None,
    stats: Annotated[
        bool, typer.Option("--stats", help="Measure the market's statistics (needs 1,000 snapshots).")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Show what a source holds.

    Instrument, span, sessions, what cleaning found.

    \b
    Example:
      foxhunt data info ESH4.mbp-10.dbn.zst --stats
    """
    from foxhunt_cli.cli.console import Terminal
    from foxhunt_cli.data.statistics import measure

    options = _options(call, allow_dirty=True)
    terminal = Terminal()
    data = _load(files, options)
    measured = measure(data) if stats else []
    if json:
        terminal.json(
            {
                **facts(data),
                **found_document(data),
                "statistics": statistics_document(measured),
            }
        )
        return
    show_facts(data, terminal)
    show_findings(data, terminal)
    if measured:
        show_statistics(measured, terminal)


@data_app.command("validate")
def validate(
    call: typer.Context,
    files: Files,
    instrument: InstrumentOption = None,
    tick_size: TickOption = None,
    symbol: SymbolOption = None,
    instrument_id: IdOption = None,
    session_gap: GapOption = 1800.0,
    json: JsonOption = False,
) -> None:
    """Check that a source can be trained on.

    Exit status 1 if a check fails, 5 if it cannot be read at all.

    \b
    Example:
      foxhunt data validate ESH4.mbp-10.dbn.zst
    """
    from foxhunt_cli.cli.console import Terminal
    from foxhunt_cli.data.validate import checks

    options = _options(call, allow_dirty=True)
    terminal = Terminal()
    data = _load(files, options)
    results = checks(data)
    passed = all(check.ok for check in results)
    if json:
        terminal.json(
            {
                "source": data.source,
                "passed": passed,
                "checks": [vars(check) for check in results],
                **found_document(data),
            }
        )
    else:
        show_checks(results, data, terminal)
        show_findings(data, terminal)
    if not passed:
        raise typer.Exit(1)


@data_app.command("convert")
def convert(
    call: typer.Context,
    files: Files,
    output: Output,
    format: FormatOption = None,
    instrument: InstrumentOption = None,
    tick_size: TickOption = None,
    symbol: SymbolOption = None,
    instrument_id: IdOption = None,
    session_gap: GapOption = 1800.0,
    start: StartOption = None,
    end: EndOption = None,
    max_snapshots: MaxOption = None,
    stride: StrideOption = 1,
    allow_dirty: DirtyOption = False,
) -> None:
    """Read and clean a source, and write what is left.

    \b
    Example:
      foxhunt data convert ESH4.mbp-10.dbn.zst -o es.fhx --stride 5
    """
    from foxhunt_cli.cli.console import Terminal
    from foxhunt_cli.data.write import write_data

    options = _options(call)
    kind = _format(output, format)
    terminal = Terminal()
    data = _load(files, options)
    write_data(output, data, kind)
    for warning in data.report.warnings:
        terminal.note(f"warning: {warning}")
    terminal.show(f"{output}: {len(data):,} snapshots, {output.stat().st_size:,} bytes")


@data_app.command("make-synthetic")
def make_synthetic(
    call: typer.Context,
    output: Output,
    format: FormatOption = None,
    preset: Annotated[str, typer.Option("--preset", help="wavy, realistic, noise or dirty.")] = "wavy",
    snapshots: Annotated[int, typer.Option("--snapshots", help="Snapshots to make.")] = 400_000,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the generator.")] = 0,
    edge: Annotated[float, typer.Option("--edge", help="Size of the waves of wavy; 0 = none.")] = 1.0,
    sessions: Annotated[int, typer.Option("--sessions", help="Trading sessions to spread them over.")] = 1,
    stats: Annotated[bool, typer.Option("--stats", help="Print its statistics beside those of ES.")] = False,
    json: JsonOption = False,
) -> None:
    """Make a synthetic market and write it as a file.

    \b
    Example:
      foxhunt data make-synthetic --preset realistic --snapshots 100000 -o es-like.dbn.zst
    """
    from foxhunt_cli.cli.console import Terminal
    from foxhunt_cli.data.options import DataOptions
    from foxhunt_cli.data.source import load_market_data
    from foxhunt_cli.data.statistics import measure
    from foxhunt_cli.data.synthetic import SyntheticOptions
    from foxhunt_cli.data.write import write_synthetic

    kind = _format(output, format)
    synthetic = _model(SyntheticOptions, call.params)
    terminal = Terminal()
    write_synthetic(output, synthetic, kind)
    measured = measure(load_market_data(None, DataOptions(), synthetic)) if stats else []
    if json:
        terminal.json(
            {
                "file": str(output),
                "format": kind,
                "bytes": output.stat().st_size,
                "market": synthetic.model_dump(),
                "statistics": statistics_document(measured),
            }
        )
        return
    terminal.show(f"{output}: {synthetic.describe()}, {output.stat().st_size:,} bytes")
    if measured:
        show_statistics(measured, terminal)


def _options(call: typer.Context, **fixed: object) -> DataOptions:
    """How to read the files: what the command was given of it, and what it fixes. Its own reading is never cached."""
    from foxhunt_cli.data.options import DataOptions

    given = {_FIELD.get(name, name): value for name, value in call.params.items()}
    return _model(DataOptions, given | fixed | {"cache": False})


def _model(model: type[Model], given: dict[str, object]) -> Model:
    """A pydantic model from those of the options that it has fields for; what it refuses is a wrong command line."""
    from pydantic import ValidationError

    try:
        return model(**{name: value for name, value in given.items() if name in model.model_fields})
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]).removesuffix("_s").replace("_", "-") if first["loc"] else "options"
        raise typer.BadParameter(f"--{name}: {first['msg'].removeprefix('Value error, ')}") from error


def _format(output: Path, given: str | None) -> str:
    from foxhunt_cli.data.errors import is_utf8
    from foxhunt_cli.data.write import FORMATS

    if not is_utf8(output):
        raise typer.BadParameter(f"--output: expected a name in UTF-8, got {os.fsencode(output)!r}")
    kind = given or output.name.removesuffix(".zst").rpartition(".")[2]
    if kind not in FORMATS:
        raise typer.BadParameter(
            f"--format: expected one of {', '.join(FORMATS)}, or an output named *.dbn, *.dbn.zst, *.parquet, *.fhx; "
            f"got '{kind}'"
        )
    return kind


def _load(files: list[Path], options: DataOptions) -> MarketData:
    from foxhunt_cli.data.source import load_market_data
    from foxhunt_cli.data.synthetic import SyntheticOptions

    return load_market_data(tuple(files), options, SyntheticOptions())
