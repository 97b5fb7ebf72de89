"""What the commands of ``foxhunt data`` show: facts, findings, checks and statistics of a data set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foxhunt_cli.cli.console import Terminal
    from foxhunt_cli.data.market_data import MarketData
    from foxhunt_cli.data.statistics import Statistic
    from foxhunt_cli.data.validate import Check


def found_document(data: MarketData) -> dict[str, Any]:
    """What cleaning found, for JSON."""
    report = data.report
    return {"findings": [found.model_dump() for found in report.findings], "warnings": report.warnings}


def statistics_document(measured: list[Statistic]) -> list[dict[str, Any]]:
    """For JSON."""
    return [{**vars(statistic), "ok": statistic.ok} for statistic in measured]


def facts(data: MarketData) -> dict[str, object]:
    """What `info` says of a data set."""
    from foxhunt_cli.data.clean import price_text
    from foxhunt_cli.data.report import iso_time

    report, instrument, records = data.report, data.instrument, data.records
    low, high = (
        int((data.reference_ticks + int(v)) * instrument.tick_nano)
        for v in (records["bid_px"][:, 0].min(), records["ask_px"][:, 0].max())
    )
    return {
        "source": report.description,
        "instrument": instrument.describe(),
        "records": report.rows,
        "book records": report.book_rows,
        "snapshots": len(data),
        "dropped": report.dropped,
        "sessions": len(data.session_start),
        "longest session": int(data.session_lengths.max()),
        "first": iso_time(report.first_ts_ns),
        "last": iso_time(report.last_ts_ns),
        "lowest bid": price_text(low),
        "highest ask": price_text(high),
        "trades": int(records["trade_count"].sum()),
        "digest": data.digest,
    }


def show_facts(data: MarketData, terminal: Terminal) -> None:
    """``facts``, a line each."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for name, value in facts(data).items():
        table.add_row(name, f"{value:,}" if isinstance(value, int) else str(value))
    terminal.show(table)


def show_checks(results: list[Check], data: MarketData, terminal: Terminal) -> None:
    """What was checked, what was expected and what came."""
    from rich.table import Table

    table = Table(box=None, title=data.source, title_justify="left")
    for column in ("", "check", "expected", "got"):
        table.add_column(column, overflow="fold")
    for check in results:
        table.add_row("pass" if check.ok else "FAIL", check.name, check.expected, check.got)
    terminal.show(table)


def show_findings(data: MarketData, terminal: Terminal) -> None:
    """What cleaning dropped or wondered at; warnings go to stderr."""
    from rich.table import Table

    for warning in data.report.warnings:
        terminal.note(f"warning: {warning}")
    if not data.report.findings:
        return
    table = Table(box=None, title="found by cleaning", title_justify="left")
    for column in ("reason", "records", "", "first record", "example"):
        table.add_column(column, justify="right" if column in ("records", "first record") else "left", overflow="fold")
    for f in data.report.findings:
        table.add_row(f.reason, f"{f.count:,}", "dropped" if f.dropped else "kept", f"{f.first_record:,}", f.example)
    terminal.show(table)


def show_statistics(measured: list[Statistic], terminal: Terminal) -> None:
    """Measured figures beside the intervals in which ES has them."""
    from rich.table import Table

    table = Table(box=None, title="statistics, and where ES has them", title_justify="left")
    for column in ("statistic", "value", "ES from", "to", ""):
        table.add_column(column, justify="left" if column == "statistic" else "right")
    for s in measured:
        table.add_row(
            f"{s.name} {f'[{s.unit}]' if s.unit else ''}",
            f"{s.value:.3f}",
            f"{s.low:g}",
            f"{s.high:g}",
            "" if s.ok else "outside",
        )
    terminal.show(table)
