"""What the ordered list of a training iteration is made of: data, no behaviour.

A step of the list is a kernel launch (``Stage``), a matrix product (``Matmul``) or a zero fill (``Zero``). Names are
buffers and parameter tensors; sizes are expressions over dimension names, so a list does not depend on a run.
Where one kernel does the work of several steps the builders say so with ``Fused``; ``chosen`` decides which one runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal


@dataclass(frozen=True)
class Stage:
    """One kernel. ``remap``: parameter -> buffer name, or an expression for a scalar (``{"t": "3"}``).

    ``when``, in every kind of step: a buffer of one int32; the step does nothing where it is 0 as its turn comes.
    """

    kernel: str
    remap: Mapping[str, str] = field(default_factory=dict)
    when: str = ""


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
    """out = op(a) @ op(b), plus ``addend``, or out += ... with ``accumulate``.

    column_sums: [1, columns of b], becomes the sums over b's rows: a bias' gradient beside that of the weights.
    """

    label: str
    a: View
    b: View
    out: View
    trans_a: bool = False
    trans_b: bool = False
    accumulate: bool = False
    when: str = ""
    addend: View | None = None
    column_sums: View | None = None

    @property
    def operands(self) -> tuple[View, ...]:
        """What it reads, but for ``out`` where it accumulates."""
        return (self.a, self.b) if self.addend is None else (self.a, self.b, self.addend)

    @property
    def results(self) -> tuple[View, ...]:
        """What it writes."""
        return (self.out,) if self.column_sums is None else (self.out, self.column_sums)


@dataclass(frozen=True)
class Zero:
    """Every element of a buffer becomes zero."""

    name: str
    when: str = ""


Step = Stage | Matmul | Zero

Fusion = Literal["none", "exact", "float32", "tf32"]
"""Which fused kernels run: none, those that change no bit, all that compute in float32 throughout, or those with TF32
products as well."""


@dataclass(frozen=True)
class Fused:
    """``launches`` do what ``steps`` do: every buffer that a later step reads holds the same afterwards.

    tf32: the launches multiply in TF32, so they run only where products do. exact: both devices have the kernels of the
    launches, and they leave the same bits as the steps. Buffers that only ``steps`` use are not allocated where the
    launches run.
    """

    launches: tuple[Step, ...]
    steps: tuple[Step | Fused, ...]
    tf32: bool = False
    exact: bool = False

    def allowed(self, fusion: Fusion) -> bool:
        """Whether the launches run."""
        return self.exact if fusion == "exact" else fusion == "tf32" or (fusion == "float32" and not self.tf32)


def chosen(steps: Iterable[Step | Fused], fusion: Fusion) -> list[Step]:
    """The plain list: each ``Fused`` replaced by its launches where ``fusion`` allows them, else by its steps."""
    plain: list[Step] = []
    for step in steps:
        if not isinstance(step, Fused):
            plain.append(step)
        elif step.allowed(fusion):
            plain.extend(step.launches)
        else:
            plain.extend(chosen(step.steps, fusion))
    return plain


def only_when(flag: str, steps: Iterable[Step | Fused]) -> list[Step | Fused]:
    """``steps`` under the condition that buffer ``flag`` is not 0; ``chosen`` still decides among them."""
    marked: list[Step | Fused] = []
    for step in steps:
        if isinstance(step, Fused):
            launches, own = (tuple(only_when(flag, part)) for part in (step.launches, step.steps))
            marked.append(replace(step, launches=launches, steps=own))
        else:
            marked.append(replace(step, when=flag))
    return marked


def at(t: int) -> dict[str, str]:
    """The remap of a per-step kernel at environment step ``t`` of the iteration."""
    return {"t": str(t)}
