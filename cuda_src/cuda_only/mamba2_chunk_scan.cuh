// The backward of a Mamba-2 block in chunks (mamba2_backward_tf32.cu), from dy to its inputs: scan and step sizes.
// A head a warp.
//
// With the notation of mamba2_chunk.cuh, H = dL/dS_end, Q_ij = dy_i x_j and N_ij = exp(c_i - c_j) dt_j Q_ij for j <= i:
//   dx_j = sum_i M_ij dy_i + exp(c_end - c_j) dt_j H B_j          dB_j = sum_i N_ij C_i + exp(c_end - c_j) dt_j H^T x_j
//   dC_i = sum_j N_ij B_j + exp(c_i) S_0^T dy_i                   dL/dS_0 = exp(c_end) H + sum_i exp(c_i) dy_i C_i^T
//   dL/dl_w (log decay) = <H, S_end> + sum_{k >= w} (what the past gives y_k, times dy_k - what the future wants of x_k,
//   times x_k): each summand is a sum over N_ij (C_i B_j) with i != j, so nothing cancels; <H, S_end> starts it anew
//   for every chunk, so that no rounding is carried from chunk to chunk.
#pragma once
#include "cuda_only/mamba2_chunk_conv.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// Of snapshots g and g + 8: what the past gives y, times dy; what the future wants of x, times x, without dt; the same
// of the snapshot itself.
struct StepTerms {
    float past[2], future[2], own[2];
};

// M and N with the later snapshot i inside, j outside: for dx and dB.
static __device__ __forceinline__ void turned_maps(ChunkRight* m, ChunkLeft* n, StepTerms* terms, float* skip_sum,
                                                   const ChunkSteps& steps, float skip, const ChunkSums& bc,
                                                   const ChunkSums& xdy, int g, int t) {
    ChunkSums through, wanted;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        const int s = k / 4, r = k % 4 / 2, e = k % 2, order = later(r, s, g, 2 * t + e);
        const float power = ChunkSteps::power(steps.column_log[s][e] - steps.row_log[r]);
        const float decay = order <= 0 ? power : 0.0f, x = xdy.v[s][k % 4], b = decay * bc.v[s][k % 4];
        terms->own[r] += order == 0 ? b * x : 0.0f, *skip_sum += order == 0 ? x : 0.0f;
        terms->future[r] += order < 0 ? b * x : 0.0f;
        through.v[s][k % 4] = fmaf(b, steps.row_dt[r], order == 0 ? skip : 0.0f);
        wanted.v[s][k % 4] = decay * steps.row_dt[r] * x;
    }
    *m = operand_of<ChunkRight>(through), *n = operand_of<ChunkLeft>(wanted);
}

// N with the earlier snapshot j inside: for dC.
static __device__ __forceinline__ ChunkLeft straight_map(StepTerms* terms, const ChunkSteps& steps, const ChunkSums& cb,
                                                         const ChunkSums& dyx, int g, int t) {
    ChunkSums n;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        const int s = k / 4, r = k % 4 / 2, e = k % 2, order = later(r, s, g, 2 * t + e);
        const float power = ChunkSteps::power(steps.row_log[r] - steps.column_log[s][e]);
        const float v = power * steps.column_dt[s][e] * dyx.v[s][k % 4];
        n.v[s][k % 4] = order >= 0 ? v : 0.0f;
        terms->past[r] += order > 0 ? v * cb.v[s][k % 4] : 0.0f;
    }
    return operand_of<ChunkLeft>(n);
}

static __device__ __forceinline__ ChunkRight rounded(ChunkRight values) {
#pragma unroll
    for (int k = 0; k < 8; ++k) values.v[k / 4][k % 4] = to_operand(__uint_as_float(values.v[k / 4][k % 4]));
    return values;
}

// Scales rows g and g + 8 of sums; products: with an operand of the same shape, before that, CHUNK_NEAREST too large.
template <class Operand>
static __device__ __forceinline__ void scale_rows(ChunkSums* sums, Operand with, const float (&scale)[2],
                                                  float (&products)[2]) {
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        const int s = k / 4, r = k % 4 / 2, e = k % 2;
        products[r] = fmaf(sums->v[s][k % 4], __uint_as_float(with.at(s, r, e)), products[r]);
        sums->v[s][k % 4] *= scale[r];
    }
}

template <int FIRST>
static __device__ __forceinline__ void put_rows(ChunkTile* tile, const ChunkSums& sums, ChunkPlace place) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        put_row<FIRST>(tile, place, k / 2, k % 2, sums.v[k / 2][k % 2 * 2], sums.v[k / 2][k % 2 * 2 + 1]);
    }
}

