// A Mamba-2 block in chunks of 16 snapshots, on tensor cores: what its forward and its backward share.
//
// Inside a chunk the recurrence of nets/mamba2.cuh is a few products of 16 x 16 matrices a head (Dao and Gu 2024, section
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
// chunk before it, which is whole and has as many channels as a row has states. A head's 16 channels x 16 states lie
// together.
static __device__ __forceinline__ long long states_at(int q, int B) {
    return ((long long)(q - 1) * CHUNK * B + (long long)blockIdx.x * CHUNK) * MAMBA_INNER;
}

// How a head's states are kept: what lies in a lane's registers as sums of channels x states (chunk_tile.cuh) in two pieces
// of 16 bytes, 512 bytes apart; halves of pieces and pairs of channels trade places so that the turned states, too, are
// read without conflict. Floats to a lane's first piece, and whether its halves are exchanged.
static __device__ __forceinline__ int state_piece(int lane) {
    const int g = lane / 4;
    return ((g ^ (g >> 2 & 1)) * 4 + lane % 4) * 4;
}

static __device__ __forceinline__ bool state_swapped(int lane) { return lane >> 3 & 1; }

// Floats to a lane's first turned state: channel 2 t, state g. The others are an exclusive or with a constant away.
static __device__ __forceinline__ int turned_place(int lane) {
    const int g = lane / 4, t = lane % 4;
    return (2 * t ^ t >> 1) * 16 + (g >> 1) * 4 + ((g & 1) ^ (t & 1) * 2);
}

#define STATE_HALF 128   // the next eight states
#define TURNED_NEXT 16   // the next channel
#define TURNED_LOWER 2   // eight channels on

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

// The step sizes of a head as rows and columns of a chunk lie, and log2 of the decay from its start: row r is snapshot
// g + 8 r, column [s][e] snapshot 8 s + 2 t + e.
struct ChunkSteps {
    float row_log[2], row_dt[2], column_log[2][2], column_dt[2][2], log_end;

    // exp of a difference of logs.
    static __device__ __forceinline__ float power(float log2) { return lanes_exp2(log2); }
};

// The same of a lane's own snapshot, lane % 16, with the slope of dt; of all in shared memory, [log, dt] of each: reading
// them again where they are needed costs less than the registers.
struct OwnStep {
    float dt, slope, log_end;
    const float* all;

    __device__ __forceinline__ ChunkSteps of_chunk(int lane) const {
        ChunkSteps steps;
        steps.log_end = log_end;
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            const float2 row = two_at(all + 2 * (lane / 4 + 8 * k));
            const float4 columns = *(const float4*)(all + 4 * (lane % 4) + 16 * k);
            steps.row_log[k] = row.x, steps.row_dt[k] = row.y;
            steps.column_log[k][0] = columns.x, steps.column_dt[k][0] = columns.y;
            steps.column_log[k][1] = columns.z, steps.column_dt[k][1] = columns.w;
        }
        return steps;
    }
};

// rate: -exp(a_log) log2 e of the head. all: 16 pairs of this warp.
static __device__ __forceinline__ OwnStep find_steps(float* all, const ChunkInputs& inputs, float dt_bias, float rate, int n,
                                                     int head, int lane) {
    const int i = lane % CHUNK;
    OwnStep own;
    const float raw = inputs.snapshot[ROW_BEFORE + i][MAMBA_DT_COLUMN + head] + dt_bias;
    own.dt = i < n ? softplus(raw) : 0.0f;
    own.slope = i < n ? chunk_sigmoid(raw) : 0.0f;
    float log = rate * own.dt;
#pragma unroll
    for (int step = 1; step < CHUNK; step *= 2) {
        const float before = __shfl_up_sync(REDUCE_FULL_WARP, log, step);
        if (i >= step) log += before;
    }
    own.log_end = warp_broadcast(log, CHUNK - 1);
    if (lane < CHUNK) put_two(all + 2 * i, log, own.dt);
    __syncwarp();
    own.all = all;
    return own;
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
        const float kept = ChunkSteps::power(steps.row_log[r]);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const int s = k / 2, e = k % 2, order = later(r, s, g, 2 * t + e);
            y.v[s][2 * r + e] *= kept;
            const float decay = ChunkSteps::power(steps.row_log[r] - steps.column_log[s][e]);
            const float through = cb.v[s][2 * r + e] * (decay * steps.column_dt[s][e]);
            m.v[s][2 * r + e] = order > 0 ? through : order == 0 ? through + skip : 0.0f;
        }
    }
    multiply(&y, operand_of<ChunkLeft>(m), x);
    return y;
}

#endif
