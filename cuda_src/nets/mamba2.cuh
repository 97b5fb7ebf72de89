// Shapes of a Mamba-2 block and the functions its kernels share.
//
// A token's in-projection holds five parts side by side: gate z, then the convolved x, B, C, then one dt a head.
// B and C (the input and output maps of the state) are shared by all heads.
#pragma once
#include "generated/structure.cuh"
#include "include/math.cuh"
#include "nets/lanes.cuh"

#define MAMBA_INNER HIDDEN_DIM                              // channels of z, x and y
#define MAMBA_HEADS 8                                       // heads: one step size and one decay each
#define MAMBA_HEAD_DIM 16                                   // channels of a head
#define MAMBA_STATE 16                                      // state size of a channel
#define MAMBA_TAPS 4                                        // width of the causal convolution, snapshots
#define MAMBA_XBC (MAMBA_INNER + 2 * MAMBA_STATE)           // convolved columns: x, B, C
#define MAMBA_PROJ (MAMBA_INNER + MAMBA_XBC + MAMBA_HEADS)  // columns of the in-projection
#define MAMBA_XBC_COLUMN MAMBA_INNER                        // first convolved column
#define MAMBA_DT_COLUMN (MAMBA_INNER + MAMBA_XBC)           // first dt column
#define MAMBA_B_COLUMN MAMBA_INNER                          // first column of B within x, B, C
#define MAMBA_C_COLUMN (MAMBA_INNER + MAMBA_STATE)          // first column of C within x, B, C
#define MAMBA_NORM_EPS 1e-5f                                // under the root of the mean square
#define MAMBA_LANES 8                                       // columns of one thread: a vector register, a memory sector
#define MAMBA_GROUPS (MAMBA_INNER / MAMBA_LANES)            // threads that share the 128 channels of a row

// sum of the eight partial sums, pairwise.
static __device__ inline float mamba_sum_lanes(float* lane) {
    for (int l = 0; l < 4; ++l) lane[l] += lane[l + 4];
    return (lane[0] + lane[2]) + (lane[1] + lane[3]);
}

// sum_n a[n] b[n] over 16 elements, in eight partial sums.
static __device__ inline float mamba_dot16(const float* a, const float* b) {
    float lane[MAMBA_LANES];
    for (int l = 0; l < MAMBA_LANES; ++l) lane[l] = a[l] * b[l];
    for (int l = 0; l < MAMBA_LANES; ++l) lane[l] = fmaf(a[l + MAMBA_LANES], b[l + MAMBA_LANES], lane[l]);
    return mamba_sum_lanes(lane);
}

// B C of a token, xbc: its row. y = s + (skip + dt (B C)) x.
static __device__ inline float mamba_own(const float* xbc) {
    return mamba_dot16(xbc + MAMBA_B_COLUMN, xbc + MAMBA_C_COLUMN);
}

// A tile of a head's states: 16 rows that are summed over, COLUMNS columns that a thread owns.
template <int COLUMNS = MAMBA_LANES>
struct ScanTile {
    float v[16][COLUMNS];
};

template <int COLUMNS>
static __device__ inline void scan_clear(ScanTile<COLUMNS>* tile) {
    for (int n = 0; n < 16; ++n) {
        for (int l = 0; l < COLUMNS; ++l) tile->v[n][l] = 0.0f;
    }
}

// One snapshot of a scan: past = decay tile, tile = past + row column^T; then out = out_scale tile^T reader, or past^T
// reader where PAST_ONLY. Rows are summed in order. Columns outside, rows inside: so the CPU device's compiler keeps
// eight columns in one vector register.
template <bool PAST_ONLY, int COLUMNS>
static __device__ inline void scan_step(ScanTile<COLUMNS>* __restrict__ tile, float decay, float scale,
                                        const float* __restrict__ row, const float* __restrict__ column,
                                        const float* __restrict__ reader, float out_scale, float* __restrict__ out) {
    for (int l = 0; l < COLUMNS; ++l) {
        const float input = scale * column[l];
        float sum = 0.0f;
        for (int n = 0; n < 16; ++n) {
            const float past = decay * tile->v[n][l];
            const float now = fmaf(input, row[n], past);
            tile->v[n][l] = now;
            sum = fmaf(PAST_ONLY ? past : now, reader[n], sum);
        }
        out[l] = out_scale * sum;
    }
}
