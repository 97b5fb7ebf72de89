"""Buffers of the replay: the store, its tree, pending moments, a sampled batch, hindsight.

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
    Buffer("push_offset", "T, B", "int32", "iteration", "slots", "transitions before the first, of the step's 32 rows"),
    Buffer("push_base", "T, (B+31)//32", "int32", "data", "slots", "transitions before the first of a step's 32 rows"),
)

_SAMPLE = (
    Buffer("rng_replay", "R", "uint32", "persistent", "state", "xorshift32 state of a stratum"),
    _batch("sample_slot", "uint32", "slot", "slot drawn"),
    _batch("sample_priority", "float32", "priority", "its leaf when it was drawn"),
    _batch("new_priority", "float32", "priority", "priority after the update; 0 = its TD error was not finite"),
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
    _batch("critic_grad_h", "float32", "1", "gradient of the critic's loss, for the encoder", ", HIDDEN_DIM"),
    Buffer("next_class", "P, N_ACTIONS", "int8", "iteration", "class", "class after each action from each class"),
)


def _trade(name: str, dtype: str, unit: str, meaning: str, width: str = "") -> Buffer:
    return Buffer(f"her_{name}", "B" + width, dtype, "persistent", unit, meaning)


def _event(name: str, dtype: str, unit: str, meaning: str) -> Buffer:
    return Buffer(name, "T, B", dtype, "iteration", unit, meaning)


def _closed(name: str, dtype: str, unit: str, meaning: str, width: str = "") -> Buffer:
    return Buffer(f"closed_{name}", "B, 8" + width, dtype, "persistent", unit, meaning)


def _candidate(name: str, dtype: str, unit: str, meaning: str) -> Buffer:
    return Buffer(name, "2, T, B", dtype, "iteration", unit, meaning)


_HINDSIGHT = (
    _trade("mid_ring", "float32", "ticks", "mids of the open trade; from the 512th on the last place", ", 512"),
    _trade("mids", "int32", "steps", "mids seen of the open trade; 0 = none open"),
    _trade("entry", "float32", "ticks", "mid of the trade's first step"),
    _trade("peak", "float32", "ticks", "best mid: maximum of a long, minimum of a short"),
    _trade("side", "int32", "-1/1", "side of the trade"),
    _trade("lots", "int32", "lots", "its largest |position|"),
    _trade("peak_birth", "uint32", "steps", "clock of the peak"),
    _trade("peak_slot", "uint32", "slot", "replay slot of the peak's moment; 2^32 - 1 = none known"),
    _trade("peak_h", "float32", "1", "critic features at the peak, of earlier iterations", ", HIDDEN_DIM"),
    _event("event", "uint8", "0/1", "a trade closed at step t"),
    _event("event_entry", "float32", "ticks", "its first mid"),
    _event("event_peak", "float32", "ticks", "its best mid"),
    _event("event_side", "int32", "-1/1", "its side"),
    _event("event_lots", "int32", "lots", "its largest |position|"),
    _event("event_pnl", "float32", "USD", "its net PnL"),
    _event("event_peak_birth", "uint32", "steps", "clock of its peak"),
    _event("event_peak_slot", "uint32", "slot", "replay slot of the peak's moment"),
    _closed("valid", "uint8", "0/1", "the entry waits for its lookahead"),
    _closed("entry", "float32", "ticks", "first mid of the trade"),
    _closed("birth", "uint32", "steps", "clock of the close"),
    _closed("side", "int32", "-1/1", "side of the trade"),
    _closed("lots", "int32", "lots", "its largest |position|"),
    _closed("pnl", "float32", "USD", "its net PnL"),
    _closed("slot", "uint32", "slot", "replay slot of the moment of the close"),
    _closed("held", "int32", "lots", "position before the close"),
    _closed("after", "int32", "lots", "position after it"),
    _closed("action", "int8", "action", "action executed at the close"),
    _closed("h", "float32", "1", "critic features at the close", ", HIDDEN_DIM"),
    Buffer("closed_next", "B", "uint32", "persistent", "place", "place of the next close in the row's ring"),
    _candidate("candidate_fire", "uint8", "code", "0 no, 1 fires, 2 fires but its moment is lost"),
    _candidate("candidate_usd", "float32", "USD", "PnL that labels 0 and 1 assert"),
    _candidate("candidate_birth", "uint32", "steps", "clock of the moment"),
    _candidate("candidate_slot", "uint32", "slot", "slot to copy; 2^32 - 1 = build from encodings"),
    _candidate("candidate_n", "int32", "steps", "length of the window"),
    _candidate("candidate_lots", "int8", "lots", "signed position at the moment"),
    _candidate("candidate_action", "int8", "action", "action of the transition"),
    _candidate("candidate_state", "int32", "state", "state of h in this iteration; negative = stored"),
    _candidate("injected_at", "int32", "1", "number of the injection among the step's 32 rows; -1 = none"),
    Buffer(
        "injected_base", "2, T, (B+31)//32", "int32", "data", "1", "injections before the first of a step's 32 rows"
    ),
)

ROWS = (*_STORE, *_PUSH, *_SAMPLE, *_HINDSIGHT)
