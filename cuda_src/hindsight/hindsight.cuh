// What the hindsight kernels share: sizes of the rings, and the PnL that hindsight speaks of.
//
// Time is the replay's clock (replay.cuh): the state after step t of an iteration that begins at clock c has birth
// c + t + 1. Encodings of this iteration are not copied: they are named by their state t (h [T+1,B,128]) until
// rl_hindsight_keep stores those that a later iteration needs. "Candidates" are [2,T,B]: backward, then forward.
#pragma once
#include "generated/isv_slots.cuh"
#include "generated/structure.cuh"

#define MID_RING 512           // mids of the open trade; later ones share the last place
#define CLOSED_RING 8          // closed trades a row remembers
#define NO_SLOT 0xffffffffu    // the moment is not known to be in the replay

#define LABEL_CLOSE 0
#define LABEL_PEAK 1
#define LABEL_PATH 2

#define FIRE_NO 0
#define FIRE_YES 1
#define FIRE_NO_COPY 2  // would fire, but its moment can no longer be copied

static __device__ inline int hindsight_label(const float* isv) { return (int)rintf(isv[ISV_HINDSIGHT_LABEL]); }

// Net PnL in USD of `lots` lots that made `ticks` ticks each: one fee a side.
static __device__ inline float round_trip_usd(float ticks, int lots, float tick_value_usd, float fee_usd) {
    return (ticks * tick_value_usd - 2.0f * fee_usd) * (float)lots;
}

// Backward: the best moment of the trade was worth more than `threshold` times what the trade made or lost.
static __device__ inline bool backward_fires(float peak_pnl, float trade_pnl, float threshold) {
    return peak_pnl > 0.0f && peak_pnl > fabsf(trade_pnl) * threshold;
}

// Forward: holding on would have made more than threshold x a win, or more than a loss by (threshold - 1) of its size.
static __device__ inline bool forward_fires(float forward_pnl, float trade_pnl, float threshold) {
    float bar = trade_pnl >= 0.0f ? trade_pnl * threshold : trade_pnl + fabsf(trade_pnl) * (threshold - 1.0f);
    return forward_pnl > bar;
}
