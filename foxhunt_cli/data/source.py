"""The one door to market data: `load_market_data`. Everything else in this package stands behind it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from foxhunt_cli.data.errors import DataError
from foxhunt_cli.data.market_data import MarketData, content_digest
from foxhunt_cli.data.options import DataOptions, resolve_instrument
from foxhunt_cli.data.report import CleaningReport
from foxhunt_cli.data.synthetic import SyntheticOptions, make_market

__all__ = ["DataOptions", "SyntheticOptions", "load_market_data"]

Progress = Callable[[str, int], None]
"""Called with what is being done and the number of records so far."""


def load_market_data(
    path: Path | tuple[Path, ...] | None,
    options: DataOptions,
    synthetic: SyntheticOptions,
    progress: Progress | None = None,
) -> MarketData:
    """Market data from files, or the synthetic market where `path` is None.

    Raises DataError (exit status 5) for bad content and DataFileError (6) for files that cannot be opened.
    """
    if path is None:
        return _synthetic(options, synthetic)
    raise DataError(f"{path}: file readers are not wired yet")


def _synthetic(options: DataOptions, synthetic: SyntheticOptions) -> MarketData:
    market = make_market(synthetic)
    instrument = resolve_instrument(options, market.instrument, "synthetic")
    records, session_start = market.records, market.session_start
    report = CleaningReport(description=synthetic.describe(), rows=len(records), book_rows=len(records), kept=len(records),
                            sessions=len(session_start), first_ts_ns=int(records["ts_ns"][0]), last_ts_ns=int(records["ts_ns"][-1]))
    digest = content_digest(records, session_start, instrument, market.reference_ticks, synthetic.model_dump_json())
    return MarketData(records, session_start, instrument, market.reference_ticks, report, synthetic.describe(), digest)
