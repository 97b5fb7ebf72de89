"""What the ordered list of a training iteration is made of: data, no behaviour.

A step of the list is a kernel launch (``Stage``), a matrix product (``Matmul``) or a zero fill (``Zero``). Names are
buffers and parameter tensors; sizes are expressions over dimension names, so a list does not depend on a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Stage:
    """One kernel. ``remap``: parameter -> buffer name, or an expression for a scalar (``{"t": "3"}``)."""

    kernel: str
    remap: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class View:
    """A row-major matrix inside a buffer: the buffer seen as rows of ``ld`` elements, then a block of it."""

    name: str
    rows: str
    cols: str
    ld: str = ""  # default: cols
    row0: str = "0"
    col0: str = "0"


@dataclass(frozen=True)
class Matmul:
    """out = op(a) @ op(b), or out += ... with ``accumulate``."""

    label: str
    a: View
    b: View
    out: View
    trans_a: bool = False
    trans_b: bool = False
    accumulate: bool = False


@dataclass(frozen=True)
class Zero:
    """Every element of a buffer becomes zero."""

    name: str


Step = Stage | Matmul | Zero


def at(t: int) -> dict[str, str]:
    """The remap of a per-step kernel at environment step ``t`` of the iteration."""
    return {"t": str(t)}
