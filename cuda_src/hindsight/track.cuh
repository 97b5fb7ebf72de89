// Row of the kernels that watch open trades for hindsight: hindsight/track.cu, one step; fused/rollout_track.cu, all.
#pragma once
#include "env/book.cuh"
#include "hindsight/hindsight.cuh"

// The open trade of one row, carried from step to step.
struct HindsightTrade {
    int mids;
    float entry, peak;
    int side, lots;
    unsigned int peak_birth, peak_slot;
};

// Where the rows keep them: her_* [B].
struct HindsightTrades {
    int* mids;
    float *entry, *peak;
    int *side, *lots;
    unsigned int *peak_birth, *peak_slot;

    __device__ inline HindsightTrade load(int b) const {
        return {mids[b], entry[b], peak[b], side[b], lots[b], peak_birth[b], peak_slot[b]};
    }

    __device__ inline void store(int b, const HindsightTrade& trade) const {
        mids[b] = trade.mids;
        entry[b] = trade.entry;
        peak[b] = trade.peak;
        side[b] = trade.side;
        lots[b] = trade.lots;
        peak_birth[b] = trade.peak_birth;
        peak_slot[b] = trade.peak_slot;
    }
};

// A trade that closed, or (ends false) nothing of the kind.
struct HindsightEvent {
    bool ends;
    float entry, peak;
    int side, lots;
    unsigned int peak_birth, peak_slot;
};

// Where they are recorded, with the result of the trade (pnl): event_* [T,B].
struct HindsightEvents {
    unsigned char* ends;
    float *entry, *peak;
    int *side, *lots;
    float* pnl;
    unsigned int *peak_birth, *peak_slot;

    __device__ inline void store(long long at, const HindsightEvent& event, const float* pnl_usd) const {
        ends[at] = event.ends;
        entry[at] = event.entry;
        peak[at] = event.peak;
        side[at] = event.side;
        lots[at] = event.lots;
        pnl[at] = pnl_usd[at];
        peak_birth[at] = event.peak_birth;
        peak_slot[at] = event.peak_slot;
    }
};

// A new episode: no trade is open, and what closed before is forgotten (closed_valid [CLOSED_RING] of the row).
static __device__ inline void hindsight_begin_row(HindsightTrade* trade, unsigned char* closed_valid) {
    trade->mids = 0;
    for (int j = 0; j < CLOSED_RING; ++j) closed_valid[j] = 0;
}

// rl_hindsight_track, one row: the record of a close from the trade as it was, then the book behind the step. mid: of
// that book; birth: its clock; mid_ring [MID_RING] of the row.
static __device__ inline HindsightEvent hindsight_track_row(HindsightTrade* trade, float mid, int position, bool closed,
                                                            unsigned int birth, float* mid_ring) {
    HindsightEvent event = {closed && trade->mids > 0, trade->entry,      trade->peak,     trade->side,
                            trade->lots,               trade->peak_birth, trade->peak_slot};
    if (closed || position == 0) trade->mids = 0;
    if (position == 0) return event;
    int side = position > 0 ? 1 : -1, size = position * side;
    if (trade->mids == 0) {
        trade->side = side;
        trade->entry = mid;
        trade->lots = size;
    }
    mid_ring[trade->mids < MID_RING ? trade->mids : MID_RING - 1] = mid;
    if (trade->mids == 0 || (float)side * mid > (float)side * trade->peak) {
        trade->peak = mid;
        trade->peak_birth = birth;
        trade->peak_slot = NO_SLOT;
    }
    if (size > trade->lots) trade->lots = size;
    trade->mids += 1;
    return event;
}
