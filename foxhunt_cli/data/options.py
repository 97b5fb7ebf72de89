"""What a user may say about a data file. Pure values; the readers and the cleaning stage act on them."""

from __future__ import annotations

from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict, Field, field_validator

from foxhunt_cli.config.instruments import USD_MAX, Instrument, TickSize, format_size, presets
from foxhunt_cli.data.errors import DataError

SNAPSHOTS_MAX = 10**10
"""More than a machine holds (2 TB), and far from what 64 bits count."""


class DataOptions(BaseModel):
    """How to read a data set. Everything but `cache` is part of the cache key."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    instrument: str | Instrument | None = Field(
        None, description="Preset (ES, NQ, ...) or a full instrument; None = inferred."
    )
    tick_size: TickSize | None = Field(None, description="Replaces the instrument's tick size: 0.25, '1/64'.")
    tick_value: float | None = Field(None, gt=0, le=USD_MAX, description="Replaces USD per tick per lot.")
    fee: float | None = Field(None, ge=0, le=USD_MAX, description="Replaces the fee per lot per side, USD.")
    lot_limit: int | None = Field(None, ge=1, le=8, description="Replaces the largest absolute position, lots.")
    symbol: str | None = Field(None, description="Raw symbol to read from a file that holds several.")
    instrument_id: int | None = Field(
        None, ge=0, le=2**32 - 1, description="Instrument id to read from a file that holds several."
    )
    session_gap_s: float = Field(
        1800.0, gt=0, le=1e9, description="A pause longer than this many seconds is a session break."
    )
    max_snapshots: int | None = Field(
        None, ge=1, le=SNAPSHOTS_MAX, description="Keep at most the first so many snapshots."
    )
    start: str | None = Field(None, description="First time to keep, ISO 8601, UTC unless an offset is given.")
    end: str | None = Field(None, description="First time not to keep, ISO 8601.")
    stride: int = Field(
        1, ge=1, le=SNAPSHOTS_MAX, description="Keep every so manieth snapshot; trades in between are summed."
    )
    allow_dirty: bool = Field(False, description="Accept a source of which more than 5 % had to be dropped.")
    cache: bool = Field(True, description="Keep and use a converted copy in the cache folder.")

    @field_validator("start", "end")
    @classmethod
    def _parsable(cls, value: str | None) -> str | None:
        if value is not None:
            time_ns(value)
        return value

    @property
    def start_ns(self) -> int:
        """First time stamp kept."""
        return time_ns(self.start) if self.start is not None else 0

    @property
    def end_ns(self) -> int:
        """First time stamp not kept any more."""
        return time_ns(self.end) if self.end is not None else 2**63 - 1

    def key(self) -> str:
        """The options that shape the data, as text: part of the cache key and of the digest."""
        return self.model_dump_json(exclude={"cache"})


def time_ns(text: str) -> int:
    """ISO 8601 to ns since 1970, UTC where no offset is given."""
    try:
        stamp = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(
            f"expected a time such as 2024-01-02T14:30 or 2024-01-02T14:30:00+00:00, got {text!r}"
        ) from error
    if stamp.tzinfo is None:
        stamp = stamp.replace(tzinfo=UTC)
    since = stamp - datetime(1970, 1, 1, tzinfo=UTC)
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1000


def resolve_instrument(options: DataOptions, inferred: Instrument | None, where: str) -> Instrument:
    """The instrument to read with: the one named, else the inferred one, with the options' replacements."""
    chosen = inferred
    if isinstance(options.instrument, Instrument):
        chosen = options.instrument
    elif options.instrument is not None:
        chosen = presets().get(options.instrument.upper())
        if chosen is None:
            raise DataError(
                f"instrument {options.instrument!r} is not a preset; pass one of {', '.join(presets())}, "
                "or define it under [data.instrument] in the run config"
            )
    if chosen is None:
        if options.tick_size is None or options.tick_value is None or options.fee is None:
            table = "\n".join(
                f"  {i.symbol:<7} tick {format_size(i.tick_size)}, {i.tick_value_usd:g} USD a tick"
                for i in presets().values()
            )
            raise DataError(
                f"{where}: cannot tell the instrument from the data; pass --instrument with one of\n{table}\n"
                "or all of --tick-size, --tick-value and --fee"
            )
        chosen = Instrument(
            symbol=options.symbol or "CUSTOM",
            tick_size=options.tick_size,
            tick_value_usd=options.tick_value,
            fee_usd=options.fee,
        )
    changes = {
        "tick_size": options.tick_size,
        "tick_value_usd": options.tick_value,
        "fee_usd": options.fee,
        "lot_limit": options.lot_limit,
    }
    return chosen.model_copy(update={name: value for name, value in changes.items() if value is not None})
