"""Parameter tensors: one table a network, one flat vector for all of them.

Parameters, gradients and Adam moments are each one flat float32 buffer (``params``, ``grads``, ``adam_m``,
``adam_v``); a tensor ``w`` is the view ``w`` of the first and ``grad_w`` of the second, and, where it has a target
copy, ``target_w`` of ``target_params``. Offsets are multiples of CHUNK floats, so that one small table tells every
element its learning-rate group and branch; the pad stays zero for ever.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foxhunt_cli.config.dims import N_ACTIONS, STRUCTURE, evaluate
from foxhunt_cli.device.rng import seed_states

CHUNK = 32
ACTION_HOLD = STRUCTURE["ACTION_HOLD"][0]
# Learning-rate groups: index -> ISV slot of the rate. Branches: index -> ISV slot of the multiplier.
GROUPS = ("LR_BCE", "LR_Q", "LR_PI", "LR_V", "LR_AUX", "IQN_LR")
BRANCHES = (
    "BRANCH_LR_MULT_VSN",
    "BRANCH_LR_MULT_MAMBA1",
    "BRANCH_LR_MULT_MAMBA2",
    "BRANCH_LR_MULT_CFC",
    "BRANCH_LR_MULT_HEADS",
)


@dataclass(frozen=True)
class Parameter:
    """One tensor: dims as expressions, initial values, learning-rate group and branch.

    init: "xavier" (uniform, x gain, fan = first and last dim), "constant" (value = gain), "uniform" (+-gain),
    "hold" (zero, but gain at Hold of every block of N_ACTIONS).
    encoder: the tensor belongs to the encoder (global norm clip). target: a Polyak copy exists.
    """

    name: str
    dims: str
    init: str
    gain: float
    group: str
    branch: str = "BRANCH_LR_MULT_HEADS"
    encoder: bool = False
    target: bool = False


@dataclass(frozen=True)
class Layout:
    """Where each tensor lies in the flat vector."""

    offsets: Mapping[str, tuple[int, tuple[int, ...]]]  # name -> (first element, shape)
    size: int
    tensors: tuple[Parameter, ...]

    def view(self, flat: Any, name: str) -> Any:
        """The tensor ``name`` inside ``flat`` (host or device array), with its shape; shares memory."""
        start, shape = self.offsets[name]
        return flat[start : start + math.prod(shape)].reshape(shape)

    def chunk_codes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """uint8 per chunk: learning-rate group, branch, 1 where the encoder owns it. The pad follows its tensor."""
        chunks = self.size // CHUNK
        group, branch, encoder = (np.zeros(chunks, np.uint8) for _ in range(3))
        for tensor in self.tensors:
            start, shape = self.offsets[tensor.name]
            span = slice(start // CHUNK, (start + padded(math.prod(shape))) // CHUNK)
            group[span] = GROUPS.index(tensor.group)
            branch[span] = BRANCHES.index(tensor.branch)
            encoder[span] = tensor.encoder
        return group, branch, encoder


def padded(count: int) -> int:
    """``count`` rounded up to whole chunks."""
    return -(-count // CHUNK) * CHUNK


def lay_out(tensors: Sequence[Parameter], dims: Mapping[str, int]) -> Layout:
    """Offsets of all tensors under the run's dimensions. Raises ValueError on a name used twice."""
    offsets: dict[str, tuple[int, tuple[int, ...]]] = {}
    cursor = 0
    for tensor in tensors:
        if tensor.name in offsets:
            raise ValueError(f"parameter '{tensor.name}' declared twice")
        shape = tuple(evaluate(part.strip(), dims) for part in tensor.dims.split(","))
        offsets[tensor.name] = (cursor, shape)
        cursor += padded(math.prod(shape))
    return Layout(offsets, cursor, tuple(tensors))


def initial_values(layout: Layout, seed: int) -> np.ndarray:
    """Flat float32 initial parameters: one named random stream a tensor, so a new tensor leaves the others' values."""
    flat = np.zeros(layout.size, np.float32)
    for tensor in layout.tensors:
        target = layout.view(flat, tensor.name)
        if tensor.init == "constant":
            target[...] = tensor.gain
            continue
        if tensor.init == "hold":
            target.reshape(-1, N_ACTIONS)[:, ACTION_HOLD] = tensor.gain
            continue
        bits = seed_states(seed, f"init/{tensor.name}", target.size) >> 8
        unit = bits.astype(np.float64) / 2.0**24 * 2.0 - 1.0
        limit = tensor.gain
        if tensor.init == "xavier":
            limit *= math.sqrt(6.0 / (target.shape[0] + target.shape[-1]))
        elif tensor.init != "uniform":
            raise ValueError(f"parameter '{tensor.name}': unknown init '{tensor.init}'")
        target[...] = (unit * limit).reshape(target.shape)
    return flat
