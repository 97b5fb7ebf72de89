"""The ordered list for people and tools: each step with its grid, its block, what it reads and what it writes.

Owns the printable form and the folding of repeats (T environment steps, U replay updates). It runs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from foxhunt_cli.config.dims import DimensionError, evaluate
from foxhunt_cli.kernels.registry import kernel
from foxhunt_cli.pipeline.stage import Matmul, Stage, Step
from foxhunt_cli.pipeline.validate import describe, reads, writes

_PERIOD_MAX = 80  # steps of a repeated part at most


@dataclass(frozen=True)
class PlanLine:
    """One step. grid and block: numbers, or the rule where a size is only known with the data; "" for no kernel."""

    index: int
    kind: str  # kernel, product or zero
    step: str
    grid: str
    block: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]


@dataclass(frozen=True)
class Part:
    """Consecutive lines that run ``times`` times in a row; of the repeats, the first."""

    times: int
    lines: tuple[PlanLine, ...]


def plan_lines(steps: Sequence[Step], dims: Mapping[str, int | float]) -> list[PlanLine]:
    """Every step of the list. dims: the sizes that are known; others stay expressions."""
    return [_line(index, step, dims) for index, step in enumerate(steps)]


def fold(lines: Sequence[PlanLine]) -> list[Part]:
    """The list with consecutive repeats folded, in order; a part of its own for each stretch without repeats."""
    names = [line.step for line in lines]
    parts: list[Part] = []
    single: list[PlanLine] = []
    start = 0
    while start < len(names):
        period, times = _repeat(names, start)
        if times == 1:
            single.append(lines[start])
            start += 1
            continue
        if single:
            parts.append(Part(1, tuple(single)))
            single = []
        parts.append(Part(times, tuple(lines[start : start + period])))
        start += period * times
    return [*parts, Part(1, tuple(single))] if single else parts


def _repeat(names: Sequence[str], start: int) -> tuple[int, int]:
    """(period, times) of the repeat from ``start`` that covers most steps; (1, 1) where nothing repeats."""
    best = (1, 1)
    for period in range(1, min(_PERIOD_MAX, (len(names) - start) // 2) + 1):
        first = names[start : start + period]
        times = 1
        while names[start + times * period : start + (times + 1) * period] == first:
            times += 1
        if times > 1 and times * period > best[0] * best[1]:
            best = (period, times)
    return best


def _line(index: int, step: Step, dims: Mapping[str, int | float]) -> PlanLine:
    kind, grid, block = "zero", "", ""
    if isinstance(step, Stage):
        kind, (grid, block) = "kernel", _geometry(step, dims)
    elif isinstance(step, Matmul):
        kind, grid = "product", _product(step, dims)
    return PlanLine(index, kind, describe(step), grid, block, tuple(reads(step)), tuple(writes(step)))


def _geometry(step: Stage, dims: Mapping[str, int | float]) -> tuple[str, str]:
    rule = kernel(step.kernel).launch
    scalars = {
        p.name: _value(step.remap.get(p.name, p.name), dims) for p in kernel(step.kernel).params if not p.pointer
    }
    known = {**dims, **{name: value for name, value in scalars.items() if not isinstance(value, str)}}
    items, block = _value(rule.items, known), _value(rule.block, known)
    if rule.mode == "blocks":
        return str(items), str(block)
    if isinstance(items, int) and isinstance(block, int):
        return str(-(-items // block)), str(block)
    return f"ceil({items} / {block})", str(block)


def _product(step: Matmul, dims: Mapping[str, int | float]) -> str:
    """Rows x columns x inner size."""
    a = step.a
    inner = a.rows if step.trans_a else a.cols
    return " x ".join(str(_value(size, dims)) for size in (step.out.rows, step.out.cols, inner))


def _value(expression: str, dims: Mapping[str, int | float]) -> int | str:
    """The number, or the expression itself where a size in it is not known."""
    try:
        return evaluate(expression, dims)
    except (DimensionError, TypeError):
        return expression
