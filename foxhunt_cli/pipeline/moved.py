"""The same steps elsewhere: on other buffers and at other sizes. For a network that runs twice in an iteration.

Works on lists alone; a step's parameters are those of its kernel's contract.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace

from foxhunt_cli.kernels.registry import kernel
from foxhunt_cli.pipeline.stage import Fused, Matmul, Stage, Step, View


def moved(steps: Iterable[Step | Fused], names: Mapping[str, str], sizes: Mapping[str, str]) -> list[Step | Fused]:
    """``steps`` with buffers renamed and dimensions replaced. names: old -> new; sizes: dimension -> another one."""
    return [_moved(step, names, sizes) for step in steps]


def resized(expression: str, sizes: Mapping[str, str]) -> str:
    """``expression`` with other dimensions in the place of those named."""
    return re.sub(r"[A-Za-z_]\w*", lambda word: sizes.get(word[0], word[0]), expression)


def _moved(step: Step | Fused, names: Mapping[str, str], sizes: Mapping[str, str]) -> Step | Fused:
    if isinstance(step, Fused):
        return replace(step, launches=(*moved(step.launches, names, sizes),), steps=(*moved(step.steps, names, sizes),))
    if isinstance(step, Stage):
        remap = {}
        for param in kernel(step.kernel).params:
            own = step.remap.get(param.name, param.name)
            remap[param.name] = names.get(own, own) if param.pointer else resized(own, sizes)
        return replace(step, remap=remap)
    if isinstance(step, Matmul):
        parts = {part: getattr(step, part) for part in ("a", "b", "out", "addend", "column_sums")}
        return replace(step, **{part: _view(view, names, sizes) for part, view in parts.items() if view})
    return replace(step, name=names.get(step.name, step.name))


def _view(view: View, names: Mapping[str, str], sizes: Mapping[str, str]) -> View:
    own = {f.name: resized(getattr(view, f.name), sizes) for f in fields(view) if f.name != "name"}
    return View(names.get(view.name, view.name), **own)
