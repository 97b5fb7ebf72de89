// A Mamba-2 block in chunks of 16 snapshots, on tensor cores: what its forward and its backward share.
//
// Inside a chunk the recurrence of nets/mamba2.cu is a few products of 16 x 16 matrices a head (Dao and Gu 2024, section
// 6: state space duality). With c_i the log of the decay from the chunk's start to snapshot i, S_0 the state before it:
//   M_ij = exp(c_i - c_j) dt_j (C_i B_j) for j <= i, plus skip on the diagonal
//   y_i  = sum_j M_ij x_j + exp(c_i) S_0 C_i,    S_end = exp(c_end) S_0 + sum_j exp(c_end - c_j) dt_j x_j B_j^T
// No difference of logs is ever positive, so nothing overflows. Operands are rounded to TF32, sums are float32; the state
// itself is never rounded, only what is read of it.
// A block of threads owns a row, a warp a head: its 16 channels, and four of the 32 columns of B and C, which all heads
// share. Who holds what: chunk_tile.cuh.
// Snapshots behind the window have dt = 0 and gradients 0: they change no state and no sum.
// Edge cases: NaN and infinity spoil their row, and there the whole chunk: a masked element of M times NaN is NaN.
#pragma once
#include "cuda_only/chunk_tile.cuh"
#include "fused/mamba2_pipeline.cuh"

#define CHUNK_THREADS (32 * MAMBA_HEADS)
#define CHUNK_STRIDE (MAMBA_PROJ + 4)     // floats between snapshots: pairs of them 24 banks apart
#define CHUNK_STATES (MAMBA_INNER * MAMBA_STATE)  // of a row: as many as a chunk has channels
#define CHUNK_BC_COLUMN (MAMBA_XBC_COLUMN + MAMBA_INNER)  // first column of B in the in-projection
#define CHUNK_LOG2_E 1.44269504f

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// A chunk of the in-projection behind the three snapshots before it, which the convolution looks at.
struct ChunkInputs {
    alignas(16) float snapshot[ROW_BEFORE + CHUNK][CHUNK_STRIDE];
};

// How many snapshots of chunk q the window has.
static __device__ __forceinline__ int chunk_size(int q, int W) { return W - q * CHUNK < CHUNK ? W - q * CHUNK : CHUNK; }

static __device__ __forceinline__ int chunk_count(int W) { return (W + CHUNK - 1) / CHUNK; }

// Where the states of the block's row before chunk q > 0 are kept, in a buffer of 128 floats a token: in the place of the
// chunk before it, which is whole. A head's 16 channels x 16 states lie together.
static __device__ __forceinline__ long long states_at(int q, int B) {
    return ((long long)(q - 1) * CHUNK * B + (long long)blockIdx.x * CHUNK) * MAMBA_INNER;
}

// Floats from a head's first state to that of a channel and a state, both as kept and in shared memory: channels and states
// can both be read as rows without conflict. The others of a lane are an exclusive or with a constant away.
static __device__ __forceinline__ constexpr int state_place(int channel, int state) {
    return (channel * 16 ^ (channel >> 1 & 1) << 4 ^ ((channel >> 2 ^ channel >> 1) & 1) << 3) ^ state;
}

#define STATE_EIGHT 8         // states
#define STATE_NEXT 16         // channel
#define STATE_LOWER (8 * 16)  // channels

