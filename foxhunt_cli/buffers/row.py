"""The type of a row of the buffer table."""

from __future__ import annotations

from dataclasses import dataclass

LIFETIMES = ("data", "persistent", "iteration")


@dataclass(frozen=True)
class Buffer:
    """One named device array.

    dims: comma-separated integer expressions over dimension names, slowest axis first.
    lifetime: "data" (filled once from the data set), "persistent" (carried from iteration to iteration; a
    checkpoint holds it), "iteration" (written before it is read, every iteration).
    """

    name: str
    dims: str
    dtype: str
    lifetime: str
    unit: str
    meaning: str
