"""The data set as the peer reads it: one table of features, a few columns, labels and legal episode starts, in torch.

Everything is taken from an engine's data arrays; features come from our own kernel, run once over the whole data set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foxhunt_cli.config.dims import ENCODER_INPUT_DIM, N_ACTIONS
from foxhunt_cli.device.base import Device
from foxhunt_cli.nets.encoder_full import GAP_SCALE
from foxhunt_cli.pipeline.build import build
from foxhunt_cli.pipeline.stage import Stage
from foxhunt_cli.replay import path_targets

_MS_PER_NS = 1e-6
_VOLATILITY = 34  # column of the 10 s volatility (cuda_src/market/features.cu)


@dataclass(frozen=True)
class Market:
    """N snapshots. Prices in ticks; labels below zero: none."""

    features: Tensor  # [N, 56], columns 40..43 zero
    gap: Tensor  # [N] 0.2 ln(1 + ms since the snapshot before)
    bid: Tensor  # [N] best bid
    ask: Tensor  # [N] best ask
    mid: Tensor  # [N]
    frd: Tensor  # [N, 3] int64 bucket
    direction: Tensor  # [N, 3] int64 0 / 1
    span_first: Tensor  # [S] int64, first legal start of a session
    span_before: Tensor  # [S + 1] int64, legal starts before it; the last: all

    @property
    def nbytes(self) -> int:
        """Device memory of the tables."""
        return sum(value.nbytes for value in vars(self).values())

    @property
    def volatility(self) -> Tensor:
        """[N] of the mid over 10 s, ticks / sqrt(s)."""
        return self.features[:, _VOLATILITY]

    def starts(self, rows: int) -> Tensor:
        """[rows] int64, episode starts, uniform over the legal ones."""
        draw = (torch.rand(rows, dtype=torch.float64, device=self.mid.device) * self.span_before[-1]).long()
        span = torch.searchsorted(self.span_before, draw, right=True) - 1
        return self.span_first[span] + draw - self.span_before[span]


def load(device: Device, arrays: Mapping[str, Any], to: torch.device) -> Market:
    """The data set of an engine's ``arrays`` on the torch device ``to``."""

    def column(name: str, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.from_numpy(device.download(arrays[name])).to(dtype)

    bid, ask = column("bid_px")[:, 0], column("ask_px")[:, 0]
    ts = device.download(arrays["ts_ns"]).astype(np.int64)
    ms = np.diff(ts, prepend=ts[0]).clip(min=0) * _MS_PER_NS
    tables = {
        "features": torch.from_numpy(_features(device, arrays, len(ts))),
        "gap": torch.from_numpy((GAP_SCALE * np.log1p(ms)).astype(np.float32)),
        "bid": bid,
        "ask": ask,
        "mid": 0.5 * (bid + ask),
        "frd": column("frd_label", torch.int64),
        "direction": column("direction_label", torch.int64),
        "span_first": column("span_first", torch.int64),
        "span_before": column("span_cumulative", torch.int64),
    }
    return Market(**{name: value.contiguous().to(to) for name, value in tables.items()})


def _features(device: Device, arrays: Mapping[str, Any], count: int) -> np.ndarray:
    """float32 [count, 56]: the features of every snapshot."""
    x = device.zeros((1, count, ENCODER_INPUT_DIM), np.float32)
    own = {"cursor": device.upload(np.arange(count, dtype=np.int32)), "x": x}
    dims = {"B": count, "W": 1, "K": 1, "N_SNAP": count}
    step = Stage("snap_feature_assemble_batched", {"offset": "0"})
    device.plan(build([step], {**arrays, **own}, dims, device), use_graph=False).run()
    return device.download(x)[0]


def next_class(device: Device, isv: np.ndarray, lot_limit: int) -> np.ndarray:
    """int64 [2 lot_limit + 1, 11]: class after each action from each class, by our own rules of actions."""
    classes = 2 * lot_limit + 1
    own = {"isv": device.upload(isv), "next_class": device.zeros((classes, N_ACTIONS), np.int8)}
    device.plan(build(path_targets.table(), own, {"P": classes}, device), use_graph=False).run()
    return device.download(own["next_class"]).astype(np.int64)
