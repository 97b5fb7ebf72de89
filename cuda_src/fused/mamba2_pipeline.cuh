// A Mamba-2 block row by row: what the fused kernels share.
//
// A block of threads owns one row. It walks the row's snapshots in chunks of ROW_CHUNK, which bounds shared memory for
// every length of a window, and as a pipeline: some warps convolve a chunk while others scan the chunk before it and
// others gate and normalise the one before that. Each role is a function with its own loop over the stages, so that the
// compiler gives a thread the registers of its role alone; every loop meets row_barrier as often as there are stages.
// Tiles rotate through ROW_RING places: what stage k writes is read in stages k + 1 and k + 2. Global memory is read a
// stage before it is used. The arithmetic is that of nets/mamba2.cuh, operation by operation: the same bits.
#pragma once
#include "include/reduce.cuh"
#include "nets/mamba2.cuh"

#define ROW_CHUNK 8                       // snapshots of a stage
#define ROW_STRIDE (MAMBA_XBC + 8)        // floats between snapshots in shared memory: 4 snapshots x 8 floats, 32 banks
#define ROW_RING 3                        // stages from the convolution of a chunk to its last use, and one
#define ROW_BEFORE (MAMBA_TAPS - 1)       // inputs of the convolution before a chunk
#define ROW_EIGHTHS (MAMBA_INNER / MAMBA_LANES)  // channels of one of the eight threads that share a snapshot
#define ROW_LANES (ROW_CHUNK * MAMBA_LANES)      // threads of a role that gives a snapshot to eight threads

// A row's parts of the small gradients, one line a row: taps [4, 160], their bias, dt_bias, a_log, skip, norm_w.
#define ROW_PART_BIAS (MAMBA_TAPS * MAMBA_XBC)
#define ROW_PART_DT (ROW_PART_BIAS + MAMBA_XBC)
#define ROW_PART_A_LOG (ROW_PART_DT + MAMBA_HEADS)
#define ROW_PART_SKIP (ROW_PART_A_LOG + MAMBA_HEADS)
#define ROW_PART_NORM (ROW_PART_SKIP + MAMBA_HEADS)
#define ROW_PARTS (ROW_PART_NORM + MAMBA_INNER)

// The end of a stage, for all threads of the block. One function: each role calls it from a loop of its own.
static __device__ inline void row_barrier() { block_barrier_of_roles(); }

// x, B and C of a chunk, and the step size and decay of its heads.
struct RowTile {
    alignas(16) float xbc[ROW_CHUNK][ROW_STRIDE];
    struct {
        float dt, decay;
    } step[ROW_CHUNK][MAMBA_HEADS];
};

// A chunk: its first snapshot and how many there are. No such chunk: 0, 0.
struct RowSpan {
    int first, n;
};

static __device__ inline int row_chunks(int W) { return (W + ROW_CHUNK - 1) / ROW_CHUNK; }

static __device__ inline RowSpan row_span(int chunk, int W) {
    const int first = chunk * ROW_CHUNK, left = W - first;
    if (chunk < 0 || left <= 0) return {0, 0};
    return {first, left < ROW_CHUNK ? left : ROW_CHUNK};
}

// The first element of a snapshot of this block's row in an array of `width` columns.
static __device__ inline long long row_at(int snapshot, int B, int width) {
    return ((long long)snapshot * B + (int)blockIdx.x) * width;
}

// Taps and bias of a column of the convolution.
struct RowTaps {
    float tap[MAMBA_TAPS], bias;
};

static __device__ inline RowTaps row_taps(const float* conv_w, const float* conv_b, int c) {
    RowTaps taps;
#pragma unroll
    for (int k = 0; k < MAMBA_TAPS; ++k) taps.tap[k] = conv_w[k * MAMBA_XBC + c];
    taps.bias = conv_b[c];
    return taps;
}

// Inputs of a column from three snapshots before a chunk on, and, where the thread owns a head of a snapshot as well,
// the input of that step size.
struct RowInputs {
    float in[ROW_BEFORE + ROW_CHUNK];
    float dt_raw;
};

