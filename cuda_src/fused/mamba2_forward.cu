// A Mamba-2 block between its two projections, forward, in one kernel: convolution, step sizes, scan, gate, norm.
//
// Does what mamba2_conv_forward, mamba2_dt_forward, mamba2_scan_forward and mamba2_norm_forward do (nets/mamba2.cuh has
// the formulas), bit for bit; x, B, C, dt and decay stay on the chip. Bytes a token: 1,184 read, 512 written, and 516
// more where the backward follows.
// Thread mapping: mamba2_pipeline.cuh. Five warps convolve, a thread a column; four scan, a thread a channel with its 16
// states; two gate and normalise, eight threads a snapshot, 16 channels each.
// Shared memory: 28 kB, static. Edge cases as in nets/mamba2.cuh: NaN and infinity pass through.
#include "fused/mamba2_pipeline.cuh"

#define FORWARD_PER_THREAD 1                                        // channels of a scanning thread
#define FORWARD_SCANNERS (MAMBA_INNER / FORWARD_PER_THREAD)
#define FORWARD_THREADS (MAMBA_XBC + FORWARD_SCANNERS + ROW_LANES)
#define FORWARD_STAGES(W) (row_chunks(W) + 2)

struct ForwardArrays {
    const float *proj, *conv_w, *conv_b, *dt_bias, *a_log, *skip, *norm_w;
    float *s, *norm, *rstd;
    int W, B;
};

struct ForwardShared {
    RowTile tile[ROW_RING];
    float past[2][ROW_CHUNK][ROW_STRIDE];  // s
    float skip[MAMBA_HEADS], norm_w[MAMBA_INNER];
};

// Stage k convolves column c of chunk k.
static __device__ __forceinline__ void convolve(const ForwardArrays& a, ForwardShared* row, int c) {
    const RowTaps taps = row_taps(a.conv_w, a.conv_b, c);
    RowInputs inputs;
    row_load_first(&inputs, a.proj, a.W, a.B, c);
    for (int stage = 0; stage < FORWARD_STAGES(a.W); ++stage) {
        if (row_span(stage, a.W).n) {
            row_convolve(&row->tile[stage % ROW_RING], taps, inputs, a.dt_bias, a.a_log, c);
            row_load_next(&inputs, a.proj, row_span(stage + 1, a.W), a.B, c);
        }
        row_barrier();
    }
}

// Stage k scans chunk k - 1 in a thread's channels.
static __device__ __forceinline__ void scan(const ForwardArrays& a, ForwardShared* row, int thread) {
    const int c = thread * FORWARD_PER_THREAD, head = c / MAMBA_HEAD_DIM;
    ScanTile<FORWARD_PER_THREAD> states;
    scan_clear(&states);
    for (int stage = 0; stage < FORWARD_STAGES(a.W); ++stage) {
        const RowTile& tile = row->tile[(stage + ROW_RING - 1) % ROW_RING];
        const int n = row_span(stage - 1, a.W).n;
        for (int i = 0; i < n; ++i) {
            const float* at = tile.xbc[i];
            row_scan<true>(&states, tile.step[i][head].decay, tile.step[i][head].dt, at + MAMBA_B_COLUMN, at + c,
                           at + MAMBA_C_COLUMN, 1.0f, &row->past[stage & 1][i][c]);
        }
        row_barrier();
    }
}

// Loads z of snapshot i in channels l, l + 8, ...
static __device__ inline void load_gate(float* z, const ForwardArrays& a, RowSpan span, int i, int l) {
    if (i >= span.n) return;
    const float* from = a.proj + row_at(span.first + i, a.B, MAMBA_PROJ) + l;
#pragma unroll
    for (int k = 0; k < ROW_EIGHTHS; ++k) z[k] = from[k * MAMBA_LANES];
}

