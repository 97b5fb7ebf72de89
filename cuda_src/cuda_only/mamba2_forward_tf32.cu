// A Mamba-2 block between its two projections, forward, on tensor cores: mamba2_chunk.cuh has the form.
//
// Does what the kernels of nets/mamba2_forward.cu do. For the backward it keeps, in the place of s, the states before
// each chunk but the first (mamba2_chunk.cuh, states_at), and rstd. Bytes a token: 1,184 read, 512 written, and 516 more
// where the backward follows.
// While a chunk is worked on the next one is copied to shared memory. Two barriers a chunk.
// Shared memory: 52 kB, dynamic. Edge cases: mamba2_chunk.cuh.
#include "cuda_only/mamba2_chunk.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

struct ForwardArrays {
    const float *proj, *conv_w, *conv_b, *dt_bias, *a_log, *skip, *norm_w;
    float *s, *norm, *rstd;
    int W, B;
};

// squares: of u, one sum a head.
struct ForwardShared {
    ChunkInputs inputs[2];
    ChunkWeights weights;
    ChunkTile bc;
    CopyBarrier full[2];
    alignas(16) float squares[CHUNK][MAMBA_HEADS], steps[MAMBA_HEADS][2 * CHUNK];
};

// S = exp(c_end) S + sum_j exp(c_end - c_j) dt_j x_j B_j^T; rows are channels.
static __device__ __forceinline__ void next_state(ChunkSums* state, ChunkRight x, const ChunkSteps& steps,
                                                  const ChunkRight& b_turned) {
    const float kept = ChunkSteps::power(steps.log_end);
    ChunkLeft weighted;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        const int s = k / 4, r = k % 2, e = k % 4 / 2;
        state->v[s][k % 4] *= kept;
        const float weight = ChunkSteps::power(steps.log_end - steps.column_log[s][e]) * steps.column_dt[s][e];
        weighted.at(s, r, e) = times(x.at(s, r, e), weight);
    }
    multiply(state, weighted, b_turned);
}

// The head's channels of chunk q up to u = y SiLU(z), which comes back; the sums of its squares go to shared memory.
static __device__ __forceinline__ ChunkSums gated_chunk(ChunkSums* state, ForwardShared* row, const ChunkInputs& inputs,
                                                        const float (&values)[3], int n, int head, int lane) {
    const int g = lane / 4, t = lane % 4;
    float pre[2][4];
    ChunkRight x;
    convolve_x(pre, inputs, row->weights, head, g, t);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        const float v = pre[k / 4][k % 4];
        x.at(k / 4, k % 2, k % 4 / 2) = to_operand(v * chunk_sigmoid(v));
    }
    const OwnStep own = find_steps(row->steps[head], inputs, values[0], values[1], n, head, lane);
    const ChunkSteps steps = own.of_chunk(lane);
    const ChunkPlace place(lane);
    const ChunkLeft c = left_rows<MAMBA_STATE>(row->bc, place);
    ChunkSums cb;
    clear_sums(&cb);
    multiply(&cb, c, right_rows<0>(row->bc, place));
    ChunkSums u = chunk_output(cb, steps, values[2], c, operand_of<ChunkRight>(*state), x, g, t);
    next_state(state, x, steps, read_columns<0, ChunkRight>(row->bc, place));
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const float* z = &inputs.snapshot[ROW_BEFORE + g + 8 * r][head * MAMBA_HEAD_DIM + 2 * t];
        float square = 0.0f;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const float2 two = two_at(z + 8 * j);
            float* at = &u.v[j][2 * r];
            at[0] *= two.x * chunk_sigmoid(two.x), at[1] *= two.y * chunk_sigmoid(two.y);
            square = fmaf(at[0], at[0], fmaf(at[1], at[1], square));
        }
        square = group_sum<4>(square);
        if (t == 0) row->squares[g + 8 * r][head] = square;
    }
    return u;
}

// Norm of chunk q from the squares of all heads.
template <bool KEEP>
static __device__ __forceinline__ void normalise_chunk(const ForwardArrays& a, const ForwardShared& row,
                                                       const ChunkSums& u, int q, int n, int head, int lane) {
    const int g = lane / 4, t = lane % 4, column = head * MAMBA_HEAD_DIM + 2 * t;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int i = g + 8 * r;
        const float4 *parts = (const float4*)row.squares[i], first = parts[0], last = parts[1];
        const float square = ((first.x + first.y) + (first.z + first.w)) + ((last.x + last.y) + (last.z + last.w));
        const float rstd = rsqrtf(square / MAMBA_INNER + MAMBA_NORM_EPS);
        const float2 w = two_at(&row.weights.norm[column]), w8 = two_at(&row.weights.norm[column + 8]);
        const float *v = &u.v[0][2 * r], *v8 = &u.v[1][2 * r];
        const float4 four =
            four_columns(v[0] * (rstd * w.x), v[1] * (rstd * w.y), v8[0] * (rstd * w8.x), v8[1] * (rstd * w8.y), t);
        float* to = a.norm + row_at(q * CHUNK, a.B, MAMBA_INNER);
        if (i >= n) continue;
        *(float4*)(to + (i * a.B * MAMBA_INNER + head * MAMBA_HEAD_DIM + four_column(t))) = four;
        if (KEEP && head == 0 && t == 0) a.rstd[row_at(q * CHUNK + i, a.B, 1)] = rstd;
    }
}

