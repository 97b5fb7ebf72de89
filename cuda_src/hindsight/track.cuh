// Row of the kernel in track.cu: the open trade as hindsight remembers it.
#pragma once
#include "env/book.cuh"
#include "hindsight/hindsight.cuh"

// What is carried from step to step; her_* of one row.
struct HindsightTrade {
    int mids;
    float entry, peak;
    int side, lots;
    unsigned int peak_birth, peak_slot;
};

// A trade that closed; event_* of one row and step.
struct HindsightEvent {
    bool ends;
    float entry, peak;
    int side, lots;
    unsigned int peak_birth, peak_slot;
};

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
