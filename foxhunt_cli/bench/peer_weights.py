"""Our tensors as the peer holds them: same names, same values, some side by side so that one product serves several.

THE mapping between the two: initial weights go over it one way, gradients and trained weights the other way. It knows
no rule of initialisation; values come from an engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from foxhunt_cli.device.base import Device
from foxhunt_cli.isv.table import number
from foxhunt_cli.nets.params import Layout
from foxhunt_cli.pipeline import critic

Weights = dict[str, Tensor]

WIDTH = 8
"""Packed tensors have a multiple of so many columns: a row then begins on 32 bytes, which the library's fast products
ask for. The columns that fill it up are zero."""

# Packed name -> our tensors, in the order of their columns.
PACKS: dict[str, tuple[str, ...]] = {
    "w_heads": ("w_pi", "w_v", "w_frd1", "w_direction", "w_outcome"),
    "b_heads": ("b_pi", "b_v", "b_frd1", "b_direction", "b_outcome"),
    "w_context": ("w_pi_ctx", "w_v_ctx"),
    **{name: (name,) for name in ("w_c51", "b_c51", "sw_c51", "sb_c51", "w_iqn", "b_iqn")},
}
_PACKED = {part: name for name, parts in PACKS.items() for part in parts}


def pack(values: Mapping[str, Tensor]) -> Weights:
    """Every tensor of ``values`` (our names) under the peer's names, copied."""
    packed: Weights = {}
    for name, value in values.items():
        whole = _PACKED.get(name)
        if whole is None:
            packed[name] = value.clone()
        elif whole not in packed:
            side_by_side = torch.cat([values[part] for part in PACKS[whole]], -1)
            packed[whole] = F.pad(side_by_side, (0, -side_by_side.shape[-1] % WIDTH))
    return packed


def unpack(packed: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """The inverse of ``pack``: views under our names. shapes: of our tensors."""
    values: dict[str, Tensor] = {}
    for name, whole in packed.items():
        first = 0
        for part in PACKS.get(name, (name,)):
            values[part] = whole[..., first : first + shapes[part][-1]]
            first += shapes[part][-1]
    return values


def shapes_of(layout: Layout) -> dict[str, tuple[int, ...]]:
    """Shapes of our tensors by name."""
    return {name: shape for name, (_, shape) in layout.offsets.items()}


def load(
    device: Device, arrays: Mapping[str, object], names: Iterable[str], to: torch.device, prefix: str = ""
) -> Weights:
    """The engine's tensors ``prefix + name``, packed, on the torch device ``to``."""
    return pack({name: torch.from_numpy(device.download(arrays[prefix + name])).to(to) for name in names})


def spans(layout: Layout) -> tuple[list[str], list[str]]:
    """Our names of the on-policy tensors and of the critic's."""
    own = {tensor.name for tensor in critic.parameters()}
    names = [tensor.name for tensor in layout.tensors]
    return [n for n in names if n not in own], [n for n in names if n in own]


def rates(layout: Layout, isv: Iterable[float]) -> dict[str, float]:
    """Learning rate of each packed tensor: that of its first part's group, without the controller of the rates."""
    slots = list(isv)
    found: dict[str, float] = {}
    for tensor in layout.tensors:
        found.setdefault(_PACKED.get(tensor.name, tensor.name), float(slots[number(tensor.group)]))
    return found
