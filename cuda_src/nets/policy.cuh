// The policy of one row: logits of its position class, softmax, probability floor.
//
// pi_all holds every class's logits without bias (one product for all classes); a row uses the block of its class
// and adds the bias and a linear term in the trade context. Where the encoding knows the position (P = 1) there is one
// block, which every class uses. Sampling, the surrogate and evaluation all go through
// these functions, so that "log p" means one thing everywhere: the log of the floored mixture.
#pragma once
#include "generated/isv_slots.cuh"
#include "generated/structure.cuh"
#include "include/math.cuh"
#include "include/rng.cuh"

// Block of a row's position class in a head of P blocks; one block (context in the encoder) serves every class.
static __device__ inline int head_block(int position_class, int P) { return P == 1 ? 0 : position_class; }

// Logit a of a row: pi (of its class, without bias) + b_pi[class, a] + sum_c held[c] w_pi_ctx[c, class, a]; held [3] the
// trade context of the row, column that of its class and a among `width`.
static __device__ inline float policy_logit(float pi, const float* b_pi, const float* w_pi_ctx, const float* held,
                                            int column, long long width) {
    float v = pi + b_pi[column];
    for (int c = 0; c < HEAD_CONTEXT_DIM; ++c) v = fmaf(held[c], w_pi_ctx[c * width + column], v);
    return v;
}

// All of them; pi_row [P*11].
static __device__ inline void policy_row_logits(const float* pi_row, const float* b_pi, const float* w_pi_ctx,
                                                const float* held, int position_class, int P, float* logits) {
    const long long width = (long long)P * N_ACTIONS;
    const int block = position_class * N_ACTIONS;
    for (int a = 0; a < N_ACTIONS; ++a) {
        logits[a] = policy_logit(pi_row[block + a], b_pi, w_pi_ctx, held, block + a, width);
    }
}

// The same of row `row` of pi_all [rows, P*11] and context [rows, 3].
static __device__ inline void policy_logits(const float* pi_all, const float* b_pi, const float* w_pi_ctx,
                                            const float* context, long long row, int position_class, int P,
                                            float* logits) {
    policy_row_logits(pi_all + row * P * N_ACTIONS, b_pi, w_pi_ctx, context + row * HEAD_CONTEXT_DIM, position_class,
                      P, logits);
}

#define TILE_ROWS 128  // rows of a tile, which has as many threads

// Rows of a block, for threads that read adjacent elements together: a row's own logits lie alone among its classes'.
struct PolicyTile {
    float logits[TILE_ROWS * N_ACTIONS];  // of the rows' own classes; rows of 11 lie in different banks
    float held[TILE_ROWS * HEAD_CONTEXT_DIM];
    int block[TILE_ROWS];  // block of the row's class
};

// tile->logits and tile->block of rows first .. first + here - 1 as policy_logits has them; all threads call.
static __device__ inline void policy_logits_tile(const float* pi_all, const float* b_pi, const float* w_pi_ctx,
                                                 const float* context, const int* position_class, int P, int first,
                                                 int here, PolicyTile* tile) {
    const int width = P * N_ACTIONS;
    if ((int)threadIdx.x < here) tile->block[threadIdx.x] = head_block(position_class[first + threadIdx.x], P);
#pragma unroll
    for (int k = 0; k < HEAD_CONTEXT_DIM; ++k) {
        const int i = k * TILE_ROWS + threadIdx.x;
        if (i < here * HEAD_CONTEXT_DIM) tile->held[i] = context[(long long)first * HEAD_CONTEXT_DIM + i];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < N_ACTIONS; ++k) {
        const int i = k * TILE_ROWS + threadIdx.x, row = i / N_ACTIONS;
        if (row >= here) continue;
        const int column = tile->block[row] * N_ACTIONS + i - row * N_ACTIONS;
        float v = pi_all[(long long)(first + row) * width + column] + b_pi[column];
        for (int c = 0; c < HEAD_CONTEXT_DIM; ++c) {
            v = fmaf(tile->held[row * HEAD_CONTEXT_DIM + c], w_pi_ctx[c * width + column], v);
        }
        tile->logits[i] = v;
    }
    __syncthreads();
}

// Largest of the logits.
static __device__ inline float policy_top(const float* logits) {
    float top = logits[0];
    for (int a = 1; a < N_ACTIONS; ++a) top = logits[a] > top ? logits[a] : top;
    return top;
}