// dL/dS_0 from H, and <dL/dS_0, S_0>.
static __device__ __forceinline__ void carry_state(BackCarry* carry, const ChunkSteps& steps, ChunkLeft dy,
                                                   const ChunkRight& c, ChunkRight state) {
    const float kept = ChunkSteps::power(steps.log_end);
    ChunkLeft weighted;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        const int s = k / 4, r = k % 2, e = k % 4 / 2;
        weighted.at(s, r, e) = times(dy.at(s, r, e), ChunkSteps::power(steps.column_log[s][e]));
        carry->state.v[s][k % 4] *= kept;
    }
    multiply(&carry->state, weighted, c);
    float product = 0.0f;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        product = fmaf(carry->state.v[k / 4][k % 4], __uint_as_float(state.at(k / 4, k % 4 / 2, k % 2)), product);
    }
    carry->log_decay = warp_sum(product) * (1.0f / CHUNK_NEAREST);
}

// Gradients of the head's step sizes; behind: <H, S_end>.
static __device__ __forceinline__ void step_gradients(BackCarry* carry, const BackArrays& a, const StepTerms& terms,
                                                      const OwnStep& own, float behind, float rate, int q, int n,
                                                      int head, int lane) {
    const int i = lane % CHUNK, from = i % 8 * 4;
    float change[2], direct[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const float future = group_sum<4>(terms.future[r]);
        change[r] = group_sum<4>(terms.past[r]) - own.all[2 * (lane / 4 + 8 * r) + 1] * future;
        direct[r] = group_sum<4>(terms.own[r]) + future;
    }
    const float change_low = warp_broadcast(change[0], from), change_high = warp_broadcast(change[1], from);
    const float direct_low = warp_broadcast(direct[0], from), direct_high = warp_broadcast(direct[1], from);
    float log_decay = i < 8 ? change_low : change_high;
#pragma unroll
    for (int step = 1; step < CHUNK; step *= 2) {
        const float later = __shfl_down_sync(REDUCE_FULL_WARP, log_decay, step);
        if (i + step < CHUNK) log_decay += later;
    }
    log_decay += behind;
    const float grad = fmaf(-rate, log_decay, i < 8 ? direct_low : direct_high) * own.slope;
    carry->a_log = fmaf(log_decay, -rate * own.dt, carry->a_log);
    carry->dt_bias += grad;
    float* to = a.grad_proj + row_at(q * CHUNK, a.B, MAMBA_PROJ) + MAMBA_DT_COLUMN + head;
    if (lane < n) to[lane * a.B * MAMBA_PROJ] = grad;
}

// The gradients of the head's channels, through SiLU and convolution to memory; n_turned: N with the later snapshot inside.
static __device__ __forceinline__ void channels_backward(const BackShared& row, BackCarry* carry, StepTerms* terms,
                                                         ChunkLeft* n_turned, const BackArrays& a,
                                                         const BackInputs& in, const OwnStep& own,
                                                         const float (&slope)[2][4], float skip, int q, int n, int head,
                                                         int lane) {
    const int g = lane / 4, t = lane % 4;
    const ChunkPlace place(lane);
    const ChunkSteps steps = own.of_chunk(lane);
    ChunkSums bc, xdy, dx;
    ChunkRight m;
    clear_sums(&bc), clear_sums(&xdy), clear_sums(&dx);
    multiply(&bc, left_rows<0>(row.bc, place), right_rows<MAMBA_STATE>(row.bc, place));
    multiply(&xdy, left_rows<0>(row.head[head], place), right_rows<MAMBA_HEAD_DIM>(row.head[head], place));
    turned_maps(&m, n_turned, terms, &carry->skip, steps, skip, bc, xdy, g, t);
    multiply(&dx, operand_of<ChunkLeft>(carry->state), right_rows<0>(row.bc, place));
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        const int s = k / 4, e = k % 2;
        dx.v[s][k % 4] *= ChunkSteps::power(steps.log_end - steps.column_log[s][e]) * steps.column_dt[s][e];
    }
    multiply(&dx, read_columns<MAMBA_HEAD_DIM, ChunkLeft>(row.head[head], place), m);
    x_backward(carry, row, a, in, dx, slope, q, n, head, lane);
}

