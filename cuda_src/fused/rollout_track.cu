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
    HindsightTrade trade = {her_mids[b], her_entry[b],      her_peak[b],     her_side[b],
                            her_lots[b], her_peak_birth[b], her_peak_slot[b]};
    if (new_episode[b]) {
        trade.mids = 0;
        for (int j = 0; j < CLOSED_RING; ++j) closed_valid[(long long)b * CLOSED_RING + j] = 0;
    }
    const unsigned int clock = replay_state[REPLAY_CLOCK];
    const long long first = cursor[b];
#pragma unroll 8
    for (int t = 0; t < T; ++t) {
        const long long at = (long long)t * B + b;
        const HindsightEvent record =
            hindsight_track_row(&trade, book_mid(bid_px, ask_px, first + t + 1), position_after[at], closed[at] != 0,
                                clock + (unsigned int)t + 1u, her_mid_ring + (long long)b * MID_RING);
        event[at] = record.ends;
        event_entry[at] = record.entry;
        event_peak[at] = record.peak;
        event_side[at] = record.side;
        event_lots[at] = record.lots;
        event_pnl[at] = closed_trade_pnl_usd[at];
        event_peak_birth[at] = record.peak_birth;
        event_peak_slot[at] = record.peak_slot;
    }
    her_mids[b] = trade.mids;
    her_entry[b] = trade.entry;
    her_peak[b] = trade.peak;
    her_side[b] = trade.side;
    her_lots[b] = trade.lots;
    her_peak_birth[b] = trade.peak_birth;
    her_peak_slot[b] = trade.peak_slot;
}