// Starts the copy of chunk q, every warp its share; bytes: that others copy as well. Behind the window the last snapshot is
// repeated: with dt = 0 it is worth nothing. A copy's addresses are the same in all lanes: one thread starts it.
static __device__ __forceinline__ void load_inputs(ChunkInputs* to, CopyBarrier* full, const float* proj, int q, int W,
                                                   int B, int bytes, int warp, int lane) {
    if (lane != 0) return;
    const int row = MAMBA_PROJ * (int)sizeof(float), before = MAMBA_XBC * (int)sizeof(float);
    if (warp == 0) full->expect(CHUNK * row + (q > 0 ? ROW_BEFORE * before : 0) + bytes);
#pragma unroll
    for (int k = 0; k < 2; ++k) {
        const int i = 2 * warp + k, w = q * CHUNK + i;
        full->copy(to->snapshot[ROW_BEFORE + i], proj + row_at(w < W ? w : W - 1, B, MAMBA_PROJ), row);
    }
    if (warp >= ROW_BEFORE || q == 0) return;
    const float* from = proj + row_at(q * CHUNK - ROW_BEFORE + warp, B, MAMBA_PROJ);
    full->copy(&to->snapshot[warp][MAMBA_XBC_COLUMN], from + MAMBA_XBC_COLUMN, before);
}

// Zeros before the window, by all threads.
static __device__ __forceinline__ void clear_before(ChunkInputs* to) {
    if (threadIdx.x >= MAMBA_XBC) return;
#pragma unroll
    for (int k = 0; k < ROW_BEFORE; ++k) to->snapshot[k][MAMBA_XBC_COLUMN + threadIdx.x] = 0.0f;
}

// 1 / (1 + e^-x), accurate to 1e-6: a third of the instructions of lanes_sigmoid.
static __device__ __forceinline__ float chunk_sigmoid(float x) {
    return lanes_reciprocal(1.0f + lanes_exp2(-CHUNK_LOG2_E * x));
}

// Weights of a block that are read once a chunk; in shared memory they cost no register in between.
struct ChunkWeights {
    float tap[MAMBA_TAPS * MAMBA_XBC], bias[MAMBA_XBC];
    alignas(16) float norm[MAMBA_INNER];

    __device__ __forceinline__ RowTaps taps(int column) const { return row_taps(tap, bias, column); }
};

static __device__ __forceinline__ void load_weights(ChunkWeights* to, const float* conv_w, const float* conv_b,
                                                    const float* norm_w) {
    for (int i = (int)threadIdx.x; i < MAMBA_TAPS * MAMBA_XBC; i += CHUNK_THREADS) to->tap[i] = conv_w[i];
    if (threadIdx.x < MAMBA_XBC) to->bias[threadIdx.x] = conv_b[threadIdx.x];
    if (threadIdx.x < MAMBA_INNER) to->norm[threadIdx.x] = norm_w[threadIdx.x];
}

// The convolution before SiLU of a column at snapshots i and i + 1; in: its inputs from snapshot i - 3 on.
static __device__ __forceinline__ void convolve_pair(const RowTaps& taps, const float (&in)[MAMBA_TAPS + 1], float* pre) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
        pre[e] = taps.bias;
#pragma unroll
        for (int k = 0; k < MAMBA_TAPS; ++k) pre[e] = fmaf(taps.tap[k], in[e + k], pre[e]);
    }
}

static __device__ __forceinline__ void read_pair_inputs(float (&in)[MAMBA_TAPS + 1], const ChunkInputs& inputs, int i,
                                                        int column) {
#pragma unroll
    for (int k = 0; k <= MAMBA_TAPS; ++k) in[k] = inputs.snapshot[i + k][column];
}

// x of the head before SiLU, pre[s][r + 2 e] of channel g + 8 r at snapshot 8 s + 2 t + e: as a turned operand lies.
static __device__ __forceinline__ void convolve_x(float (&pre)[2][4], const ChunkInputs& inputs,
                                                  const ChunkWeights& weights, int head, int g, int t) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int channel = head * MAMBA_HEAD_DIM + g + 8 * r;
        const RowTaps taps = weights.taps(channel);
#pragma unroll
        for (int s = 0; s < 2; ++s) {
            float in[MAMBA_TAPS + 1], two[2];
            read_pair_inputs(in, inputs, 8 * s + 2 * t, MAMBA_XBC_COLUMN + channel);
            convolve_pair(taps, in, two);
            pre[s][r] = two[0], pre[s][2 + r] = two[1];
        }
    }
}