// soft = softmax(logits). NaN in, NaN out.
static __device__ inline void policy_softmax(const float* logits, float* soft) {
    const float top = policy_top(logits);
    float sum = 0.0f;
    for (int a = 0; a < N_ACTIONS; ++a) {
        soft[a] = expf(logits[a] - top);
        sum += soft[a];
    }
    for (int a = 0; a < N_ACTIONS; ++a) soft[a] /= sum;
}

// The probability an action is drawn with: p = p_min + (1 - 11 p_min) softmax.
static __device__ inline float policy_floored(float soft, float p_min) {
    return fmaf(1.0f - N_ACTIONS * p_min, soft, p_min);
}

// Entropy of the softmax, nats. 0 ln 0 = 0.
static __device__ inline float policy_entropy(const float* soft) {
    float h = 0.0f;
    for (int a = 0; a < N_ACTIONS; ++a) {
        if (!(soft[a] == 0.0f)) h -= soft[a] * logf(soft[a]);
    }
    return h;
}

struct PolicyDraw {
    int action;
    float log_prob;  // nats
};

// The draw from the softmax [11]; greedy: no random number is used.
static __device__ inline PolicyDraw policy_draw(const float* soft, float p_min, unsigned int* rng, bool greedy) {
    int drawn = 0;
    float chosen = soft[0];
    const float u = greedy ? 0.0f : uniform01(rng);
    float cumulative = policy_floored(soft[0], p_min);
    bool walking = !greedy;
    for (int a = 1; a < N_ACTIONS; ++a) {  // no index that the compiler does not know: soft stays in registers
        walking = walking && u >= cumulative;
        const bool takes = greedy ? soft[a] > chosen : walking;
        if (walking) cumulative += policy_floored(soft[a], p_min);
        drawn = takes ? a : drawn;
        chosen = takes ? soft[a] : chosen;
    }
    if (!is_finite(chosen)) {
        drawn = ACTION_HOLD;
        chosen = soft[ACTION_HOLD];
    }
    return {drawn, logf(policy_floored(chosen, p_min))};
}

// rl_pi_action_kernel: the draw from logits [11].
static __device__ inline PolicyDraw pi_action_row(const float* logits, float p_min, unsigned int* rng, bool greedy) {
    float soft[N_ACTIONS];
    policy_softmax(logits, soft);
    return policy_draw(soft, p_min, rng, greedy);
}

// Mean value of the actions that lead to the same position as action a; q [11], next_class [11] of the row's class.
// Path targets do not tell such actions apart: what their values differ by is noise. Order of addition: by action.
static __device__ inline float shared_value(const float* q, const signed char* next_class, int a) {
    float sum = 0.0f, count = 0.0f;
    for (int i = 0; i < N_ACTIONS; ++i) {
        const bool same = next_class[i] == next_class[a];
        sum += same ? q[i] : 0.0f;
        count += same ? 1.0f : 0.0f;
    }
    return sum / count;
}

// rl_q_action_kernel: the action of greatest value, q [11]. by_position: of greatest shared value.
static __device__ inline int q_action_row(const float* q, const signed char* next_class, bool by_position) {
    int best = ACTION_HOLD;
    float top = by_position ? shared_value(q, next_class, ACTION_HOLD) : q[ACTION_HOLD];
    for (int a = 0; a < N_ACTIONS; ++a) {
        const float value = by_position ? shared_value(q, next_class, a) : q[a];
        const bool takes = value > top;
        best = takes ? a : best;
        top = takes ? value : top;
    }
    return best;
}

#define POPART_SIGMA_FLOOR 1e-4f

// Standard deviation of the returns from PopArt's running moments.
static __device__ inline float popart_sigma(float mean, float second_moment) {
    const float variance = fmaf(-mean, mean, second_moment);
    return variance > POPART_SIGMA_FLOOR * POPART_SIGMA_FLOOR ? sqrtf(variance) : POPART_SIGMA_FLOOR;
}

// rl_value_rows, row `row`.
static __device__ inline float value_rows_row(const float* v_all, const float* b_v, const float* w_v_ctx,
                                              const float* context, const int* position_class, const float* isv, int P,
                                              int row) {
    const int c = head_block(position_class[row], P);
    float raw = v_all[(long long)row * P + c] + b_v[c];
    for (int k = 0; k < HEAD_CONTEXT_DIM; ++k) {
        raw = fmaf(context[(long long)row * HEAD_CONTEXT_DIM + k], w_v_ctx[k * P + c], raw);
    }
    return fmaf(popart_sigma(isv[ISV_POPART_MEAN], isv[ISV_POPART_SECOND_MOMENT]), raw, isv[ISV_POPART_MEAN]);
}
