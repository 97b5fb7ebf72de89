"""A whole critic update on tensor cores: what stands for sample, C51, optimiser, priorities and target copies.

Owns the buffers that only the fused kernels use, their sizes and their order. The steps they stand for are those of
``c51``, ``per``, ``learn`` and ``target``; ``pipeline/critic.py`` says which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foxhunt_cli.buffers.row import Buffer
from foxhunt_cli.nets import iqn
from foxhunt_cli.nets.c51 import ATOMS
from foxhunt_cli.nets.target import CriticBatch, nonfinite_parts
from foxhunt_cli.pipeline.stage import Stage, Step, Zero

_PAIRS, _OUT = "(P*N_ACTIONS)", f"(P*N_ACTIONS*{ATOMS})"
_NOISE = f"HIDDEN_DIM + {_OUT}"
# Blocks of the update kernel: groups of eight pairs, and slices of the batch in whole tiles of 32 rows, at most as many
# as fill a GPU of 132 multiprocessors once. A block has two tiles or more: it takes a multiprocessor for itself, while
# the quantiles' update and the policy's backward run beside it: 3 to 5 % of an iteration at B = 16.
_GROUPS, _ROW_TILES = f"(({_PAIRS} + 7)/8)", "((R + 31)/32)"
_MOST = f"(132/{_GROUPS})"
_EVEN = f"(({_ROW_TILES} + {_MOST} - 1)/{_MOST})"
_EACH = f"({_EVEN} if {_EVEN} > 1 or R <= 32 else 2)"
_SLICES = f"(({_ROW_TILES} + {_EACH} - 1)/{_EACH})"
_TILES = f"({_GROUPS}*HIDDEN_DIM/8)"  # of the optimiser: eight pairs, eight inputs
# First element of the critic's span behind the C51 head: w, b, sw, sb, each in whole chunks of 32.
_BEHIND = f"(2*((HIDDEN_DIM*{_OUT} + 31)/32*32 + ({_OUT} + 31)/32*32))"
_OTHERS = f"(N_CRITIC_CHUNKS*32 - {_BEHIND})"
_COUNTS = ("adam_step", "fault", "update_control", "nonfinite_parts")  # of an optimiser
_NOISES = ("c51_noises_even", "c51_noises_odd")
WIDE_FROM = 2048
"""Rows from which on blocks keep the weights of a class in shared memory."""


def _scratch(name: str, dims: str, unit: str, meaning: str) -> Buffer:
    return Buffer(name, dims, "float32", "iteration", unit, meaning)


BUFFERS = (
    _scratch("c51_noises_even", f"2, {_NOISE}", "1", "f(e) of both heads, of updates 0, 2, ..."),
    _scratch("c51_noises_odd", f"2, {_NOISE}", "1", "the same of updates 1, 3, ..."),
    Buffer("c51_packed_w", f"2, {_PAIRS}, 1536", "uint32", "iteration", "halves", "noisy weights, packed"),
    _scratch("c51_packed_b", f"2, {_PAIRS}, 24", "1", "noisy biases of both heads"),
    _scratch("c51_grad_parts", f"{_SLICES}, 129, {_PAIRS}, 24", "1", "gradients of a slice of the batch, then bias"),
    _scratch("c51_td_parts", f"{_GROUPS}, R", "nats", "cross-entropies of a row, summed over eight pairs"),
    _scratch("c51_block_parts", f"{_GROUPS}*{_SLICES}, 4", "mixed", "largest, least target, mass clipped, bad numbers"),
    _scratch("priority_parts", "32, 4", "mixed", "largest priority, sums of TD errors and gaps of a run of rows"),
    Buffer("priorities_done", "1", "uint32", "data", "blocks", "blocks_done of the priorities, beside other branches'"),
    _scratch("c51_tile_sums", f"{_TILES}, 3", "mixed", "squares of gradient, W - W_target and W"),
)


@dataclass(frozen=True)
class Update:
    """Which update of an iteration: number ``update`` of ``updates``, with ``rows`` rows."""

    batch: CriticBatch
    update: int
    updates: int
    rows: int
    path: bool
    noisy: bool = True

    @property
    def last(self) -> bool:
        """Whether no further update follows in the iteration."""
        return self.update + 1 == self.updates

    @property
    def noises(self) -> str:
        """Buffer of this update's noise."""
        return _NOISES[self.update % 2]

    @property
    def next_noises(self) -> str:
        """Buffer of the next update's."""
        return _NOISES[(self.update + 1) % 2]


