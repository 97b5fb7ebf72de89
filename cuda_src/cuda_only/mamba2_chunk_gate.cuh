// The backward of a Mamba-2 block in chunks (mamba2_backward_tf32.cu), from its inputs to dy: what it reads and keeps, the
// output computed again, norm and gate. A head a warp.
#pragma once
#include "cuda_only/mamba2_chunk.cuh"

#define GRAD_STRIDE (MAMBA_INNER + 8)                      // floats between snapshots of the upstream gradient
#define STATES (MAMBA_HEAD_DIM * MAMBA_STATE)              // of a head

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

struct BackArrays {
    const float *proj, *s, *rstd, *conv_w, *conv_b, *dt_bias, *a_log, *skip, *norm_w, *grad;
    float *grad_proj, *parts;
    int W, B;
};

// What a chunk needs from memory. state: before the chunk. grad: dL/dnorm.
struct BackInputs {
    ChunkInputs proj;
    alignas(16) float grad[CHUNK][GRAD_STRIDE], state[MAMBA_HEADS][STATES];
};

// head: of each warp, x and dy, later its parts of dB and dC. means: of the norm, one sum a head.
struct BackShared {
    BackInputs inputs[2];
    ChunkWeights weights;
    ChunkTile bc, head[MAMBA_HEADS];
    CopyBarrier full[2];
    alignas(16) float means[CHUNK][MAMBA_HEADS], steps[MAMBA_HEADS][2 * CHUNK];
};

// Gradients before SiLU of a column at snapshots i and i + 1 and at the three after them.
struct PairGradient {
    float v[MAMBA_TAPS + 1];
};

// A column's parts of the gradients of its taps and their bias.
struct TapSums {
    float tap[MAMBA_TAPS], bias;
};

// What a thread carries from chunk to chunk, backward in time. state: H, rows channels. log_decay: <H, S_end>. ahead:
// gradients before SiLU of the first snapshots of the chunk after this one, [channel][e], of B or C [e].
struct BackCarry {
    ChunkSums state;
    float ahead[2][2], bc_ahead[2], log_decay;
    TapSums taps[2], bc_taps;
    float norm[2][2], a_log, dt_bias, skip;
};

// Starts the copy of chunk q. Before the window and before its first state there are zeros.
static __device__ __forceinline__ void load_chunk(BackInputs* to, CopyBarrier* full, const BackArrays& a, int q, int warp,
                                                  int lane) {
    const int row = MAMBA_INNER * (int)sizeof(float), states = STATES * (int)sizeof(float);
    if (q == 0) {
        clear_before(&to->proj);
        for (int i = (int)threadIdx.x; i < MAMBA_HEADS * STATES; i += CHUNK_THREADS) to->state[i / STATES][i % STATES] = 0.0f;
    }
    load_inputs(&to->proj, full, a.proj, q, a.W, a.B, CHUNK * row + (q > 0 ? MAMBA_HEADS * states : 0), warp, lane);
    if (lane != 0) return;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
        const int i = 2 * warp + k, w = q * CHUNK + i;
        full->copy(to->grad[i], a.grad + row_at(w < a.W ? w : a.W - 1, a.B, MAMBA_INNER), row);
    }
    if (q > 0) full->copy(to->state[warp], a.s + states_at(q, a.B) + warp * STATES, states);
}

// The head's state before the chunk: outer channels, inner states; turned the other way round.
static __device__ __forceinline__ ChunkRight state_operand(const float* state, int lane) {
    const bool swapped = state_swapped(lane);
    ChunkRight operand;
#pragma unroll
    for (int s = 0; s < 2; ++s) {
        const float4 four = *(const float4*)(state + state_piece(lane) + STATE_HALF * s);
        operand.at(s, 0, 0) = to_operand(swapped ? four.z : four.x), operand.at(s, 0, 1) = to_operand(swapped ? four.w : four.y);
        operand.at(s, 1, 0) = to_operand(swapped ? four.x : four.z), operand.at(s, 1, 1) = to_operand(swapped ? four.y : four.w);
    }
    return operand;
}

static __device__ __forceinline__ ChunkRight state_turned(const float* state, int lane) {
    const int place = turned_place(lane);
    ChunkRight operand;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        const int s = k / 4, r = k % 2, e = k % 4 / 2;
        operand.at(s, r, e) = to_operand(state[place ^ s * TURNED_LOWER ^ e * TURNED_NEXT ^ r * STATE_HALF]);
    }
    return operand;
}

