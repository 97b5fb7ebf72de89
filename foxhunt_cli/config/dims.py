"""Structural constants and the only dimension arithmetic.

STRUCTURE is compiled into the kernels (``cuda_src/generated/structure.cuh``). Run sizes such as B and T are
dimensions: integers by name, passed to kernels as scalars and used by buffer shapes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import CodeType

# name -> (value, meaning). Shared with CUDA through a generated header.
STRUCTURE: dict[str, tuple[int, str]] = {
    "N_LEVELS": (10, "book levels a side"),
    "N_REGIME": (6, "regime fields of a snapshot"),
    "FEATURE_DIM": (40, "features of a snapshot"),
    "MULTIRES_DIM": (12, "multi-resolution features: 3 horizons x 4"),
    "CONTEXT_DIM": (4, "trade context features of a row"),
    "ENCODER_INPUT_DIM": (56, "FEATURE_DIM + CONTEXT_DIM + MULTIRES_DIM"),
    "HIDDEN_DIM": (128, "width of the encoding h"),
    "N_ACTIONS": (11, "actions"),
    "HEAD_CONTEXT_DIM": (3, "trade context at the heads: time in trade, unrealised R, drawdown from peak"),
    "MAX_UNITS": (4, "pyramid units a row can hold"),
    "N_HORIZONS": (3, "forward-return horizons"),
    "N_BUCKETS": (21, "forward-return buckets"),
    "WARMUP_SNAPSHOTS": (32, "K: snapshots behind a cursor that are always there"),
    "ACTION_SHORT_LARGE": (0, "open or add -LARGE, reverse a long"),
    "ACTION_SHORT_SMALL": (1, "open or add -SMALL, reverse a long"),
    "ACTION_HOLD": (2, "keep the position"),
    "ACTION_FLAT_FROM_LONG": (3, "close a long"),
    "ACTION_FLAT_FROM_SHORT": (4, "close a short"),
    "ACTION_LONG_SMALL": (5, "open or add +SMALL, reverse a short"),
    "ACTION_LONG_LARGE": (6, "open or add +LARGE, reverse a short"),
    "ACTION_TRAIL_TIGHTEN": (7, "trails x rate"),
    "ACTION_TRAIL_LOOSEN": (8, "trails / rate"),
    "ACTION_HALF_FLAT_LONG": (9, "close half of a long, rounded up"),
    "ACTION_HALF_FLAT_SHORT": (10, "close half of a short, rounded up"),
}

N_ACTIONS = STRUCTURE["N_ACTIONS"][0]
ENCODER_INPUT_DIM = STRUCTURE["ENCODER_INPUT_DIM"][0]
FEATURE_DIM = STRUCTURE["FEATURE_DIM"][0]
MULTIRES_DIM = STRUCTURE["MULTIRES_DIM"][0]
HEAD_CONTEXT_DIM = STRUCTURE["HEAD_CONTEXT_DIM"][0]
N_HORIZONS = STRUCTURE["N_HORIZONS"][0]
WARMUP_SNAPSHOTS = STRUCTURE["WARMUP_SNAPSHOTS"][0]
FRD_HORIZONS = (60, 300, 1000)


class DimensionError(ValueError):
    """An expression names a dimension that does not exist."""


_CONSTANTS = {name: value for name, (value, _) in STRUCTURE.items()}


@cache
def _compiled(expression: str) -> CodeType:
    """Code of ``expression``, every division a whole one; a list repeats the same few hundred expressions."""
    return compile(expression.replace("/", "//").replace("////", "//"), "<dimension>", "eval")


def evaluate(expression: str | int, dims: Mapping[str, int]) -> int:
    """Value of an integer expression over dimension names, e.g. ``"T*B"`` or ``"(N + 63) / 64"`` (floor).

    STRUCTURE's constants are known by name; ``dims`` adds the run's own. Raises DimensionError.
    """
    if isinstance(expression, int):
        return expression
    if expression.isdecimal():
        return int(expression)
    if expression in dims:
        return int(dims[expression])
    try:
        return int(eval(_compiled(expression), {"__builtins__": {}}, {**_CONSTANTS, **dims}))  # noqa: S307
    except NameError as error:
        raise DimensionError(f"'{expression}': {error}; known: {', '.join(sorted(dims))}") from None
