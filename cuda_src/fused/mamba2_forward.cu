// A Mamba-2 block between its two projections, forward, in one kernel: convolution, step sizes, scan, gate, norm.
//
// Does what mamba2_conv_forward, mamba2_dt_forward, mamba2_scan_forward and mamba2_norm_forward do (nets/mamba2.cu has
// the formulas), bit for bit; x, B, C, dt and decay stay on the chip. Bytes a token: 1,184 read, 512 written, and 516
// more where the backward follows.
// Shared memory: 11 kB, static. Edge cases as there: NaN and infinity pass through.
#include "fused/mamba2_row.cuh"

// s of the chunk: two channels a thread, the states of all earlier snapshots in registers.
static __device__ inline void scan_chunk(ScanTile<ROW_PER_THREAD>* state, const RowChunk& chunk,
                                         float (*past)[ROW_STRIDE], int n, int thread) {
    const int c = thread * ROW_PER_THREAD, head = c / MAMBA_HEAD_DIM;
    for (int i = 0; i < n; ++i) {
        scan_step<true>(state, chunk.decay[i][head], chunk.dt[i][head], chunk.bc[i], &chunk.x[i][c],
                        chunk.bc[i] + MAMBA_STATE, 1.0f, &past[i][c]);
    }
}

// KEEP: s and rstd are written for the backward.
template <bool KEEP>
static __device__ __forceinline__ void forward_row(const float* __restrict__ proj, const float* __restrict__ conv_w,
                                                   const float* __restrict__ conv_b,
                                                   const float* __restrict__ dt_bias,
                                                   const float* __restrict__ a_log, const float* __restrict__ skip,
                                                   const float* __restrict__ norm_w, float* __restrict__ s,
                                                   float* __restrict__ norm, float* __restrict__ rstd, int W, int B) {
    __shared__ RowChunk chunk;
    __shared__ float tile[ROW_CHUNK][ROW_STRIDE];  // s, then gated
    __shared__ float scale[ROW_CHUNK];
    const int b = (int)blockIdx.x, t = (int)threadIdx.x, head = t / MAMBA_HEAD_DIM;
    const bool channel = t < MAMBA_INNER;
    const float weight = channel ? norm_w[t] : 0.0f, through_skip = channel ? skip[head] : 0.0f;
    RowColumn column;
    row_taps(&column, conv_w, conv_b, t);
    for (int k = 0; k < ROW_BEFORE; ++k) column.in[ROW_CHUNK + k] = 0.0f;
    ScanTile<ROW_PER_THREAD> state;
    scan_clear(&state);
    for (int first = 0; first < W; first += ROW_CHUNK) {
        const int n = W - first < ROW_CHUNK ? W - first : ROW_CHUNK;
        float u[ROW_CHUNK];  // z, then gated
#pragma unroll
        for (int k = 0; k < ROW_BEFORE; ++k) column.in[k] = column.in[ROW_CHUNK + k];
#pragma unroll
        for (int i = 0; i < ROW_CHUNK; ++i) {
            column.in[ROW_BEFORE + i] = row_input(proj, first + i, W, b, B, t);
            u[i] = channel && i < n ? proj[((long long)(first + i) * B + b) * MAMBA_PROJ + t] : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < ROW_CHUNK; ++i) *row_convolved(&chunk, i, t) = lanes_silu(row_convolution(column, i));
        row_steps(&chunk, proj, dt_bias, a_log, first, n, b, B, t);
        __syncthreads();
        if (t < ROW_SCANNERS) scan_chunk(&state, chunk, tile, n, t);
        else if (t >= MAMBA_INNER && t - MAMBA_INNER < n) row_own(&chunk, t - MAMBA_INNER);
        __syncthreads();
        if (channel) {
#pragma unroll
            for (int i = 0; i < ROW_CHUNK; ++i) {
                if (i >= n) continue;
                const float past = tile[i][t], through = fmaf(chunk.dt[i][head], chunk.own[i], through_skip);
                if (KEEP) s[((long long)(first + i) * B + b) * MAMBA_INNER + t] = past;
                u[i] = fmaf(through, chunk.x[i][t], past) * lanes_silu(u[i]);
                tile[i][t] = u[i];
            }
        }
        __syncthreads();
        if (t < ROW_CHUNK * MAMBA_LANES) {
            const int i = t / MAMBA_LANES;
            const float square = row_sum<true>(tile, (const float*)0, i, t % MAMBA_LANES);
            const float r = 1.0f / sqrtf(square / MAMBA_INNER + MAMBA_NORM_EPS);
            scale[i] = r;
            if (KEEP && t % MAMBA_LANES == 0 && i < n) rstd[(long long)(first + i) * B + b] = r;
        }
        __syncthreads();
        if (channel) {
#pragma unroll
            for (int i = 0; i < ROW_CHUNK; ++i) {
                if (i < n) norm[((long long)(first + i) * B + b) * MAMBA_INNER + t] = u[i] * (scale[i] * weight);
            }
        }
    }
}

// mamba2_row_forward: a block between its projections; s and rstd stay for the backward.
// launch: blocks B, block 160
// fuses: mamba2_conv_forward, mamba2_dt_forward, mamba2_scan_forward, mamba2_norm_forward
// One block a row. proj [W, B, 296]; conv_w [4, 160]; conv_b [160]; dt_bias, a_log, skip [8]; norm_w [128];
// s, norm [W, B, 128]; rstd [W, B].
extern "C" __global__ void __launch_bounds__(ROW_THREADS, 4) mamba2_row_forward(
    const float* __restrict__ proj, const float* __restrict__ conv_w, const float* __restrict__ conv_b,
    const float* __restrict__ dt_bias, const float* __restrict__ a_log, const float* __restrict__ skip,
    const float* __restrict__ norm_w, float* __restrict__ s, float* __restrict__ norm, float* __restrict__ rstd, int W,
    int B) {
    forward_row<true>(proj, conv_w, conv_b, dt_bias, a_log, skip, norm_w, s, norm, rstd, W, B);
}

// mamba2_row_forward_only: the same where no backward follows.
// launch: blocks B, block 160
// fuses: mamba2_conv_forward, mamba2_dt_forward, mamba2_scan_forward, mamba2_norm_forward
// One block a row; parameters as above.
extern "C" __global__ void __launch_bounds__(ROW_THREADS, 4) mamba2_row_forward_only(
    const float* __restrict__ proj, const float* __restrict__ conv_w, const float* __restrict__ conv_b,
    const float* __restrict__ dt_bias, const float* __restrict__ a_log, const float* __restrict__ skip,
    const float* __restrict__ norm_w, float* __restrict__ norm, int W, int B) {
    forward_row<false>(proj, conv_w, conv_b, dt_bias, a_log, skip, norm_w, (float*)0, norm, (float*)0, W, B);
}