// Recomputes y of the head; x goes to its tile. slope: of SiLU at x, as convolve_x has it.
static __device__ __forceinline__ ChunkSums output_again(BackShared* row, const BackInputs& in, const ChunkSteps& steps,
                                                         float (&slope)[2][4], float skip, int head, int lane) {
    const int g = lane / 4, t = lane % 4;
    const ChunkPlace place(lane);
    ChunkRight x;
    convolve_x(slope, in.proj, row->weights, head, g, t);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        const int s = k / 4, r = k % 2, e = k % 4 / 2;
        const float v = slope[s][k % 4], gate = chunk_sigmoid(v);
        x.at(s, r, e) = to_operand(v * gate);
        slope[s][k % 4] = gate * fmaf(v, 1.0f - gate, 1.0f);
        *(unsigned int*)((char*)row->head[head].v + column_place<0>(place, s, r, e)) = x.at(s, r, e);
    }
    const ChunkLeft c = left_rows<MAMBA_STATE>(row->bc, place);
    ChunkSums cb;
    clear_sums(&cb);
    multiply(&cb, c, right_rows<0>(row->bc, place));
    return chunk_output(cb, steps, skip, c, state_operand(in.state[head], lane), x, g, t);
}

// The head's parts of the norm's mean, to shared memory, and of the norm weights' gradient.
static __device__ __forceinline__ void gate_parts(BackShared* row, BackCarry* carry, const BackInputs& in,
                                                  ChunkSums* gates, const ChunkSums& y, const float (&rstd)[2], int head,
                                                  int g, int t) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int i = g + 8 * r, c = head * MAMBA_HEAD_DIM + 2 * t;
        float mean = 0.0f;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const float2 z = two_at(&in.proj.snapshot[ROW_BEFORE + i][c + 8 * j]), d = two_at(&in.grad[i][c + 8 * j]);
            const float2 w = two_at(&row->weights.norm[c + 8 * j]);
            float* gate = &gates->v[j][2 * r];
            gate[0] = chunk_sigmoid(z.x), gate[1] = chunk_sigmoid(z.y);
            const float first = y.v[j][2 * r] * (z.x * gate[0] * rstd[r] * d.x);
            const float second = y.v[j][2 * r + 1] * (z.y * gate[1] * rstd[r] * d.y);
            carry->norm[j][0] += first, carry->norm[j][1] += second;
            mean = fmaf(first, w.x, fmaf(second, w.y, mean));
        }
        mean = group_sum<4>(mean);
        if (t == 0) row->means[i][head] = mean;
    }
}

// dy and dz of a channel; swish, its gate and its norm weight times upstream gradient.
static __device__ __forceinline__ float gate_gradient(float* dz, float z, float gate, float y, float weighted, float rstd,
                                                      float mean) {
    const float swish = z * gate;
    const float du = rstd * fmaf(-y * swish * rstd, mean, weighted);
    *dz = du * y * gate * fmaf(z, 1.0f - gate, 1.0f);
    return du * swish;
}

// dy in place of y, and into the head's tile behind x; dz to memory.
static __device__ __forceinline__ void gate_backward(BackShared* row, const BackArrays& a, const BackInputs& in,
                                                     ChunkSums* y, const ChunkSums& gates, const float (&rstd)[2], int q, int n, int head,
                                                     int lane) {
    const int g = lane / 4, t = lane % 4;
    const ChunkPlace place(lane);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int i = g + 8 * r, c = head * MAMBA_HEAD_DIM + 2 * t;
        const float4 *parts = (const float4*)row->means[i], first = parts[0], last = parts[1];
        const float mean = (((first.x + first.y) + (first.z + first.w)) + ((last.x + last.y) + (last.z + last.w))) /
                           MAMBA_INNER;
        float* to = a.grad_proj + row_at(q * CHUNK, a.B, MAMBA_PROJ) + (i * a.B * MAMBA_PROJ + c);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const float2 z = two_at(&in.proj.snapshot[ROW_BEFORE + i][c + 8 * j]), d = two_at(&in.grad[i][c + 8 * j]);
            const float2 w = two_at(&row->weights.norm[c + 8 * j]);
            float *own = &y->v[j][2 * r], dz[2];
            own[0] = gate_gradient(&dz[0], z.x, gates.v[j][2 * r], own[0], w.x * d.x, rstd[r], mean);
            own[1] = gate_gradient(&dz[1], z.y, gates.v[j][2 * r + 1], own[1], w.y * d.y, rstd[r], mean);
            if (i < n) put_two(to + 8 * j, dz[0], dz[1]);
            put_row<MAMBA_HEAD_DIM>(&row->head[head], place, j, r, __uint_as_float(to_operand(own[0])),
                                    __uint_as_float(to_operand(own[1])));
        }
    }
}

#endif
