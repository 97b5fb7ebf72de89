// Hindsight's watch over all steps of an iteration in one kernel.
#include "hindsight/track.cuh"
#include "replay/replay.cuh"

// rl_rollout_track: mids, peak and size of the open trade; an event record where a trade closed; all T steps.
// launch: threads B, block 4
// chain: 0.4*T us
// fuses: rl_hindsight_track
// updates: her_mid_ring, her_mids, her_entry, her_peak, her_side, her_lots, her_peak_birth
// updates: her_peak_slot, closed_valid
// One thread a row, after the rollout. Parameters are those of rl_hindsight_track, with all T steps.
extern "C" __global__ void rl_rollout_track(
    const int* __restrict__ cursor, const float* __restrict__ bid_px, const float* __restrict__ ask_px,
    const unsigned char* __restrict__ new_episode, const int* __restrict__ position_after,
    const unsigned char* __restrict__ closed, const float* __restrict__ closed_trade_pnl_usd,
    const unsigned int* __restrict__ replay_state, float* __restrict__ her_mid_ring, int* __restrict__ her_mids,
    float* __restrict__ her_entry, float* __restrict__ her_peak, int* __restrict__ her_side,
    int* __restrict__ her_lots, unsigned int* __restrict__ her_peak_birth, unsigned int* __restrict__ her_peak_slot,
    unsigned char* __restrict__ closed_valid, unsigned char* __restrict__ event, float* __restrict__ event_entry,
    float* __restrict__ event_peak, int* __restrict__ event_side, int* __restrict__ event_lots,
    float* __restrict__ event_pnl, unsigned int* __restrict__ event_peak_birth,
    unsigned int* __restrict__ event_peak_slot, int T, int B) {
    const int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= B) return;
    const HindsightTrades trades = {her_mids, her_entry, her_peak, her_side, her_lots, her_peak_birth, her_peak_slot};
    const HindsightEvents events = {event,      event_entry, event_peak,       event_side,
                                    event_lots, event_pnl,   event_peak_birth, event_peak_slot};
    HindsightTrade trade = trades.load(b);
    if (new_episode[b]) hindsight_begin_row(&trade, closed_valid + (long long)b * CLOSED_RING);
    const unsigned int clock = replay_state[REPLAY_CLOCK];
    const long long first = cursor[b];
#pragma unroll 8
    for (int t = 0; t < T; ++t) {
        const long long at = (long long)t * B + b;
        const HindsightEvent record =
            hindsight_track_row(&trade, book_mid(bid_px, ask_px, first + t + 1), position_after[at], closed[at] != 0,
                                clock + (unsigned int)t + 1u, her_mid_ring + (long long)b * MID_RING);
        events.store(at, record, closed_trade_pnl_usd);
    }
    trades.store(b, trade);
}