// The head's parts of dB and dC, which take the place of x and dy; then the state's gradient goes on.
static __device__ __forceinline__ void maps_backward(BackShared* row, BackCarry* carry, StepTerms* terms,
                                                     const ChunkLeft& n_turned, const float* state,
                                                     const OwnStep& own, int head, int lane) {
    lane = fresh(lane);
    const int g = lane / 4, t = lane % 4;
    const ChunkPlace place(lane);
    const ChunkSteps steps = own.of_chunk(lane);
    ChunkTile* tile = &row->head[head];
    const ChunkRight b = right_rows<0>(row->bc, place), x = right_rows<0>(*tile, place);
    const ChunkLeft x_left = left_rows<0>(*tile, place);
    ChunkSums db, dc, cb, dyx;
    clear_sums(&db), clear_sums(&dc), clear_sums(&cb), clear_sums(&dyx);
    __syncwarp();  // everybody has read x
    put_rows<0>(tile, carry->state, place);
    __syncwarp();
    multiply(&db, x_left, rounded(read_columns<0, ChunkRight>(*tile, place)));
    float products[2] = {0.0f, 0.0f}, kept[2], scale[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        kept[r] = ChunkSteps::power(steps.log_end - steps.row_log[r]);
        scale[r] = kept[r] * steps.row_dt[r];
    }
    scale_rows(&db, b, scale, products);
#pragma unroll
    for (int r = 0; r < 2; ++r) terms->future[r] = fmaf(kept[r] * (1.0f / CHUNK_NEAREST), products[r], terms->future[r]), products[r] = 0.0f;
    multiply(&db, n_turned, read_columns<MAMBA_STATE, ChunkRight>(row->bc, place));
    __syncwarp();  // everybody has read H
    put_rows<0>(tile, db, place);
    const ChunkLeft dy = left_rows<MAMBA_HEAD_DIM>(*tile, place), c = left_rows<MAMBA_STATE>(row->bc, place);
    multiply(&dyx, dy, x);
    multiply(&cb, c, b);
    multiply(&dc, dy, state_turned(state, lane));
#pragma unroll
    for (int r = 0; r < 2; ++r) scale[r] = ChunkSteps::power(steps.row_log[r]);
    scale_rows(&dc, c, scale, products);
#pragma unroll
    for (int r = 0; r < 2; ++r) terms->past[r] = fmaf(scale[r] * (1.0f / CHUNK_NEAREST), products[r], terms->past[r]);
    multiply(&dc, straight_map(terms, steps, cb, dyx, g, t), read_columns<0, ChunkRight>(row->bc, place));
    carry_state(carry, steps, read_columns<MAMBA_HEAD_DIM, ChunkLeft>(*tile, place),
                read_columns<MAMBA_STATE, ChunkRight>(row->bc, place), state_operand(state, lane));
    __syncwarp();  // everybody has read dy
    put_rows<MAMBA_STATE>(tile, dc, place);
}

// Sum over the eight lanes of one lane % 4.
static __device__ __forceinline__ float sum_of_rows(float v) {
#pragma unroll
    for (int step = 4; step < 32; step *= 2) v += __shfl_xor_sync(REDUCE_FULL_WARP, v, step);
    return v;
}

// The row's parts of the small gradients.
static __device__ __forceinline__ void write_parts(const BackCarry& carry, float* parts, int head, int lane) {
    const int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int k = 0; k <= MAMBA_TAPS; ++k) {
        const float bc = sum_of_rows(k < MAMBA_TAPS ? carry.bc_taps.tap[k] : carry.bc_taps.bias);
        if (g == 0) parts[k * MAMBA_XBC + MAMBA_INNER + 4 * head + t] = bc;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const float x = group_sum<4>(k < MAMBA_TAPS ? carry.taps[r].tap[k] : carry.taps[r].bias);
            if (t == 0) parts[k * MAMBA_XBC + head * MAMBA_HEAD_DIM + g + 8 * r] = x;
        }
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        const float norm = sum_of_rows(carry.norm[k / 2][k % 2]);
        if (g == 0) parts[ROW_PART_NORM + head * MAMBA_HEAD_DIM + k / 2 * 8 + 2 * t + k % 2] = norm;
    }
    const float a_log = group_sum<CHUNK>(carry.a_log), dt_bias = group_sum<CHUNK>(carry.dt_bias);
    const float skip = warp_sum(carry.skip);
    if (lane != 0) return;
    parts[ROW_PART_A_LOG + head] = a_log, parts[ROW_PART_DT + head] = dt_bias, parts[ROW_PART_SKIP + head] = skip;
}

#endif