def opening(*, noisy: bool = True) -> tuple[Step, ...]:
    """Noise of the first update and the weights under it; later ones are left by the update before."""
    generators = {"rng_noise": "rng_c51_noise", "rng_target_noise": "rng_c51_target_noise"}
    drawn = Stage("rl_c51_both_noises", generators | {"noises": _NOISES[0], "n": _NOISE})
    return (*((drawn,) if noisy else map(Zero, _NOISES)), Stage("rl_c51_pack", {"noises": _NOISES[0]}))


def closing() -> tuple[Step, ...]:
    """Norms of the last update, and how far the target head is."""
    return (Stage("rl_critic_norms", {"tiles": _TILES, "nonfinite_parts": nonfinite_parts("critic")}),)


def launches(own: Update, again: Sequence[Step], quantiles: Sequence[Step]) -> tuple[Step, ...]:
    """The update whole.

    again: what encodes the batch anew, if anything. quantiles: the other head's launches, gradients included; none
    where there is no such head.
    """
    return (
        *(opening(noisy=own.noisy) if own.update == 0 else ()),
        Stage("rl_replay_path_batch" if own.path else "rl_replay_batch"),
        *again,
        _next_state(own),
        Stage("rl_per_weights"),
        *quantiles,
        _at_state(own),
        priorities(own),
        step(own, quantiles=bool(quantiles)),
        *(closing() if own.last else ()),
    )


def _next_state(own: Update) -> Stage:
    """Target distributions; the next noise and what decides the step come with them."""
    wide = own.rows >= WIDE_FROM
    width = 512 if wide else 704
    draws = own.noisy and not own.last
    return Stage(
        "rl_c51_next_wide_tf32" if wide else "rl_c51_next_tf32",
        {"next_h": own.batch.next_h, "next_prob": "c51_next_prob", "next_noises": own.next_noises, "n": _NOISE}
        | {"rng_noise": "rng_c51_noise", "rng_target_noise": "rng_c51_target_noise"}
        | {name: f"{name}_critic" for name in ("adam_step", "fault", "update_control")}
        | {"noise_blocks": f"(2*({_NOISE}) + {width - 1})/{width}" if draws else "0"}
        | {"tiles": _TILES, "fold": str(int(own.update > 0))}
        | ({"groups": "(R + 15)/16 if (R + 15)/16*P <= 117 else 117/P"} if wide else {}),
    )


def _at_state(own: Update) -> Stage:
    """Loss and parts of the gradients."""
    batch, targets = own.batch, ("path_return", "next_class") if own.path else ("next_lots", "reward")
    inputs = batch.remap("lots", "action", "discount", "terminal", "weight", *targets)
    return Stage(
        "rl_c51_path_update_tf32" if own.path else "rl_c51_executed_update_tf32",
        {name: buffer for name, buffer in inputs.items() if name != "rows"}
        | {"h": batch.h, "next_prob": "c51_next_prob", "row_gap": "c51_row_gap"}
        | {"groups": _GROUPS, "slices": _SLICES, "tiles_each": _EACH},
    )


def priorities(own: Update) -> Stage:
    """What the TD errors change: slots, priorities, the tree. The next batch needs no more of this update."""
    return Stage(
        "rl_critic_priorities",
        {"row_gap": "c51_row_gap", "groups": _GROUPS, "blocks": f"{_GROUPS}*{_SLICES}"}
        | {"blocks_done": "priorities_done", "learned": _PAIRS if own.path else "1", "update": str(own.update)},
    )


def step(own: Update, *, quantiles: bool = True) -> Stage:
    """Optimiser, the critic's own target copies, next weights. quantiles: the other head has gradients, too."""
    return Stage(
        "rl_critic_step",
        {name: f"{name}_critic" for name in ("params", "grads", "adam_m", "adam_v", "target_params", *_COUNTS)}
        | {"noises": own.noises, "next_noises": own.next_noises, "n_chunks": "N_CRITIC_CHUNKS"}
        | {"tiles": _TILES, "own_blocks": f"({_OTHERS} + 2047)/2048"}
        | {"slices": _SLICES, "blocks": f"{_GROUPS}*{_SLICES}", "iqn_blocks": iqn.SUM_BLOCKS if quantiles else "0"}
        | {"update": str(own.update), "compose": str(int(not own.last))},
    )
