// A Mamba-2 block without its two projections: convolution, selective scan, gated normalisation; both directions.
//
// Source: Dao and Gu 2024 (Mamba-2, state space duality), scalar decay a head, one group of B and C.
//   pre  = causal depthwise convolution of (x, B, C), width 4, with bias;   (x, B, C) = SiLU(pre)
//   dt   = softplus(dt_raw + dt_bias),   decay = exp(-exp(a_log) dt)                       per head
//   S_w  = decay_w S_{w-1} + dt_w x_w B_w^T,   S_{-1} = 0                                  16 x 16 a head
//   y_w  = S_w C_w + skip x_w = s_w + through_w x_w:   s_w = decay_w S_{w-1} C_w is what the past contributes,
//          through = skip + dt (B C) what x contributes in its own snapshot
//   u    = y SiLU(z),   norm = u / sqrt(mean u^2 + eps) norm_w
// Layout: token = w B + b, time slowest. Backward kernels are launched with W = the snapshots that carry gradient
// (the bootstrap snapshot at the end carries none); all arrays keep their layout because time is slowest.
// No state is kept for the backward: one scan forward in time rebuilds S for dC, scans backward in time carry
//   G_w = dL/dS_w = dy_w C_w^T + decay_{w+1} G_{w+1};   r_w = decay_{w+1} G_{w+1} B_w is what the future wants of dt x.
// The gradient of the decay needs neither: with l = log decay, dL/dl_w = decay_w <G_w, S_{w-1}> obeys
//   dL/dl_w = dL/dl_{w+1} + <dy_w, s_w> - dt_w <x_w, r_w>
// (<G_w, S_w> expanded at w and at w+1; the snapshot's own term dt <dy, x> (B C) is on both sides and is left out,
// which keeps the difference free of cancellation where the decay is small).
// Thread mappings keep one thread on one chain of states, so that nothing is shared and no barrier is needed.
// Edge cases: NaN and infinity pass through. A decay that underflows to 0 forgets the past; its gradient is 0.
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

// Input of column c (of x, B, C) at snapshot `from` of row b; 0 before the window. The address is always legal.
static __device__ inline float conv_input(const float* proj, int from, int b, int B, int c) {
    const long long token = (long long)(from < 0 ? 0 : from) * B + b;
    const float v = proj[token * MAMBA_PROJ + MAMBA_XBC_COLUMN + c];
    return from < 0 ? 0.0f : v;
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
