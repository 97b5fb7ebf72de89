"""THE buffer table: every device array by name, put together from one list a family.

A network's buffers stand beside its steps; those of the market, the environment and the update stand in ``buffers/``.
"""

from __future__ import annotations

from functools import cache

from foxhunt_cli.buffers import control, data, diag, env, learn, replay, sums
from foxhunt_cli.buffers.row import Buffer
from foxhunt_cli.buffers.table import gather
from foxhunt_cli.nets import (
    c51,
    c51_update,
    direction,
    distill,
    encoder_full,
    encoder_mlp,
    frd,
    iqn,
    outcome,
    policy,
    spectral,
    supervised,
    target,
)
from foxhunt_cli.pipeline import fresh

_FAMILIES = (data.ROWS, env.ROWS, learn.ROWS, replay.ROWS, control.ROWS, diag.ROWS, sums.ROWS, fresh.BUFFERS)
_HEADS = (frd, direction, outcome, supervised)
_NETWORKS = (encoder_mlp, encoder_full, *_HEADS, c51, c51_update, iqn, distill, policy, spectral, target)


@cache
def buffers() -> dict[str, Buffer]:
    """All buffers by name."""
    families = [*_FAMILIES, *(network.BUFFERS for network in _NETWORKS)]
    return gather(row for rows in families for row in rows)
