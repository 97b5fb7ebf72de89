// A Mamba-2 block row by row: what the fused kernels share.
//
// A block of threads owns one row and walks its snapshots in chunks of ROW_CHUNK, which bounds shared memory for every
// length of a window. Thread t owns the convolved column t (of x, B, C); the first 128 threads own a channel of z, s and
// norm as well, the first 64 the states of two channels. Global memory is read and written a channel a thread, so every
// access of a warp is one line. The arithmetic is that of nets/mamba2.cu, operation by operation: the same bits.
#pragma once
#include "include/reduce.cuh"
#include "nets/mamba2.cuh"

#define ROW_THREADS MAMBA_XBC
#define ROW_CHUNK 8                      // snapshots at a time; 8 threads a snapshot sum over channels
#define ROW_STRIDE (MAMBA_INNER + 4)     // floats between snapshots in shared memory: 8 snapshots fill the 32 banks
#define ROW_PER_THREAD 2                 // channels or state columns of a scanning thread
#define ROW_SCANNERS (MAMBA_INNER / ROW_PER_THREAD)
#define ROW_BEFORE (MAMBA_TAPS - 1)      // inputs of the convolution before a chunk

// A row's parts of the small gradients, one line a row: taps [4, 160], their bias, dt_bias, a_log, skip, norm_w.
#define ROW_PART_BIAS (MAMBA_TAPS * MAMBA_XBC)
#define ROW_PART_DT (ROW_PART_BIAS + MAMBA_XBC)
#define ROW_PART_A_LOG (ROW_PART_DT + MAMBA_HEADS)
#define ROW_PART_SKIP (ROW_PART_A_LOG + MAMBA_HEADS)
#define ROW_PART_NORM (ROW_PART_SKIP + MAMBA_HEADS)
#define ROW_PARTS (ROW_PART_NORM + MAMBA_INNER)

// What the scans of a chunk read.
struct RowChunk {
    alignas(16) float x[ROW_CHUNK][ROW_STRIDE];
    alignas(16) float bc[ROW_CHUNK][2 * MAMBA_STATE];
    float dt[ROW_CHUNK][MAMBA_HEADS], decay[ROW_CHUNK][MAMBA_HEADS];
    float own[ROW_CHUNK];  // B C of a snapshot
};

// A column of the convolution: its taps and its inputs from three snapshots before the chunk to the chunk's last.
struct RowColumn {
    float taps[MAMBA_TAPS], bias;
    float in[ROW_BEFORE + ROW_CHUNK];
};

static __device__ inline void row_taps(RowColumn* column, const float* conv_w, const float* conv_b, int c) {
    for (int k = 0; k < MAMBA_TAPS; ++k) column->taps[k] = conv_w[k * MAMBA_XBC + c];
    column->bias = conv_b[c];
}

// Input of column c at snapshot w: 0 before the window, the last snapshot's behind it (never used). Always legal.
static __device__ inline float row_input(const float* proj, int w, int W, int b, int B, int c) {
    const int at = w < 0 ? 0 : (w < W ? w : W - 1);
    const float v = proj[((long long)at * B + b) * MAMBA_PROJ + MAMBA_XBC_COLUMN + c];
    return w < 0 ? 0.0f : v;
}

// The convolution at the chunk's snapshot i, before SiLU.
static __device__ inline float row_convolution(const RowColumn& column, int i) {
    float v = column.bias;
#pragma unroll
    for (int k = 0; k < MAMBA_TAPS; ++k) v = fmaf(column.taps[k], column.in[i + k], v);
    return v;
}

// Where column c of snapshot i goes in the chunk.
static __device__ inline float* row_convolved(RowChunk* chunk, int i, int c) {
    return c < MAMBA_INNER ? &chunk->x[i][c] : &chunk->bc[i][c - MAMBA_INNER];
}

// Step sizes and decays of the chunk's n snapshots: one thread a head of a snapshot.
static __device__ inline void row_steps(RowChunk* chunk, const float* proj, const float* dt_bias, const float* a_log,
                                        int first, int n, int b, int B, int thread) {
    const int i = thread / MAMBA_HEADS, head = thread % MAMBA_HEADS;
    if (i >= n) return;
    const long long token = (long long)(first + i) * B + b;
    const float step = softplus(proj[token * MAMBA_PROJ + MAMBA_DT_COLUMN + head] + dt_bias[head]);
    chunk->dt[i][head] = step;
    chunk->decay[i][head] = expf(-expf(a_log[head]) * step);
}

// B C of every snapshot: one thread a snapshot.
static __device__ inline void row_own(RowChunk* chunk, int i) {
    chunk->own[i] = mamba_dot16(chunk->bc[i], chunk->bc[i] + MAMBA_STATE);
}

// sum of weight * tile over the channels of snapshot i in eight partial sums, by the eight threads l of a snapshot;
// where SQUARES the weights are the values themselves.
template <bool SQUARES>
static __device__ inline float row_sum(const float (*tile)[ROW_STRIDE], const float* weight, int i, int l) {
    float sum = 0.0f;
#pragma unroll
    for (int c = 0; c < MAMBA_INNER; c += MAMBA_LANES) {
        sum = fmaf(tile[i][c + l], SQUARES ? tile[i][c + l] : weight[c + l], sum);
    }
    return group_sum<MAMBA_LANES>(sum);
}
