"""Buffers of the data set and of the windows cut from it. N_SNAP snapshots, N_SESSIONS sessions, W = K + T."""

from __future__ import annotations

from foxhunt_cli.buffers.row import Buffer

ROWS = (
    Buffer("bid_px", "N_SNAP, N_LEVELS", "float32", "data", "ticks", "bid prices from the reference price, best first"),
    Buffer("bid_sz", "N_SNAP, N_LEVELS", "float32", "data", "lots", "bid sizes; 0 = absent level"),
    Buffer("ask_px", "N_SNAP, N_LEVELS", "float32", "data", "ticks", "ask prices from the reference price, best first"),
    Buffer("ask_sz", "N_SNAP, N_LEVELS", "float32", "data", "lots", "ask sizes; 0 = absent level"),
    Buffer("prev_mid", "N_SNAP", "float32", "data", "ticks", "mid of the previous snapshot"),
    Buffer("trade_signed_vol", "N_SNAP", "float32", "data", "lots", "signed volume traded since the previous snapshot"),
    Buffer("trade_count", "N_SNAP", "uint32", "data", "trades", "trades since the previous snapshot"),
    Buffer("ts_ns", "N_SNAP", "uint64", "data", "ns", "time of the snapshot"),
    Buffer("prev_ts_ns", "N_SNAP", "uint64", "data", "ns", "time of the previous snapshot"),
    Buffer("regime", "N_SNAP, N_REGIME", "float32", "data", "mixed", "causal regime fields"),
    Buffer("session_end", "N_SNAP", "int32", "data", "index", "one past the last snapshot of this snapshot's session"),
    Buffer("multires", "N_SNAP, MULTIRES_DIM", "float32", "data", "mixed", "multi-resolution features"),
    Buffer("frd_label", "N_SNAP, N_HORIZONS", "int8", "data", "bucket", "forward-return bucket; -1 = not realised"),
    Buffer("direction_label", "N_SNAP, N_HORIZONS", "int8", "data", "0/1", "mid up at the horizon; -1 = unknown"),
    Buffer("span_first", "N_SPANS", "int32", "data", "index", "first legal episode start of a session"),
    Buffer("span_cumulative", "N_SPANS + 1", "int32", "data", "starts", "legal starts before a span; the last = all"),
    Buffer("cursor", "B", "int32", "persistent", "index", "snapshot of environment step t = 0 of this iteration"),
    Buffer("episode_end", "B", "int32", "persistent", "index", "cursor at which the episode is over"),
    Buffer("new_episode", "B", "uint8", "iteration", "0/1", "the row drew a new start this iteration"),
    Buffer("rng_episode", "B", "uint32", "persistent", "state", "xorshift32 state of the episode draw"),
    Buffer("x", "W, B, ENCODER_INPUT_DIM", "float32", "iteration", "mixed", "encoder input; time is the slowest axis"),
    Buffer("x_next", "K, B, ENCODER_INPUT_DIM", "float32", "iteration", "mixed", "the window behind the step, T = 1"),
    Buffer("gap_next", "K, B", "float32", "iteration", "scaled log ms", "gap of that window"),
    Buffer("multires_state", "B, 18", "float64", "persistent", "mixed", "a row's own decayed sums"),
    Buffer("multires_row", "B, MULTIRES_DIM", "float32", "persistent", "mixed", "their multi-resolution features"),
    Buffer("frd_target", "T, B, N_HORIZONS", "int8", "iteration", "bucket", "frd_label of step t"),
    Buffer("direction_target", "T, B, N_HORIZONS", "int8", "iteration", "0/1", "direction_label of step t"),
)

# What the preparation of a data set needs and drops again; not part of a run (market/prepare.py).
SCRATCH = (
    Buffer("records", "BLOCK_RECORDS * 216", "uint8", "data", "bytes", "staging of one upload of records"),
    Buffer("session_first", "N_SESSIONS + 1", "int32", "data", "index", "first snapshot of a session; then N_SNAP"),
    Buffer("segment_first", "N_SEGMENTS + 1", "int32", "data", "index", "first snapshot of a segment; then N_SNAP"),
    Buffer("segment_restart", "N_SEGMENTS", "uint8", "data", "0/1", "the segment begins a session"),
    Buffer("segment_sum", "N_SEGMENTS, 18", "float64", "data", "mixed", "decayed sums of a segment alone"),
    Buffer("segment_decay", "N_SEGMENTS, 3", "float64", "data", "1", "decay over a whole segment, by time constant"),
    Buffer("segment_carry", "N_SEGMENTS, 18", "float64", "data", "mixed", "decayed sums before a segment"),
)
