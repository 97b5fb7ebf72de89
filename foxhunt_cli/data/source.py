"""The one door to market data: `load_market_data`. Everything else in this package stands behind it.

Owns the order of the steps (find the format, read, clean, cut sessions, stride, derived fields, cache)
and leaves each step to its module.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from foxhunt_cli.config.instruments import Instrument, presets
from foxhunt_cli.data.block import OutOfOrder, Source
from foxhunt_cli.data.cache import cache_path, load_cached, store
from foxhunt_cli.data.clean import Cleaner
from foxhunt_cli.data.errors import DataError, DataFileError, file_error, require_utf8
from foxhunt_cli.data.fhx import MAGIC, read_fhx
from foxhunt_cli.data.market_data import MarketData, content_digest
from foxhunt_cli.data.options import DataOptions, resolve_instrument
from foxhunt_cli.data.regime import fill_previous, fill_regime
from foxhunt_cli.data.report import CleaningReport, iso_time
from foxhunt_cli.data.synthetic import SyntheticOptions, make_market


def load_market_data(
    path: Path | tuple[Path, ...] | None,
    options: DataOptions,
    synthetic: SyntheticOptions,
) -> MarketData:
    """Market data from files (read in the order of their first record), or the synthetic market where `path` is None.

    Raises DataError (exit status 5) for bad content and DataFileError (6) for files that cannot be opened.
    """
    paths = () if path is None else (Path(path),) if isinstance(path, str | Path) else tuple(Path(p) for p in path)
    if not paths:
        return _synthetic(options, synthetic)
    for each in paths:
        require_utf8(each)
    if _magic(paths[0]) == MAGIC:
        return _from_fhx(paths, options)
    if not options.cache:
        return _read(paths, options)
    entry = cache_path(paths, options)
    data = load_cached(entry)
    if data is None:
        data = _read(paths, options)
        warning = store(entry, data)
        if warning:
            data.report.warnings.append(warning)
    return data


def open_source(path: Path, options: DataOptions) -> Source:
    """The reader for a file, by its content first and its name second."""
    magic = _magic(path)
    from foxhunt_cli.data.streams import ZSTD_MAGIC, ByteStream

    if magic[:4] == ZSTD_MAGIC:
        with ByteStream(path) as stream:
            magic = bytes(stream.take(8))
        if stream.truncated:
            raise DataError(
                f"{path.name}: the file ends early, inside its first compressed block: nothing of it can be read; "
                "fetch it again"
            )
    if not magic:
        raise DataError(f"{path.name}: the file is empty; fetch it again")
    if magic[:3] == b"DBN":
        from foxhunt_cli.data.databento import DatabentoSource

        return DatabentoSource(path, options)
    if magic[:3] == b"DBZ" or magic[:4] == b"\x51\x2a\x4d\x18":
        raise DataError(f"{path.name}: DBZ, Databento's format before DBN; convert it with Databento's dbn tool")
    if magic[:2] == b"\x1f\x8b":
        raise DataError(f"{path.name}: is packed with gzip, which is not read; unpack it (gunzip -k {path.name})")
    from foxhunt_cli.data.lobster import LobsterSource, is_lobster

    if is_lobster(path):
        return LobsterSource(path)
    if magic[:4] == b"PAR1" or path.name.removesuffix(".zst").endswith((".csv", ".txt")):
        from foxhunt_cli.data.tabular import TabularSource

        return TabularSource(path, options, parquet=magic[:4] == b"PAR1")
    raise DataError(
        f"{path.name}: format not recognised (it starts with {magic[:8]!r}); expected Databento .dbn or .dbn.zst, "
        "a LOBSTER pair, .csv or .parquet with named columns, or .fhx"
    )


def _magic(path: Path) -> bytes:
    try:
        if path.is_fifo() or path.is_char_device():
            raise DataFileError(
                f"{path}: is a pipe or a device, and data are read more than once; write them to a file"
            )
        with open(path, "rb") as file:
            return file.read(8)
    except OSError as error:
        raise file_error(path, "read", error) from error


def _read(paths: tuple[Path, ...], options: DataOptions) -> MarketData:
    sources = _open_all(paths, options)
    instrument = _one_instrument(sources, options)
    cleaner = _clean(sources, instrument, options)
    records, session_start, report = _result(cleaner, sources)
    records, session_start = finish(records, session_start, instrument, options)
    names = ", ".join(s.name for s in sources[:3]) + (f" and {len(sources) - 3} more" if len(sources) > 3 else "")
    report.description = "; ".join(dict.fromkeys(s.description for s in sources))
    report.warnings += [w for s in sources for w in s.warnings]
    _complete(report, records, session_start)
    line = (
        f"{names} ({sources[0].description}), {instrument.symbol}, "
        f"{len(records):,} snapshots in {len(session_start)} session"
        f"{'s' if len(session_start) > 1 else ''}, {iso_time(report.first_ts_ns)} to {iso_time(report.last_ts_ns)}"
    )
    digest = content_digest(records, session_start, instrument, cleaner.reference, options.key())
    return MarketData(records, session_start, instrument, cleaner.reference, report, line, digest)


def _result(cleaner: Cleaner, sources: list[Source]) -> tuple[np.ndarray, np.ndarray, CleaningReport]:
    """The cleaner's result; where nothing is left of a file that ends early, the error says that too."""
    try:
        return cleaner.result()
    except DataError as error:
        raise DataError("; ".join([str(error), *(w for s in sources for w in s.warnings)])) from None


