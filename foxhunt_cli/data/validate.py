"""Checks that a cleaned data set can be trained on. Values only; `foxhunt data validate` prints them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foxhunt_cli.data.clean import MAX_DROPPED_FRACTION
from foxhunt_cli.data.market_data import MarketData

MIN_SESSION = 256
"""A window of 32, two rollouts of 16 and the medium return horizon need about so many snapshots in a row."""


@dataclass(frozen=True)
class Check:
    """One check: what was expected, what was found."""

    name: str
    ok: bool
    expected: str
    got: str


def checks(data: MarketData) -> list[Check]:
    """All checks, in the order in which a user would want to know."""
    report, records = data.report, data.records
    bid, ask = records["bid_px"], records["ask_px"]
    longest = int(data.session_lengths.max())
    wait = np.diff(records["ts_ns"].astype(np.int64))
    mid_move = np.abs(np.diff(bid[:, 0]))
    top = float(np.minimum(records["bid_sz"][:, 0], records["ask_sz"][:, 0]).min())
    return [
        Check(
            "dropped records",
            report.dropped_fraction <= MAX_DROPPED_FRACTION,
            f"at most {MAX_DROPPED_FRACTION:.0%}",
            f"{report.dropped_fraction:.2%}",
        ),
        Check(
            "file complete",
            not any("ends early" in w for w in report.warnings),
            "no cut-off record",
            "; ".join(report.warnings) or "complete",
        ),
        Check("longest session", longest >= MIN_SESSION, f"at least {MIN_SESSION} snapshots", f"{longest:,}"),
        Check("book never crossed", bool((bid[:, 0] < ask[:, 0]).all()), "bid < ask", "in all records"),
        Check("sizes at the top", top > 0, "above 0", f"{top:g} lots at least"),
        Check("time order", bool((wait >= 0).all()), "never back", f"{int((wait < 0).sum())} steps back"),
        Check(
            "the price moves",
            len(mid_move) > 0 and bool((mid_move > 0).any()),
            "at least once",
            f"{int((mid_move > 0).sum()):,} times",
        ),
    ]
