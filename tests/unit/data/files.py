"""Small market-data files for the tests, written with the vendor's own constructors."""

from __future__ import annotations

from datetime import date
from types import SimpleNamespace

import databento_dbn as dbn
import numpy as np

from foxhunt_cli.data.market_data import MarketData
from foxhunt_cli.data.options import DataOptions
from foxhunt_cli.data.source import load_market_data
from foxhunt_cli.data.synthetic import SyntheticOptions

T0 = 1_704_200_000_000_000_000
SECOND = 1_000_000_000
NANO = 1_000_000_000
UNDEFINED = 2**63 - 1


def load(path, **options) -> MarketData:
    """Read without the cache."""
    return load_market_data(path, DataOptions(**{"cache": False, **options}), SyntheticOptions())


def levels(bid: float, ask: float, tick: float = 0.25, depth: int = 10, size: int = 5) -> list[dbn.BidAskPair]:
    """A regular book: `depth` levels present, the rest absent; sizes grow with depth."""
    pairs = []
    for k in range(10):
        if k < depth:
            pairs.append(
                dbn.BidAskPair(
                    round((bid - k * tick) * NANO), round((ask + k * tick) * NANO), size + k, size + 2 * k, 1, 1
                )
            )
        else:
            pairs.append(dbn.BidAskPair())
    return pairs


def message(
    second: float,
    bid: float = 4800.0,
    ask: float = 4800.25,
    action: str = "M",
    side: str = "N",
    size: int = 1,
    flags: int = 128,
    instrument_id: int = 1,
    book: list[dbn.BidAskPair] | None = None,
    **extra,
) -> dbn.MBP10Msg:
    """One MBP-10 record, `second` seconds after T0."""
    actions = {
        "A": dbn.Action.ADD,
        "C": dbn.Action.CANCEL,
        "M": dbn.Action.MODIFY,
        "R": dbn.Action.CLEAR,
        "T": dbn.Action.TRADE,
        "F": dbn.Action.FILL,
        "N": dbn.Action.NONE,
    }
    sides = {"A": dbn.Side.ASK, "B": dbn.Side.BID, "N": dbn.Side.NONE}
    ts = T0 + round(second * SECOND)
    return dbn.MBP10Msg(
        publisher_id=1,
        instrument_id=instrument_id,
        ts_event=ts,
        price=round(bid * NANO),
        size=size,
        action=actions[action],
        side=sides[side],
        depth=0,
        ts_recv=extra.pop("ts_recv", ts),
        flags=flags,
        levels=levels(bid, ask) if book is None else book,
        **extra,
    )


def header(
    symbols: dict[str, list[int]] | None = None,
    schema: dbn.Schema | None = dbn.Schema.MBP_10,
    ts_out: bool = False,
    version: int = 3,
) -> bytes:
    """File header; `symbols` maps raw symbols to the ids they had, a day each."""
    symbols = {"ESH4": [1]} if symbols is None else symbols
    mappings = [
        SimpleNamespace(
            raw_symbol=s,
            intervals=[
                SimpleNamespace(start_date=date(2024, 1, 1 + k), end_date=date(2024, 1, 2 + k), symbol=str(i))
                for k, i in enumerate(ids)
            ],
        )
        for s, ids in symbols.items()
    ]
    return bytes(
        dbn.Metadata(
            dataset="GLBX.MDP3",
            start=T0,
            end=T0 + 1,
            stype_in=dbn.SType.RAW_SYMBOL,
            stype_out=dbn.SType.INSTRUMENT_ID,
            schema=schema,
            symbols=list(symbols),
            partial=[],
            not_found=[],
            mappings=mappings,
            ts_out=ts_out,
            version=version,
        )
    )


def write_dbn(path, messages, **head):
    """A DBN file of these messages."""
    path.write_bytes(header(**head) + b"".join(bytes(m) if not isinstance(m, bytes) else m for m in messages))
    return path


def market(n: int = 400, seed: int = 0, preset: str = "wavy", **more) -> MarketData:
    """A small synthetic market."""
    return load_market_data(None, DataOptions(), SyntheticOptions(preset=preset, snapshots=n, seed=seed, **more))


def same_records(a: MarketData, b: MarketData) -> bool:
    """Bit-identical records and sessions."""
    return a.records.tobytes() == b.records.tobytes() and np.array_equal(a.session_start, b.session_start)
