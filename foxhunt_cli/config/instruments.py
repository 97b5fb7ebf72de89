"""Instruments: what a tick is, what it is worth, what a trade costs, and when the market is open.

Owns the `Instrument` model, the presets, and the rule that infers a preset from a raw symbol
(`ESH4` is ES). Prices elsewhere are whole ticks; this is the only place that knows how large one is.
The tick size is an exact fraction, because ZN trades in 64ths and a float cannot be trusted with
"is this price on the grid".
"""

from __future__ import annotations

import re
from datetime import time
from fractions import Fraction
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, field_validator

NANO = 1_000_000_000
"""Fixed-point prices count 1e-9 of the currency unit, as Databento's do."""

USD_MAX = 1e9
"""Bound of a tick's value and of a fee, USD a lot: products with it stay far inside float32."""
TICK_SIZE_MAX = 1_000_000


def parse_tick_size(value: Any) -> Fraction:
    """`0.25`, `"0.25"`, `"1/64"` or a Fraction, exactly; a positive multiple of 1e-9, at most TICK_SIZE_MAX."""
    if isinstance(value, bool):
        raise ValueError(f"tick size must be a number such as 0.25 or '1/64', got {value!r}")
    try:
        # A float goes through its shortest decimal form: 0.1 means one tenth, not 0.1000000000000000055.
        size = value if isinstance(value, Fraction) else Fraction(str(value).strip())
    except (ValueError, ZeroDivisionError) as error:
        raise ValueError(f"tick size must be a number such as 0.25 or '1/64', got {value!r}") from error
    if size <= 0 or (size * NANO).denominator != 1:
        raise ValueError(f"tick size must be a positive multiple of 0.000000001, got {value!r}")
    if size > TICK_SIZE_MAX:
        raise ValueError(f"tick size must be at most {TICK_SIZE_MAX:,}, got {value!r}")
    return size


TickSize = Annotated[Fraction, BeforeValidator(parse_tick_size), PlainSerializer(str, return_type=str)]


LOT_LIMIT = 4
"""Largest absolute position of every preset, lots."""


class Instrument(BaseModel):
    """One traded instrument. `lot` is the unit of position, of fees and of book sizes on the device."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    symbol: str = Field(min_length=1, description="Name of the instrument or of its root (ES).")
    tick_size: TickSize = Field(description="Smallest price step, exact: 0.25, '1/64'.")
    tick_value_usd: float = Field(gt=0, le=USD_MAX, description="USD gained by one lot when the price moves one tick.")
    fee_usd: float = Field(ge=0, le=USD_MAX, description="Fee per lot per side, USD.")
    size_per_lot: float = Field(
        1.0, gt=0, le=1e9, description="Units of the source's sizes in one lot (equity: 100 shares)."
    )
    lot_limit: int = Field(LOT_LIMIT, ge=1, le=8, description="Largest absolute position, lots.")
    session_open: time = Field(time(0), description="Start of the trading day, local time.")
    session_close: time = Field(
        time(0), description="End of the trading day, local time; not after the open = next day."
    )
    time_zone: str = Field("UTC", description="IANA name of the zone of the session hours.")

    @field_validator("time_zone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except Exception as error:
            raise ValueError(
                f"time zone {value!r} is unknown here; use an IANA name such as America/Chicago "
                "(no zone data on this machine: pip install tzdata)"
            ) from error
        return value

    @property
    def tick_nano(self) -> int:
        """Tick size in units of 1e-9; whole by construction."""
        return int(self.tick_size * NANO)

    @property
    def session_seconds(self) -> int:
        """Length of the trading day in seconds, 1..86,400."""
        start, stop = (t.hour * 3600 + t.minute * 60 + t.second for t in (self.session_open, self.session_close))
        return (stop - start) % 86_400 or 86_400

    @property
    def session_minutes(self) -> int:
        """The same in whole minutes."""
        return self.session_seconds // 60

    def describe(self) -> str:
        """One line for people."""
        tick = f"tick {format_size(self.tick_size)}, {self.tick_value_usd:g} USD a tick"
        return f"{self.symbol}: {tick}, fee {self.fee_usd:g} USD a side"


def format_size(size: Fraction) -> str:
    """An exact size as people write it: a decimal if it is short, else a fraction."""
    text = f"{float(size):.9f}".rstrip("0").rstrip(".")
    return text if Fraction(text) == size and len(text) <= 7 else str(size)


def _cme(symbol: str, tick_size: str, tick_value_usd: float, fee_usd: float) -> Instrument:
    """A CME Globex future: 17:00 to 16:00 Chicago time."""
    return Instrument(
        symbol=symbol,
        tick_size=tick_size,
        tick_value_usd=tick_value_usd,
        fee_usd=fee_usd,
        session_open=time(17),
        session_close=time(16),
        time_zone="America/Chicago",
    )


def presets() -> dict[str, Instrument]:
    """All presets by name. Fees are typical all-in retail figures; `--fee` replaces them."""
    table = [
        _cme("ES", "0.25", 12.50, 2.05),
        _cme("MES", "0.25", 1.25, 0.62),
        _cme("NQ", "0.25", 5.00, 2.05),
        _cme("MNQ", "0.25", 0.50, 0.62),
        _cme("CL", "0.01", 10.00, 2.30),
        _cme("GC", "0.10", 10.00, 2.40),
        _cme("ZN", "1/64", 15.625, 1.62),
        _cme("ZT", "1/256", 7.8125, 1.47),
        _cme("SR3", "0.0025", 6.25, 1.30),
        # A US share: 100 shares a lot, so that a 0.01 tick is worth 1 USD.
        Instrument(
            symbol="EQUITY",
            tick_size="0.01",
            tick_value_usd=1.00,
            fee_usd=0.35,
            size_per_lot=100,
            session_open=time(9, 30),
            session_close=time(16),
            time_zone="America/New_York",
        ),
        # A linear perpetual on bitcoin: tick 0.10, one coin a lot, about 4 basis points a side at 60,000.
        Instrument(symbol="CRYPTO", tick_size="0.1", tick_value_usd=0.10, fee_usd=25.0),
    ]
    return {instrument.symbol: instrument for instrument in table}


_CONTRACT = re.compile(r"^(?P<root>[A-Z0-9]{1,4}?)[FGHJKMNQUVXZ]\d{1,2}$")
_CONTINUOUS = re.compile(r"^(?P<root>[A-Z0-9]{1,4})\.(?:[A-Za-z]\.\d+|FUT)$")


def symbol_root(raw_symbol: str) -> str | None:
    """Root of an outright future: `ESH4`, `ES.c.0`, `ES.FUT` give ES. None for a spread or anything else."""
    match = _CONTRACT.match(raw_symbol) or _CONTINUOUS.match(raw_symbol)
    return match["root"] if match else None


def infer_instrument(raw_symbol: str) -> Instrument | None:
    """The preset that a raw symbol belongs to, or None."""
    root = symbol_root(raw_symbol)
    return presets().get(root) if root else None
