// What both passes of the fused backward of a Mamba-2 block share: its arrays and its shared memory.
#pragma once
#include "fused/mamba2_pipeline.cuh"

#define BACK_PER_THREAD 2                                // channels or state columns of a scanning thread
#define BACK_SCANNERS (MAMBA_INNER / BACK_PER_THREAD)    // threads of a scan
#define BACK_NORMS (2 * ROW_LANES)                       // threads of the norm: sixteen a snapshot, eight channels each
#define BACK_CHANNELS (ROW_EIGHTHS / 2)
#define BACK_THREADS (MAMBA_XBC + BACK_NORMS + BACK_SCANNERS)
#define BACK_STRIDE (MAMBA_INNER + MAMBA_STATE + 4)      // dy and dC of a snapshot; 8 snapshots x 16 bytes, 32 banks
#define BACK_STAGES(W) (row_chunks(W) + 3)

// What the kernel reads and writes; W counts the snapshots that carry gradient.
struct BackArrays {
    const float *proj, *s, *rstd, *conv_w, *conv_b, *dt_bias, *a_log, *skip, *norm_w;
    float *grad, *grad_proj, *grad_c, *parts;
    int W, B;
};

// Of a head of a snapshot, towards the gradient of its step size.
struct StepTerms {
    float skip;     // <dy, x>
    float decayed;  // summand of the log decay's gradient
    float direct;   // what does not go through the decay
    float rated;    // -exp(a_log) dt
    float slope;    // d dt / d dt_raw
};

// maps: gradients of C in the first pass, of B in the second, one part a head. later: parts of the norm weights'
// gradient in the first pass, what the future wants of dt x in the second.
struct BackShared {
    RowTile tile[ROW_RING];
    alignas(16) float dy[ROW_RING][ROW_CHUNK][BACK_STRIDE];
    alignas(16) float later[2][ROW_CHUNK][BACK_STRIDE];
    float maps[2][ROW_CHUNK][MAMBA_INNER];
    StepTerms terms[2][ROW_CHUNK][MAMBA_HEADS];
    float own[ROW_RING][ROW_CHUNK];
    float skip[MAMBA_HEADS], norm_w[MAMBA_INNER];
};

typedef ScanTile<BACK_PER_THREAD> BackTile;

// Sum of a snapshot's maps over the heads, in one column of the state.
static __device__ inline float sum_heads(const float* maps, int state) {
    float sum = 0.0f;
#pragma unroll
    for (int head = 0; head < MAMBA_HEADS; ++head) sum += maps[head * MAMBA_STATE + state];
    return sum;
}
