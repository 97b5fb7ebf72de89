// What the kernels in ppo.cu do, as functions that a fused kernel may call as well.
#pragma once
#include "generated/isv_slots.cuh"
#include "include/columns.cuh"
#include "include/spread.cuh"
#include "nets/policy.cuh"

#define ADVANTAGE_STD_FLOOR 1e-6f  // under the standard deviation of the advantages
#define VALUE_HUBER_KAPPA 1.0f     // in units of the normalised return

// gae_advantage, one step of the backward sweep: A_t from A_{t+1}.
static __device__ inline float gae_step(float reward, bool terminal, float value, float next_value, float gamma,
                                        float lambda, float carried) {
    const float keep = terminal ? 0.0f : gamma;
    const float delta = fmaf(keep, next_value, reward) - value;
    return fmaf(keep * lambda, carried, delta);
}

static __device__ inline float gae_target(float advantage, float value, float bound) {
    return clampf(advantage + value, -bound, bound);
}

#define ADVANTAGE_ROWS 8     // rows b of a part, with all their steps
#define ADVANTAGE_SUMS 6     // rows counted, their A, |A|; returns, their squares, those that are not finite
#define ADVANTAGE_COLUMNS 7  // and the squared deviations of A

// rl_advantage_statistics, the part of rows first .. first + 7: sums into columns->totals; squared deviations of A come
// back, to all threads.
static __device__ inline float advantage_part(const float* advantage, const unsigned char* overridden,
                                              const float* value_target, Columns<ADVANTAGE_SUMS>* columns,
                                              Columns<1>* square, int mask_overridden, int first, int T, int B) {
    float sums[ADVANTAGE_SUMS], deviation[1];
    columns->begin(sums);
    square->begin(deviation);
#pragma unroll 4
    for (int i = threadIdx.x; i < T * ADVANTAGE_ROWS; i += COLUMN_THREADS) {
        const int b = first + i % ADVANTAGE_ROWS, row = i / ADVANTAGE_ROWS * B + b;
        if (b >= B) continue;
        const float a = advantage[row], g = value_target[row];
        const bool counts = !(mask_overridden && overridden[row]);
        sums[0] += counts ? 1.0f : 0.0f;
        sums[1] += counts ? a : 0.0f;
        sums[2] += counts ? fabsf(a) : 0.0f;
        sums[3] += g;
        sums[4] = fmaf(g, g, sums[4]);
        sums[5] += is_finite(g) ? 0.0f : 1.0f;
    }
    columns->of_threads(sums);
    const float count = columns->totals[0], mean = columns->totals[1] / (count > 0.0f ? count : 1.0f);
#pragma unroll 4
    for (int i = threadIdx.x; i < T * ADVANTAGE_ROWS; i += COLUMN_THREADS) {
        const int b = first + i % ADVANTAGE_ROWS, row = i / ADVANTAGE_ROWS * B + b;
        if (b >= B || (mask_overridden && overridden[row])) continue;
        const float d = advantage[row] - mean;
        deviation[0] = fmaf(d, d, deviation[0]);
    }
    square->of_threads(deviation);
    return square->totals[0];
}

// rl_advantage_statistics, one thread: totals [ADVANTAGE_SUMS] of all parts.
static __device__ inline void advantage_statistics_finish(const float* totals, float square, float* moments, float* isv,
                                                          int T, int B) {
    const float count = totals[0], floor_count = count > 0.0f ? count : 1.0f, rows = (float)T * (float)B;
    const float std = sqrtf(square / floor_count);
    moments[0] = count > 1.0f ? totals[1] / floor_count : 0.0f;
    moments[1] = count > 1.0f ? 1.0f / (std + ADVANTAGE_STD_FLOOR) : count;
    moments[2] = count;
    moments[3] = totals[3] / rows;
    moments[4] = totals[4] / rows;
    moments[5] = totals[5];
    isv[ISV_ADV_ABS_MEAN] = totals[2] / floor_count;
}

// What the surrogate knows of a row.
struct SurrogateRow {
    float soft[N_ACTIONS], log_ratio, loss, entropy;
};

// soft[action], by comparisons: an array that is indexed by a number unknown to the compiler leaves the registers.
static __device__ inline float soft_of(const float* soft, int action) {
    float found = 0.0f;
#pragma unroll
    for (int a = 0; a < N_ACTIONS; ++a) found = a == action ? soft[a] : found;
    return found;
}