def _open_all(paths: tuple[Path, ...], options: DataOptions) -> list[Source]:
    """Readers in the order of their first time stamp; both files of a LOBSTER pair make one."""
    from foxhunt_cli.data.lobster import is_lobster, lobster_pair

    unique = dict.fromkeys(lobster_pair(p)[1] if is_lobster(p) else p for p in paths)
    sources = [open_source(p, options) for p in unique]
    if len(sources) < 2:
        return sources

    def first_time(source: Source) -> int:
        block = next(source.blocks(), None)
        source.warnings.clear()
        return int(block.ts[0]) if block is not None and len(block) else 0

    return sorted(sources, key=first_time)


def _one_instrument(sources: list[Source], options: DataOptions) -> Instrument:
    chosen = {resolve_instrument(options, s.inferred, s.name).symbol: s for s in sources}
    if len(chosen) > 1:
        table = ", ".join(f"{s.name} is {symbol}" for symbol, s in chosen.items())
        raise DataError(f"files of several instruments ({table}); one run reads one instrument")
    return resolve_instrument(options, sources[0].inferred, sources[0].name)


def _clean(sources: list[Source], instrument: Instrument, options: DataOptions) -> Cleaner:
    """Feed all sources through one cleaner; a source that turns out to be unsorted starts the reading afresh."""
    while True:
        cleaner = Cleaner(instrument, options)
        try:
            for source in sources:
                cleaner.name = source.name
                _feed(source, cleaner)
            return cleaner
        except OutOfOrder as unsorted:
            unsorted.source.sort = True
            for source in sources:
                source.warnings.clear()


def _feed(source: Source, cleaner: Cleaner) -> None:
    for block in source.blocks():
        cleaner.add(block)
        if cleaner.enough:
            return


def finish(
    records: np.ndarray, session_start: np.ndarray, instrument: Instrument, options: DataOptions
) -> tuple[np.ndarray, np.ndarray]:
    """Derived fields, then --stride and --max-snapshots. The regime is that of the full stream, whatever the stride."""
    fill_previous(records, session_start)
    fill_regime(records, session_start, instrument)
    return cut(records, session_start, options)


def cut(records: np.ndarray, session_start: np.ndarray, options: DataOptions) -> tuple[np.ndarray, np.ndarray]:
    """--stride, then --max-snapshots."""
    if options.stride > 1:
        records, session_start = take_stride(records, session_start, options.stride)
    if options.max_snapshots is not None:
        records = records[: options.max_snapshots]
        session_start = session_start[session_start < len(records)]
    return records, session_start


