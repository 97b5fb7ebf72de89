"""Cuts a data set into the range that training samples and the held-out range that evaluation plays on."""

from __future__ import annotations

from dataclasses import dataclass

from foxhunt_cli.config.dims import FRD_HORIZONS, WARMUP_SNAPSHOTS
from foxhunt_cli.data.errors import DataError
from foxhunt_cli.data.market_data import MarketData

_PURGE_SHARE = 20  # the purge gap takes at most 1/20 of the data


@dataclass(frozen=True)
class Split:
    """train: what training samples. held_out: the end of the data, or None where ``holdout`` is 0."""

    train: MarketData
    held_out: MarketData | None
    purge: int


def split(market: MarketData, holdout: float) -> Split:
    """Hold out the last ``holdout`` share, behind a purge gap of the longest label horizon the data allows.

    Raises DataError where nothing is left to train on.
    """
    total = len(market.records)
    if holdout == 0.0:
        return Split(market, None, 0)
    purge = max((h for h in FRD_HORIZONS if h <= total // _PURGE_SHARE), default=WARMUP_SNAPSHOTS)
    first = total - int(total * holdout)
    if first - purge < 1 or first >= total:
        raise DataError(
            f"{market.source}: {total:,} snapshots are too few to hold out {holdout:.0%} behind a gap of "
            f"{purge}; give more data"
        )
    return Split(market.range(0, first - purge), market.range(first, total), purge)
