// What the kernels that teach the policy share: numbers of one item (row, class), eleven actions in a thread's registers.
#pragma once
#include "generated/isv_slots.cuh"
#include "include/reduce.cuh"
#include "nets/lanes.cuh"
#include "nets/policy.cuh"

#define SIGNAL_RATE 0.05f  // EMA rate per update
#define ACTION_GAP_FLOOR 1e-6f

// Largest of eleven numbers.
static __device__ inline float action_max(const float* q) {
    float top = q[0];
    for (int a = 1; a < N_ACTIONS; ++a) top = q[a] > top ? q[a] : top;
    return top;
}

// The first of the largest.
static __device__ inline int best_action_of(const float* q) {
    int best = 0;
    for (int a = 1; a < N_ACTIONS; ++a) best = q[a] > q[best] ? a : best;
    return best;
}

// max - mean.
static __device__ inline float action_gap_of(const float* q) {
    float sum = 0.0f;
    for (int a = 0; a < N_ACTIONS; ++a) sum += q[a];
    return action_max(q) - sum / N_ACTIONS;
}

// The scale of the distillation temperature from the mean gap; NaN stays NaN.
static __device__ inline float floored_gap(float mean) { return mean < ACTION_GAP_FLOOR ? ACTION_GAP_FLOOR : mean; }

// sum_a p_a (ln p_a - ln s_a), by the log-softmax forms so that nothing underflows: 0 ln 0 = 0.
static __device__ inline float categorical_kl(const float* p, const float* log_p, const float* log_s) {
    float kl = 0.0f;
    for (int a = 0; a < N_ACTIONS; ++a) {
        if (!(p[a] == 0.0f)) kl = fmaf(p[a], log_p[a] - log_s[a], kl);
    }
    return kl;
}

// soft = softmax(x), log_soft = its logarithm.
static __device__ inline void softmax_and_log(const float* x, float* soft, float* log_soft) {
    const float top = action_max(x);
    float sum = 0.0f;
    for (int a = 0; a < N_ACTIONS; ++a) soft[a] = lanes_exp(x[a] - top);
    for (int a = 0; a < N_ACTIONS; ++a) sum += soft[a];
    const float log_sum = logf(sum), inverse = 1.0f / sum;
    for (int a = 0; a < N_ACTIONS; ++a) {
        soft[a] *= inverse;
        log_soft[a] = x[a] - top - log_sum;
    }
}

#define SHARE_FLOOR 1e-30f  // a probability below it is shared out no further

// What actions that lead to the same position are to have together, each gets in proportion to what it has: the critic
// has no opinion about their odds, so there is no pull on them. target, log_target <- that split.
static __device__ inline void split_by_position(const signed char* next_class, const float* soft, const float* log_soft,
                                                float* target, float* log_target) {
    float wanted[N_ACTIONS], held[N_ACTIONS];
#pragma unroll
    for (int a = 0; a < N_ACTIONS; ++a) wanted[a] = target[a], held[a] = soft[a];
#pragma unroll
    for (int a = 0; a < N_ACTIONS; ++a) {
#pragma unroll
        for (int i = 0; i < a; ++i) {
            if (next_class[i] != next_class[a]) continue;
            wanted[a] += target[i], held[a] += soft[i];
            wanted[i] += target[a], held[i] += soft[a];
        }
    }
#pragma unroll
    for (int a = 0; a < N_ACTIONS; ++a) {
        if (!(held[a] > SHARE_FLOOR && wanted[a] > SHARE_FLOOR)) continue;
        const float ratio = wanted[a] * lanes_reciprocal(held[a]);
        target[a] = ratio * soft[a];
        log_target[a] = log_soft[a] + logf(ratio);
    }
}

// grad += scale (soft - target), target = softmax((q - max q) / temperature), by_position: split as above; returns
// KL(target || soft).
static __device__ inline float add_distillation(const float* q, const signed char* next_class, bool by_position,
                                                float temperature, float scale, const float* soft,
                                                const float* log_soft, float* grad) {
    float wanted[N_ACTIONS], target[N_ACTIONS], log_target[N_ACTIONS];
    const float top = action_max(q), inverse = 1.0f / temperature;
    for (int a = 0; a < N_ACTIONS; ++a) wanted[a] = (q[a] - top) * inverse;
    softmax_and_log(wanted, target, log_target);
    if (by_position) split_by_position(next_class, soft, log_soft, target, log_target);
    for (int a = 0; a < N_ACTIONS; ++a) grad[a] += scale * (soft[a] - target[a]);
    return categorical_kl(target, log_target, log_soft);
}

// grad += scale (soft - reference): Hold has `hold`, the other ten share the rest; returns KL(reference || soft).
static __device__ inline float add_reference(float hold, float scale, const float* soft, const float* log_soft,
                                             float* grad) {
    float reference[N_ACTIONS], log_reference[N_ACTIONS];
    for (int a = 0; a < N_ACTIONS; ++a) {
        reference[a] = a == ACTION_HOLD ? hold : (1.0f - hold) / (N_ACTIONS - 1);
        log_reference[a] = logf(reference[a]);
    }
    for (int a = 0; a < N_ACTIONS; ++a) grad[a] += scale * (soft[a] - reference[a]);
    return categorical_kl(reference, log_reference, log_soft);
}

// A slot that follows an observation; the first one replaces the sentinel 0.
static __device__ inline float signal_of(float old, float seen) { return old == 0.0f ? seen : ema(old, seen, SIGNAL_RATE); }
