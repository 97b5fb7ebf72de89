"""Proves that an ordered list makes sense: nothing is read before it is written, nothing is written in vain.

Works on names alone: no device, no sizes. Buffers that live longer than an iteration (data, persistent, parameters)
may be read at any time; an iteration buffer must have been written earlier in the list.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from foxhunt_cli.kernels.registry import kernel
from foxhunt_cli.pipeline.stage import Matmul, Stage, Step
from foxhunt_cli.pipeline.tables import buffers


def problems(steps: Sequence[Step], host_writes: Collection[str] = (), host_reads: Collection[str] = ()) -> list[str]:
    """Every violation as one line; an empty list is a proof.

    host_writes: iteration buffers the host fills before the list runs. host_reads: buffers it reads afterwards.
    """
    table = buffers()
    carried = {n for n, row in table.items() if row.lifetime != "iteration"} | set(host_writes)
    written: dict[str, str] = {}
    read: set[str] = set()
    found: list[str] = []
    for index, step in enumerate(steps):
        label = f"step {index} ({describe(step)})"
        for name in reads(step):
            read.add(name)
            if name in table and name not in carried and name not in written:
                found.append(f"{label}: reads '{name}' before any step wrote it")
        for name in writes(step):
            written.setdefault(name, label)
    for name, label in written.items():
        if name in table and table[name].lifetime == "iteration" and name not in read and name not in host_reads:
            found.append(f"{label}: writes '{name}', which nothing reads")
    return found


def describe(step: Step) -> str:
    """One word or two for people."""
    if isinstance(step, Stage):
        return step.kernel
    return step.label if isinstance(step, Matmul) else f"zero {step.name}"


def reads(step: Step) -> Iterator[str]:
    """Buffers and tensors whose contents the step uses."""
    if step.when:
        yield step.when
    if isinstance(step, Stage):
        yield from (step.remap.get(name, name) for name in kernel(step.kernel).reads)
    elif isinstance(step, Matmul):
        yield from (view.name for view in (*step.operands, *((step.out,) if step.accumulate else ())))


def writes(step: Step) -> Iterator[str]:
    """Buffers and tensors the step changes."""
    if isinstance(step, Stage):
        yield from (step.remap.get(name, name) for name in kernel(step.kernel).writes)
    elif isinstance(step, Matmul):
        yield from (view.name for view in step.results)
    else:
        yield step.name