// The state before chunk q > 0, for the backward.
static __device__ __forceinline__ void keep_state(const ForwardArrays& a, const ChunkSums& state, int q, int head,
                                                  int lane) {
    float* to = a.s + states_at(q, a.B) + head * MAMBA_HEAD_DIM * MAMBA_STATE + state_piece(lane);
    const bool swapped = state_swapped(lane);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
        const float* v = state.v[j];
        const float4 four = swapped ? make_float4(v[2], v[3], v[0], v[1]) : make_float4(v[0], v[1], v[2], v[3]);
        *(float4*)(to + STATE_HALF * j) = four;
    }
}

// KEEP: states and rstd are written for the backward.
template <bool KEEP>
static __device__ __forceinline__ void forward_row(const ForwardArrays& a, ForwardShared* row) {
    int lane = (int)threadIdx.x % 32;
    const int head = (int)threadIdx.x / 32, chunks = chunk_count(a.W);
    if (threadIdx.x == 0) row->full[0].ready(), row->full[1].ready();
    clear_before(&row->inputs[0]);
    copies_behind_stores();
    __syncthreads();
    load_inputs(&row->inputs[0], &row->full[0], a.proj, 0, a.W, a.B, 0, head, lane);
    load_weights(&row->weights, a.conv_w, a.conv_b, a.norm_w);
    const float values[3] = {a.dt_bias[head], -expf(a.a_log[head]) * CHUNK_LOG2_E, a.skip[head]};
    ChunkSums state;
    clear_sums(&state);
    row->full[0].wait(0);
    __syncthreads();
    convolve_bc(&row->bc, row->inputs[0], row->weights, head, lane);
    for (int q = 0; q < chunks; ++q) {
        const int n = chunk_size(q, a.W);
        lane = fresh(lane);
        __syncthreads();  // B and C are there, and nobody reads the other place any more
        const int next = (q + 1) & 1;
        if (q + 1 < chunks) load_inputs(&row->inputs[next], &row->full[next], a.proj, q + 1, a.W, a.B, 0, head, lane);
        if (KEEP && q > 0) keep_state(a, state, q, head, lane);
        const ChunkSums u = gated_chunk(&state, row, row->inputs[q & 1], values, n, head, lane);
        if (q + 1 < chunks) row->full[next].wait((q + 1) >> 1 & 1);
        __syncthreads();  // the squares are there, and the next chunk
        normalise_chunk<KEEP>(a, *row, u, q, n, head, lane);
        if (q + 1 < chunks) convolve_bc(&row->bc, row->inputs[next], row->weights, head, lane);
    }
}

#endif

// mamba2_chunk_forward: a block between its projections; states and rstd stay for the backward.
// launch: blocks B, block 256, shared 52912
// chain: 7 us
// fuses: mamba2_conv_forward, mamba2_dt_forward, mamba2_scan_forward, mamba2_norm_forward
// One block a row. proj [W, B, 296]; conv_w [4, 160]; conv_b [160]; dt_bias, a_log, skip [8]; norm_w [128];
// s [W, B, 128]: states; norm [W, B, 128]; rstd [W, B].
extern "C" __global__ void __launch_bounds__(256, 3) mamba2_chunk_forward(
    const float* __restrict__ proj, const float* __restrict__ conv_w, const float* __restrict__ conv_b,
    const float* __restrict__ dt_bias, const float* __restrict__ a_log, const float* __restrict__ skip,
    const float* __restrict__ norm_w, float* __restrict__ s, float* __restrict__ norm, float* __restrict__ rstd, int W,
    int B) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    extern __shared__ __align__(16) float chunk_memory[];
    static_assert(sizeof(ForwardShared) == 52912, "the launch line names the size");
    forward_row<true>({proj, conv_w, conv_b, dt_bias, a_log, skip, norm_w, s, norm, rstd, W, B},
                      (ForwardShared*)chunk_memory);
#endif
}

// mamba2_chunk_forward_only: mamba2_chunk_forward where no backward follows.
// launch: blocks B, block 256, shared 52912
// chain: 7 us
// fuses: mamba2_conv_forward, mamba2_dt_forward, mamba2_scan_forward, mamba2_norm_forward
// One block a row; parameters are those of mamba2_chunk_forward.
extern "C" __global__ void __launch_bounds__(256, 3) mamba2_chunk_forward_only(
    const float* __restrict__ proj, const float* __restrict__ conv_w, const float* __restrict__ conv_b,
    const float* __restrict__ dt_bias, const float* __restrict__ a_log, const float* __restrict__ skip,
    const float* __restrict__ norm_w, float* __restrict__ norm, int W, int B) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    extern __shared__ __align__(16) float chunk_memory[];
    forward_row<false>({proj, conv_w, conv_b, dt_bias, a_log, skip, norm_w, (float*)0, norm, (float*)0, W, B},
                       (ForwardShared*)chunk_memory);
#endif
}
