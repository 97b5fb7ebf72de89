"""Buffers of the replay: the store, its tree, the pending moments, a sampled batch.

C = capacity (a power of two), R = rows of a replay batch.
"""

from __future__ import annotations

from foxhunt_cli.buffers.row import Buffer


def _store(name: str, dtype: str, unit: str, meaning: str, width: str = "") -> Buffer:
    return Buffer(f"store_{name}", "C" + width, dtype, "persistent", unit, meaning)


def _batch(name: str, dtype: str, unit: str, meaning: str, width: str = "") -> Buffer:
    return Buffer(name, "R" + width, dtype, "iteration", unit, meaning)


_STORE = (
    _store("h", "float32", "1", "critic features at the moment", ", HIDDEN_DIM"),
    _store("next_h", "float32", "1", "critic features n steps later", ", HIDDEN_DIM"),
    _store("index", "uint32", "index", "snapshot of the moment in the data"),
    _store("n", "uint16", "steps", "length of the window"),
    _store("lots", "int8", "lots", "signed position at the moment"),
    _store("next_lots", "int8", "lots", "signed position n steps later"),
    _store("action", "int8", "action", "executed action"),
    _store("return", "float32", "scaled", "n-step return of the executed action"),
    _store("discount", "float32", "1", "gamma^n when it was written"),
    _store("terminal", "uint8", "0/1", "no bootstrap at the end of the window"),
    _store("source", "uint8", "code", "0 real, 1 backward hindsight, 2 forward hindsight"),
    _store("birth", "uint32", "steps", "clock of the moment"),
    _store("row", "uint32", "row", "row the moment belongs to"),
)

_PUSH = (
    Buffer("per_tree", "2*C", "float32", "persistent", "priority", "sum tree: root 1, leaf of slot i at C + i"),
    Buffer(
        "replay_state", "8", "uint32", "persistent", "mixed", "head, size, synthetic, start, pushed, clock, injected"
    ),
    Buffer("pending_moments", "B", "uint8", "persistent", "moments", "moments of the row without their n-th successor"),
    Buffer("pending_h", "32, B, HIDDEN_DIM", "float32", "persistent", "1", "their critic features, at birth mod 32"),
    Buffer("pending_reward", "32, B", "float32", "persistent", "scaled", "their rewards"),
    Buffer("pending_lots", "32, B", "int8", "persistent", "lots", "their signed positions"),
    Buffer("pending_action", "32, B", "int8", "persistent", "action", "their executed actions"),
    Buffer("push_pending", "T, B", "uint8", "iteration", "moments", "moments pending once step t is over"),
    Buffer("push_count", "T, B", "uint8", "iteration", "moments", "those of them that step t completes"),
    Buffer("push_offset", "T, B", "int32", "iteration", "slots", "transitions before the first of them"),
)

_SAMPLE = (
    Buffer("rng_replay", "R", "uint32", "persistent", "state", "xorshift32 state of a stratum"),
    _batch("sample_slot", "uint32", "slot", "slot drawn"),
    _batch("sample_priority", "float32", "priority", "its leaf when it was drawn"),
    _batch("is_weight", "float32", "1", "importance weight, at most 1"),
    _batch("replay_h", "float32", "1", "critic features at the moment", ", HIDDEN_DIM"),
    _batch("replay_next_h", "float32", "1", "critic features n steps later", ", HIDDEN_DIM"),
    _batch("replay_index", "uint32", "index", "snapshot of the moment in the data"),
    _batch("replay_n", "uint16", "steps", "length of the window"),
    _batch("replay_lots", "int8", "lots", "signed position at the moment"),
    _batch("replay_next_lots", "int8", "lots", "signed position n steps later"),
    _batch("replay_action", "int8", "action", "executed action"),
    _batch("replay_reward", "float32", "scaled", "n-step return of the executed action"),
    _batch("replay_discount", "float32", "1", "gamma^n when it was written"),
    _batch("replay_terminal", "uint8", "0/1", "no bootstrap at the end of the window"),
    _batch("path_return", "float32", "scaled", "R(p, a) of every class and action", ", P*N_ACTIONS"),
    _batch("path_discount", "float32", "1", "gamma^n of now"),
    Buffer("next_class", "P, N_ACTIONS", "int8", "iteration", "class", "class after each action from each class"),
)

ROWS = (*_STORE, *_PUSH, *_SAMPLE)