def take_stride(records: np.ndarray, session_start: np.ndarray, stride: int) -> tuple[np.ndarray, np.ndarray]:
    """Of every `stride` snapshots of a session the last (of a shorter rest too), with the trades of all of them."""
    bounds = np.append(session_start, len(records))
    groups = [np.arange(a, b, stride) for a, b in zip(bounds[:-1], bounds[1:], strict=True)]
    first = np.concatenate(groups)
    last = np.append(first[1:], len(records)) - 1
    out = records[last]
    out["trade_signed_vol"] = np.add.reduceat(records["trade_signed_vol"].astype(np.float64), first)
    out["trade_count"] = np.add.reduceat(records["trade_count"].astype(np.uint64), first)
    starts = np.concatenate([[0], np.cumsum([len(g) for g in groups])[:-1]]).astype(np.int64)
    fill_previous(out, starts)
    return out, starts


def _complete(report: CleaningReport, records: np.ndarray, session_start: np.ndarray) -> None:
    report.kept, report.sessions = len(records), len(session_start)
    report.first_ts_ns, report.last_ts_ns = int(records["ts_ns"][0]), int(records["ts_ns"][-1])


def _from_fhx(paths: tuple[Path, ...], options: DataOptions) -> MarketData:
    """A converted file: the choices of reading were made when it was written; time span, stride and cut still apply."""
    if len(paths) > 1:
        raise DataError(f"{paths[0].name}: an .fhx file is a whole data set; give it alone")
    data = read_fhx(paths[0])
    instrument = resolve_instrument(options, data.instrument, paths[0].name)
    if instrument.tick_size != data.instrument.tick_size or instrument.size_per_lot != data.instrument.size_per_lot:
        raise DataError(
            f"{paths[0].name}: was converted for {data.instrument.describe()}; "
            f"convert the source again for {instrument.describe()}"
        )
    ts = data.records["ts_ns"]
    if options.start is not None or options.end is not None:
        a, b = (int(i) for i in np.searchsorted(ts, [options.start_ns, options.end_ns]))
        if a >= b:
            raise DataError(
                f"{paths[0].name}: no snapshot in the time span asked for; "
                f"it has {iso_time(int(ts[0]))} to {iso_time(int(ts[-1]))}"
            )
        data = data.range(a, b)
    records, session_start = cut(data.records, data.session_start, options)
    report = data.report.model_copy(deep=True)
    _complete(report, records, session_start)
    digest = content_digest(records, session_start, instrument, data.reference_ticks, options.key())
    return MarketData(
        records, session_start, instrument, data.reference_ticks, report, f"{paths[0].name}: {data.source}", digest
    )


def _synthetic(options: DataOptions, synthetic: SyntheticOptions) -> MarketData:
    instrument = resolve_instrument(options, presets()["ES"], "synthetic")
    if synthetic.preset == "dirty":
        from foxhunt_cli.data.dirty import dirty_blocks

        options = options.model_copy(update={"allow_dirty": True})
        cleaner = Cleaner(presets()["ES"], options)
        cleaner.name = "synthetic"
        for block in dirty_blocks(synthetic):
            cleaner.add(block)
        records, session_start, report = cleaner.result()
        reference = cleaner.reference
        fill_previous(records, session_start)
        fill_regime(records, session_start, instrument)
    else:
        market = make_market(synthetic)
        records, session_start, reference = market.records, market.session_start, market.reference_ticks
        report = CleaningReport(rows=len(records), book_rows=len(records))
    records, session_start = cut(records, session_start, options)
    report.description = synthetic.describe()
    _complete(report, records, session_start)
    digest = content_digest(records, session_start, instrument, reference, synthetic.model_dump_json())
    return MarketData(records, session_start, instrument, reference, report, synthetic.describe(), digest)
