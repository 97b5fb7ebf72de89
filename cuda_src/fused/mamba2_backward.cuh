// What both passes of the fused backward of a Mamba-2 block share.
#pragma once
#include "fused/mamba2_pipeline.cuh"

#define BACK_PER_THREAD 2                                // channels or state columns of a scanning thread
#define BACK_SCANNERS (MAMBA_INNER / BACK_PER_THREAD)    // threads of a scan
#define BACK_NORMS (2 * ROW_LANES)                       // threads of the norm: sixteen a snapshot, eight channels each
#define BACK_CHANNELS (ROW_EIGHTHS / 2)
#define BACK_THREADS (MAMBA_XBC + BACK_NORMS + BACK_SCANNERS)
#define BACK_STRIDE (MAMBA_INNER + MAMBA_STATE + 4)      // dy and dC of a snapshot; 8 snapshots x 16 bytes, 32 banks
#define BACK_STAGES(W) (row_chunks(W) + 3)

typedef ScanTile<BACK_PER_THREAD> BackTile;

// Sum of a snapshot's maps over the heads, in one column of the state.
static __device__ inline float sum_heads(const float* maps, int state) {
    float sum = 0.0f;
#pragma unroll
    for (int head = 0; head < MAMBA_HEADS; ++head) sum += maps[head * MAMBA_STATE + state];
    return sum;
}