// The warp's four columns of B and C into the tile: a lane has column 4 warp + lane % 4 at snapshots 2 q and 2 q + 1,
// q = lane / 4.
static __device__ __forceinline__ void convolve_bc(ChunkTile* tile, const ChunkInputs& inputs,
                                                   const ChunkWeights& weights, int warp, int lane) {
    const int c = 4 * warp + lane % 4, i = lane / 4 * 2;
    float in[MAMBA_TAPS + 1], pre[2];
    read_pair_inputs(in, inputs, i, CHUNK_BC_COLUMN + c);
    convolve_pair(weights.taps(MAMBA_INNER + c), in, pre);
#pragma unroll
    for (int e = 0; e < 2; ++e) tile->v[ChunkTile::at(i + e, c)] = __uint_as_float(to_operand(pre[e] * chunk_sigmoid(pre[e])));
}

// A head's step sizes in a chunk: dt with its slope, and log2 of the decay from the chunk's start, of a lane's own snapshot
// in registers, of all in shared memory: [log, dt] of each. As rows and columns lie, row r is snapshot g + 8 r, columns
// [s][e] snapshot 8 s + 2 t + e.
struct ChunkSteps {
    float dt, slope, log, log_end;
    const float *rows, *columns;

    // exp of a difference of logs.
    static __device__ __forceinline__ float power(float log2) { return lanes_exp2(log2); }

    __device__ __forceinline__ float row_log(int r) const { return rows[16 * r]; }
    __device__ __forceinline__ float row_dt(int r) const { return rows[16 * r + 1]; }
    __device__ __forceinline__ float column_log(int s, int e) const { return columns[16 * s + 2 * e]; }
    __device__ __forceinline__ float column_dt(int s, int e) const { return columns[16 * s + 2 * e + 1]; }
};

// rate: -exp(a_log) log2 e of the head. all: 16 pairs of this warp.
static __device__ __forceinline__ ChunkSteps chunk_steps(float* all, const ChunkInputs& inputs, float dt_bias, float rate,
                                                         int n, int head, int lane) {
    const int i = lane % CHUNK;
    ChunkSteps steps;
    const float raw = inputs.snapshot[ROW_BEFORE + i][MAMBA_DT_COLUMN + head] + dt_bias;
    steps.dt = i < n ? softplus(raw) : 0.0f;
    steps.slope = i < n ? chunk_sigmoid(raw) : 0.0f;
    steps.log = rate * steps.dt;
#pragma unroll
    for (int step = 1; step < CHUNK; step *= 2) {
        const float before = __shfl_up_sync(REDUCE_FULL_WARP, steps.log, step);
        if (i >= step) steps.log += before;
    }
    steps.log_end = warp_broadcast(steps.log, CHUNK - 1);
    if (lane < CHUNK) put_two(all + 2 * i, steps.log, steps.dt);
    __syncwarp();
    steps.rows = all + 2 * (lane / 4), steps.columns = all + 4 * (lane % 4);
    return steps;
}

// y in rows g and g + 8: with M and the state before the chunk; cb: C_i B_j; x: turned operand.
static __device__ __forceinline__ ChunkSums chunk_output(const ChunkSums& cb, const ChunkSteps& steps, float skip,
                                                         const ChunkLeft& c, const ChunkRight& state, const ChunkRight& x,
                                                         int g, int t) {
    ChunkSums y, m;
    clear_sums(&y);
    multiply(&y, c, state);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const float kept = ChunkSteps::power(steps.row_log(r));
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const int s = k / 2, e = k % 2, order = later(r, s, g, 2 * t + e);
            y.v[s][2 * r + e] *= kept;
            const float decay = ChunkSteps::power(steps.row_log(r) - steps.column_log(s, e));
            const float through = cb.v[s][2 * r + e] * (decay * steps.column_dt(s, e));
            m.v[s][2 * r + e] = order > 0 ? through : order == 0 ? through + skip : 0.0f;
        }
    }
    multiply(&y, operand_of<ChunkLeft>(m), x);
    return y;
}

#endif
