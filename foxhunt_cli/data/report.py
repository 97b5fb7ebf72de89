"""What reading a source found: counted reasons with first examples, and the span of the data.

Owns the report's shape and its text. The cleaning stage fills it; the cache keeps it beside the
records, so that a second run says the same as the first.
"""

from __future__ import annotations

from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict, Field


class Finding(BaseModel):
    """One reason, how often it held, and where it held first."""

    model_config = ConfigDict(extra="forbid")

    reason: str
    count: int
    dropped: bool = Field(description="True: these records are not in the data. False: kept, and worth knowing.")
    first_record: int = Field(description="Number of the first such record in its file, from 0.")
    example: str = ""


class CleaningReport(BaseModel):
    """The account of one read: what came in, what was kept, and why the rest was not."""

    model_config = ConfigDict(extra="forbid")

    description: str = ""
    rows: int = Field(0, description="Records in the source, after the choice of instrument and time span.")
    book_rows: int = Field(0, description="Records that carry a book (trades and the like never change it).")
    kept: int = Field(0, description="Snapshots after cleaning, stride and cuts.")
    sessions: int = 0
    first_ts_ns: int = 0
    last_ts_ns: int = 0
    findings: list[Finding] = []
    warnings: list[str] = []

    @property
    def dropped(self) -> int:
        """Book records left out."""
        return sum(f.count for f in self.findings if f.dropped)

    @property
    def dropped_fraction(self) -> float:
        """Share of the book records left out, 0..1."""
        return self.dropped / self.book_rows if self.book_rows else 0.0

    def count(self, reason: str) -> int:
        """How often a reason held."""
        return sum(f.count for f in self.findings if f.reason == reason)

    def table(self) -> str:
        """The findings as aligned text, for an error message or a log."""
        width = max((len(f.reason) for f in self.findings), default=0)
        return "\n".join(
            f"  {f.reason:<{width}}  {f.count:>10,}  {'dropped' if f.dropped else 'kept   '}"
            f"  first: record {f.first_record:,} {f.example}"
            for f in self.findings
        )


def iso_time(ts_ns: int) -> str:
    """A time stamp as ISO 8601 to the microsecond, UTC; out-of-range stamps as their number."""
    try:
        stamp = datetime.fromtimestamp(ts_ns // 1_000_000_000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(ts_ns)
    return f"{stamp:%Y-%m-%dT%H:%M:%S}.{ts_ns % 1_000_000_000 // 1000:06d}Z"