// Loads the inputs of column c in the chunk's own snapshots, and dt; nothing behind the window.
static __device__ inline void row_load(RowInputs* inputs, const float* proj, RowSpan span, int B, int c) {
    if (!span.n) return;
    const float* from = proj + row_at(span.first, B, MAMBA_PROJ);
    const int next = B * MAMBA_PROJ;
#pragma unroll
    for (int i = 0; i < ROW_CHUNK; ++i) {
        inputs->in[ROW_BEFORE + i] = i < span.n ? from[i * next + MAMBA_XBC_COLUMN + c] : 0.0f;
    }
    if (c < ROW_LANES && c / MAMBA_HEADS < span.n) {
        inputs->dt_raw = from[c / MAMBA_HEADS * next + MAMBA_DT_COLUMN + c % MAMBA_HEADS];
    }
}

// The same at the window's start: zeros before it.
static __device__ inline void row_load_first(RowInputs* inputs, const float* proj, int W, int B, int c) {
#pragma unroll
    for (int k = 0; k < ROW_BEFORE; ++k) inputs->in[k] = 0.0f;
    row_load(inputs, proj, row_span(0, W), B, c);
}

// The same one chunk on: the last inputs are those before the next chunk.
static __device__ inline void row_load_next(RowInputs* inputs, const float* proj, RowSpan next, int B, int c) {
#pragma unroll
    for (int k = 0; k < ROW_BEFORE; ++k) inputs->in[k] = inputs->in[ROW_CHUNK + k];
    row_load(inputs, proj, next, B, c);
}

// The convolution at the chunk's snapshot i, before SiLU.
static __device__ inline float row_convolution(const RowTaps& taps, const RowInputs& inputs, int i) {
    float v = taps.bias;
#pragma unroll
    for (int k = 0; k < MAMBA_TAPS; ++k) v = fmaf(taps.tap[k], inputs.in[i + k], v);
    return v;
}

// Step size and decay of the head that thread c owns.
static __device__ inline void row_step(RowTile* tile, float dt_raw, const float* dt_bias, const float* a_log, int c) {
    if (c >= ROW_LANES) return;
    const int head = c % MAMBA_HEADS;
    const float step = softplus(dt_raw + dt_bias[head]);
    tile->step[c / MAMBA_HEADS][head].dt = step;
    tile->step[c / MAMBA_HEADS][head].decay = expf(-expf(a_log[head]) * step);
}

// Column c of a chunk, and the step the thread owns.
static __device__ inline void row_convolve(RowTile* tile, const RowTaps& taps, const RowInputs& inputs,
                                           const float* dt_bias, const float* a_log, int c) {
#pragma unroll
    for (int i = 0; i < ROW_CHUNK; ++i) tile->xbc[i][c] = lanes_silu(row_convolution(taps, inputs, i));
    row_step(tile, inputs.dt_raw, dt_bias, a_log, c);
}

// B C of a snapshot, by the eight threads l that share it; xbc: its row.
static __device__ inline float row_own(const float* xbc, int l) {
    const float *b = xbc + MAMBA_B_COLUMN + l, *c = xbc + MAMBA_C_COLUMN + l;
    return group_sum<MAMBA_LANES>(fmaf(b[MAMBA_LANES], c[MAMBA_LANES], b[0] * c[0]));
}

// scan_step with rows outside and columns inside: few values of row and reader wait in registers. The same sums.
template <bool PAST_ONLY, int COLUMNS>
static __device__ __forceinline__ void row_scan(ScanTile<COLUMNS>* __restrict__ tile, float decay, float scale,
                                                const float* __restrict__ row, const float* __restrict__ column,
                                                const float* __restrict__ reader, float out_scale,
                                                float* __restrict__ out) {
    float input[COLUMNS], sum[COLUMNS];
#pragma unroll
    for (int l = 0; l < COLUMNS; ++l) {
        input[l] = scale * column[l];
        sum[l] = 0.0f;
    }
#pragma unroll
    for (int n = 0; n < 16; ++n) {
#pragma unroll
        for (int l = 0; l < COLUMNS; ++l) {
            const float past = decay * tile->v[n][l];
            const float now = fmaf(input[l], row[n], past);
            tile->v[n][l] = now;
            sum[l] = fmaf(PAST_ONLY ? past : now, reader[n], sum[l]);
        }
    }
#pragma unroll
    for (int l = 0; l < COLUMNS; ++l) out[l] = out_scale * sum[l];
}
