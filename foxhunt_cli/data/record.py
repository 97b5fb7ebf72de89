"""The snapshot record: one declaration, read as a numpy dtype and written out as a C struct.

The record is the unit of upload to the device and of the on-disk cache, so its 216 bytes are the
same on disk, in host memory and in `cuda_src/generated/snapshot.cuh`. Prices are whole ticks from
the data set's reference price (exact in float32 to 2^24); sizes are lots. A level that is absent has
size 0 and repeats the worst price that is present; level 0 is always present on both sides.

This module owns the layout alone. What the values mean for a source is the business of the readers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foxhunt_cli.config.dims import STRUCTURE

LEVELS, REGIME_COUNT = STRUCTURE["N_LEVELS"][0], STRUCTURE["N_REGIME"][0]
SNAPSHOT_BYTES = 216
MAX_TICKS = 1 << 24
"""Largest distance from the reference price, in ticks, that float32 holds exactly."""


@dataclass(frozen=True)
class Field:
    """One member of the record: name, element type, count, and what it means."""

    name: str
    ctype: str
    count: int
    meaning: str


FIELDS: tuple[Field, ...] = (
    Field("bid_px", "float", LEVELS, "bid prices, best first [ticks from the reference price]"),
    Field("bid_sz", "float", LEVELS, "bid sizes [lots]; 0 = the level is absent"),
    Field("ask_px", "float", LEVELS, "ask prices, best first [ticks from the reference price]"),
    Field("ask_sz", "float", LEVELS, "ask sizes [lots]; 0 = the level is absent"),
    Field(
        "prev_mid",
        "float",
        1,
        "mid of the snapshot before, in the same session [ticks]; its own mid at a session's first",
    ),
    Field("trade_signed_vol", "float", 1, "trades since the snapshot before, buyer-initiated positive [lots]"),
    Field("trade_count", "unsigned int", 1, "number of those trades"),
    Field("padding", "unsigned int", 1, "zero"),
    Field("ts_ns", "unsigned long long", 1, "time of the snapshot [ns since 1970, UTC]"),
    Field("prev_ts_ns", "unsigned long long", 1, "time of the snapshot before, in the same session [ns]"),
    Field(
        "regime",
        "float",
        REGIME_COUNT,
        "volatility 10 s, 600 s [ticks/sqrt s], their log ratio, trades/s, spread [ticks], session 0..1",
    ),
)

_NUMPY = {"float": "<f4", "unsigned int": "<u4", "unsigned long long": "<u8"}

SNAPSHOT = np.dtype(
    [(f.name, _NUMPY[f.ctype], (f.count,)) if f.count > 1 else (f.name, _NUMPY[f.ctype]) for f in FIELDS]
)
"""The record as a numpy structured dtype, 216 bytes, little-endian, no implicit padding."""

assert SNAPSHOT.itemsize == SNAPSHOT_BYTES


def mid_ticks(records: np.ndarray) -> np.ndarray:
    """Mid prices, float32 [ticks from the reference]; half-ticks are exact."""
    return (records["bid_px"][:, 0] + records["ask_px"][:, 0]) * np.float32(0.5)


def render_header() -> str:
    """The C struct, with compile-time checks of its size and of every offset. Committed as snapshot.cuh."""
    lines = [
        "// The market snapshot as it lies on disk, in host memory and on the device.",
        "// Generated from foxhunt_cli/data/record.py (python -m foxhunt_cli.data.record); do not edit.",
        "#pragma once",
        "",
        f"#define SNAPSHOT_LEVELS {LEVELS}",
        f"#define SNAPSHOT_REGIME_COUNT {REGIME_COUNT}",
        f"#define SNAPSHOT_BYTES {SNAPSHOT_BYTES}",
        "",
        "struct Snapshot {",
    ]
    for field in FIELDS:
        size = f"[{field.count}]" if field.count > 1 else ""
        lines.append(
            f"    {field.ctype} {field.name}{size};  // byte {SNAPSHOT.fields[field.name][1]}: {field.meaning}"
        )
    lines += [
        "};",
        "",
        'static_assert(sizeof(Snapshot) == SNAPSHOT_BYTES, "the record is 216 bytes on disk and on the host");',
    ]
    lines.append(
        'static_assert(sizeof(float) == 4 && sizeof(unsigned int) == 4 && sizeof(unsigned long long) == 8, "widths");'
    )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    import sys

    sys.stdout.write(render_header())