// ppo_clipped_surrogate_fwd, row `row` with its logits [11].
static __device__ inline SurrogateRow ppo_clipped_surrogate_fwd_row(const float* logits,
                                                                    const signed char* action_drawn,
                                                                    const float* log_prob, const float* advantage,
                                                                    const unsigned char* overridden,
                                                                    const float* moments, const float* isv,
                                                                    int mask_overridden, int row) {
    SurrogateRow found;
    policy_softmax(logits, found.soft);
    found.entropy = policy_entropy(found.soft);
    const float p = policy_floored(soft_of(found.soft, action_drawn[row]), isv[ISV_P_MIN]);
    found.log_ratio = logf(p) - log_prob[row];
    const float ratio_max = isv[ISV_PPO_RATIO_CLAMP_MAX], eps = isv[ISV_PPO_CLIP_EPS];
    const float rho = clampf(expf(found.log_ratio), 1.0f / ratio_max, ratio_max);
    const float normal = (advantage[row] - moments[0]) * moments[1];
    const float free = rho * normal, clipped = clampf(rho, 1.0f - eps, 1.0f + eps) * normal;
    const bool masked = mask_overridden && overridden[row];
    found.loss = masked ? 0.0f : -(clipped < free ? clipped : free);
    return found;
}

// ppo_clipped_surrogate_bwd, row `row` with its soft [11], log-ratio and entropy: out [11], of the logits of its class.
static __device__ inline void ppo_clipped_surrogate_bwd_row(const float* soft, float log_ratio, float entropy,
                                                            const signed char* action_drawn, const float* advantage,
                                                            const unsigned char* overridden, const float* moments,
                                                            const float* isv, float* out, int rows, int mask_overridden,
                                                            int row) {
    const int drawn = action_drawn[row];
    const float p_min = isv[ISV_P_MIN], eps = isv[ISV_PPO_CLIP_EPS], ratio_max = isv[ISV_PPO_RATIO_CLAMP_MAX];
    const float normal = (advantage[row] - moments[0]) * moments[1];
    const float raw = expf(log_ratio);
    const bool masked = mask_overridden && overridden[row];
    const bool clamped = raw > ratio_max || raw < 1.0f / ratio_max;
    const bool clipped = normal >= 0.0f ? raw > 1.0f + eps : raw < 1.0f - eps;
    float pull = 0.0f;  // d loss / d logits = pull * s_a-weighted softmax derivative
    if (!masked && !clamped && !clipped && moments[2] > 0.0f) {
        const float chosen = soft_of(soft, drawn), p = policy_floored(chosen, p_min);
        pull = -normal * raw * (1.0f - N_ACTIONS * p_min) * chosen / (p * moments[2]);
    }
    const float weight = isv[ISV_LOSS_LAMBDA_PI];
    const float entropy_pull = isv[ISV_ENTROPY_COEF] / rows;
#pragma unroll
    for (int i = 0; i < N_ACTIONS; ++i) {
        const float hot = i == drawn ? 1.0f : 0.0f;
        const float log_soft = soft[i] == 0.0f ? 0.0f : logf(soft[i]);
        out[i] = weight * (pull * (hot - soft[i]) + entropy_pull * soft[i] * (log_soft + entropy));
    }
}

// rl_value_loss_grad, one row: its loss, and its gradient with respect to the output of its class.
struct ValueLoss {
    float loss, grad;
};

static __device__ inline ValueLoss value_loss_grad_row(float value, float value_target, const float* isv, int rows) {
    const float sigma = popart_sigma(isv[ISV_POPART_MEAN], isv[ISV_POPART_SECOND_MOMENT]);
    const float error = (value - value_target) / sigma;
    const float slope = huber_slope(error, VALUE_HUBER_KAPPA);
    return {huber(error, VALUE_HUBER_KAPPA), isv[ISV_LOSS_LAMBDA_V] * slope / rows};
}

#define ENTROPY_EMA_RATE 0.05f

#define LOSS_PART 128  // rows of a part
#define LOSS_SUMS 3    // policy losses, value losses, entropies

// rl_loss_reduce: what becomes of the totals (one thread), and all of it by one block.
static __device__ inline void loss_reduce_finish(const float* totals, const float* moments, float* isv, int rows) {
    if (moments[2] > 0.0f) isv[ISV_LOSS_PI] = totals[0] / moments[2];
    isv[ISV_LOSS_V] = totals[1] / rows;
    const float old = isv[ISV_ENTROPY_OBSERVED_EMA], entropy = totals[2] / rows;
    isv[ISV_ENTROPY_OBSERVED_EMA] = old == 0.0f ? entropy : ema(old, entropy, ENTROPY_EMA_RATE);
}

static __device__ inline void loss_reduce_block(const float* row_loss_pi, const float* row_loss_v,
                                                const float* row_entropy, const float* moments, float* isv, int rows) {
    __shared__ Columns<LOSS_SUMS> columns;
    columns_of_rows(columns, rows, LOSS_PART, [&](long long row, float* sums) {
        sums[0] += row_loss_pi[row];
        sums[1] += row_loss_v[row];
        sums[2] += row_entropy[row];
    });
    if (threadIdx.x == 0) loss_reduce_finish(columns.totals, moments, isv, rows);
}