// Skip connection, gate and norm of snapshot i of a chunk in channels l, l + 8, ...
template <bool KEEP>
static __device__ inline void normalise_chunk(const ForwardArrays& a, const ForwardShared& row, const RowTile& tile,
                                              const float (*past)[ROW_STRIDE], float* z, RowSpan span, int i, int l) {
    const float own = row_own(tile.xbc[i], l);
    float* u = z;
    float square = 0.0f;
#pragma unroll
    for (int k = 0; k < ROW_EIGHTHS; ++k) {
        const int c = k * MAMBA_LANES + l, head = k * MAMBA_LANES / MAMBA_HEAD_DIM;
        const float through = fmaf(tile.step[i][head].dt, own, row.skip[head]);
        u[k] = fmaf(through, tile.xbc[i][c], past[i][c]) * lanes_silu(z[k]);
        square = fmaf(u[k], u[k], square);
    }
    const float r = 1.0f / sqrtf(group_sum<MAMBA_LANES>(square) / MAMBA_INNER + MAMBA_NORM_EPS);
    if (i >= span.n) return;
    const long long at = row_at(span.first + i, a.B, MAMBA_INNER) + l;
#pragma unroll
    for (int k = 0; k < ROW_EIGHTHS; ++k) {
        const int c = k * MAMBA_LANES;
        a.norm[at + c] = u[k] * (r * row.norm_w[c + l]);
        if (KEEP) a.s[at + c] = past[i][c + l];
    }
    if (KEEP && l == 0) a.rstd[row_at(span.first + i, a.B, 1)] = r;
}

// Stage k gates and normalises chunk k - 2.
template <bool KEEP>
static __device__ __forceinline__ void normalise(const ForwardArrays& a, const ForwardShared& row, int thread) {
    const int i = thread / MAMBA_LANES, l = thread % MAMBA_LANES;
    float z[ROW_EIGHTHS];
    for (int stage = 0; stage < FORWARD_STAGES(a.W); ++stage) {
        if (stage >= 2) {
            normalise_chunk<KEEP>(a, row, row.tile[(stage + 1) % ROW_RING], row.past[(stage + 1) & 1], z,
                                  row_span(stage - 2, a.W), i, l);
        }
        load_gate(z, a, row_span(stage - 1, a.W), i, l);
        row_barrier();
    }
}

// KEEP: s and rstd are written for the backward.
template <bool KEEP>
static __device__ __forceinline__ void forward_row(const ForwardArrays& a) {
    __shared__ ForwardShared row;
    const int t = (int)threadIdx.x;
    if (t < MAMBA_INNER) row.norm_w[t] = a.norm_w[t];
    if (t < MAMBA_HEADS) row.skip[t] = a.skip[t];
    if (t < MAMBA_XBC) convolve(a, &row, t);
    else if (t < MAMBA_XBC + FORWARD_SCANNERS) scan(a, &row, t - MAMBA_XBC);
    else normalise<KEEP>(a, row, t - MAMBA_XBC - FORWARD_SCANNERS);
}

// mamba2_row_forward: a block between its projections; s and rstd stay for the backward.
// launch: blocks B, block 352
// fuses: mamba2_conv_forward, mamba2_dt_forward, mamba2_scan_forward, mamba2_norm_forward
// One block a row. proj [W, B, 296]; conv_w [4, 160]; conv_b [160]; dt_bias, a_log, skip [8]; norm_w [128];
// s, norm [W, B, 128]; rstd [W, B].
extern "C" __global__ void __launch_bounds__(FORWARD_THREADS, 3) mamba2_row_forward(
    const float* __restrict__ proj, const float* __restrict__ conv_w, const float* __restrict__ conv_b,
    const float* __restrict__ dt_bias, const float* __restrict__ a_log, const float* __restrict__ skip,
    const float* __restrict__ norm_w, float* __restrict__ s, float* __restrict__ norm, float* __restrict__ rstd, int W,
    int B) {
    forward_row<true>({proj, conv_w, conv_b, dt_bias, a_log, skip, norm_w, s, norm, rstd, W, B});
}

// mamba2_row_forward_only: mamba2_row_forward where no backward follows.
// launch: blocks B, block 352
// fuses: mamba2_conv_forward, mamba2_dt_forward, mamba2_scan_forward, mamba2_norm_forward
// One block a row; parameters are those of mamba2_row_forward.
extern "C" __global__ void __launch_bounds__(FORWARD_THREADS, 3) mamba2_row_forward_only(
    const float* __restrict__ proj, const float* __restrict__ conv_w, const float* __restrict__ conv_b,
    const float* __restrict__ dt_bias, const float* __restrict__ a_log, const float* __restrict__ skip,
    const float* __restrict__ norm_w, float* __restrict__ norm, int W, int B) {
    forward_row<false>({proj, conv_w, conv_b, dt_bias, a_log, skip, norm_w, (float*)0, norm, (float*)0, W, B});
}
