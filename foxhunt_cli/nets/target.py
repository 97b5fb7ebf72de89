"""What the critic's heads share: the batch they learn from, their target copies, and counters of bad numbers.

Owns the names of a critic batch and the steps that move target parameters. Who fills the batch is the replay's matter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from foxhunt_cli.buffers.row import Buffer
from foxhunt_cli.isv.table import number
from foxhunt_cli.nets.params import CHUNK, Layout, lay_out, padded
from foxhunt_cli.pipeline.stage import Stage, Step

# Elements of nonfinite_parts: one writer each. Each optimiser has an array of its own and refuses for its own losses,
# so that neither waits for the other.
NONFINITE_FRD, NONFINITE_OUTCOME, NONFINITE_DIRECTION, NONFINITE_Q, NONFINITE_IQN = "0", "1", "2", "3", "4"
NONFINITE_DISTILL, NONFINITE_POPART = "5", "6"
N_NONFINITE_PARTS = 8  # the last counts what the critic's updates of an iteration refused (rl_critic_step)
_COUNTERS = f"{N_NONFINITE_PARTS}"

NORM_PARTS = 1024  # threads that share a long norm

BUFFERS = (
    Buffer("nonfinite_parts", _COUNTERS, "int32", "iteration", "1", "numbers that are not finite, by stage"),
    Buffer("nonfinite_parts_critic", _COUNTERS, "int32", "data", "1", "the critic's, written anew in every update"),
    Buffer("target_chunk", "N_TARGET_CHUNKS", "int32", "data", "chunk", "chunk of params each target chunk follows"),
    Buffer("difference_parts", f"{NORM_PARTS}", "float32", "iteration", "1", "parts of |W - W_target|^2"),
    Buffer("square_parts", f"{NORM_PARTS}", "float32", "iteration", "1", "parts of a squared norm"),
)


def nonfinite_parts(span: str) -> str:
    """The counters that the optimiser of ``span`` ("policy" or "critic") looks at."""
    return "nonfinite_parts_critic" if span == "critic" else "nonfinite_parts"


@dataclass(frozen=True)
class CriticBatch:
    """Names of the arrays a critic update reads; rows must not exceed the dimension R that the buffers are sized by.

    h, next_h [rows, 128] encodings at the moment and n steps later; lots, next_lots [rows] int8 signed lots; action
    [rows] int8 executed; reward [rows] n-step return; discount [rows] gamma^n; terminal [rows] uint8; weight [rows]
    importance; path_return [rows, P*11] = R(p, a); next_class [P*11] int8 class after action a from class p; ones: at
    least rows ones.
    """

    rows: str = "R"
    h: str = "replay_h"
    next_h: str = "replay_next_h"
    lots: str = "replay_lots"
    next_lots: str = "replay_next_lots"
    action: str = "replay_action"
    reward: str = "replay_reward"
    discount: str = "replay_discount"
    terminal: str = "replay_terminal"
    weight: str = "is_weight"
    path_return: str = "path_return"
    next_class: str = "next_class"
    ones: str = "ones_replay"

    def remap(self, *fields: str) -> dict[str, str]:
        """Parameter -> buffer of the named fields, and rows."""
        parameter = {
            "lots": "replay_lots",
            "next_lots": "replay_next_lots",
            "action": "replay_action",
            "reward": "replay_reward",
            "discount": "replay_discount",
            "terminal": "replay_terminal",
            "weight": "is_weight",
        }
        return {"rows": self.rows} | {parameter.get(f, f): getattr(self, f) for f in fields}


def target_layout(layout: Layout, dims: dict[str, int]) -> Layout:
    """Layout of ``target_params``: the tensors that have a target copy, in the online vector's order."""
    return lay_out([tensor for tensor in layout.tensors if tensor.target], dims)


def target_chunks(layout: Layout, target: Layout) -> np.ndarray:
    """int32 per chunk of the target vector: the chunk of the online vector it follows (buffer ``target_chunk``)."""
    chunks = np.zeros(target.size // CHUNK, np.int32)
    for name, (start, shape) in target.offsets.items():
        count = padded(math.prod(shape)) // CHUNK
        chunks[start // CHUNK : start // CHUNK + count] = layout.offsets[name][0] // CHUNK + np.arange(count)
    return chunks


def polyak() -> list[Step]:
    """target_params += TARGET_TAU (params - target_params)."""
    return [Stage("rl_polyak", {"n_target_chunks": "N_TARGET_CHUNKS"})]


def follow(times: int) -> Stage:
    """``polyak`` of the copies of the encoder alone, ``times`` times over, for updates that do not encode anew.

    No such update reads them, so one pass behind the policy's optimiser leaves what a pass in each update would.
    """
    own = {"params": "params_policy"} | {name: f"{name}_encoder" for name in ("target_params", "target_chunk")}
    return Stage("rl_polyak_often", own | {"n_target_chunks": "N_TARGET_CHUNKS - N_CRITIC_CHUNKS", "times": str(times)})


def split(arrays: Mapping[str, Any], critic_chunks: int) -> dict[str, Any]:
    """Views of target_params and target_chunk: the encoder's copies, then the critic's, the last ``critic_chunks``."""
    chunk = arrays["target_chunk"]
    edge = len(chunk) - critic_chunks
    views = {"target_params_critic": arrays["target_params"][edge * CHUNK :]}
    if edge:
        views |= {
            "target_params_encoder": arrays["target_params"][: edge * CHUNK],
            "target_chunk_encoder": chunk[:edge],
        }
    return views


def gradient_norm(gradient: str, elements: str, slot: str) -> list[Step]:
    """L2 norm of a gradient tensor into the EMA of a slot, e.g. ("grad_w_c51", ..., "Q_GRAD_NORM_EMA")."""
    parts = {"NORM_PARTS": str(NORM_PARTS)}
    return [
        Stage("rl_square_sum_parts", {"x": gradient, "n": elements, **parts}),
        Stage("rl_l2_norm", {"slot": str(number(slot)), **parts}),
    ]
