// What the kernels in ppo.cu do, as functions that a fused kernel may call as well.
#pragma once
#include "generated/isv_slots.cuh"
#include "include/reduce.cuh"
#include "nets/policy.cuh"

#define ADVANTAGE_STD_FLOOR 1e-6f  // under the standard deviation of the advantages
#define VALUE_HUBER_KAPPA 1.0f     // in units of the normalised return

// gae_advantage, row b.
static __device__ inline void gae_advantage_row(const float* reward, const unsigned char* terminal, const float* value,
                                                const float* isv, float* advantage, float* value_target, int B, int T,
                                                int b) {
    const float gamma = isv[ISV_GAMMA], lambda = isv[ISV_GAE_LAMBDA], bound = isv[ISV_V_TARGET_CLAMP];
    float carried = 0.0f;
    for (int t = T - 1; t >= 0; --t) {
        const long long row = (long long)t * B + b;
        const float keep = terminal[row] ? 0.0f : gamma;
        const float delta = fmaf(keep, value[row + B], reward[row]) - value[row];
        carried = fmaf(keep * lambda, carried, delta);
        advantage[row] = carried;
        value_target[row] = clampf(carried + value[row], -bound, bound);
    }
}

// rl_advantage_statistics.
static __device__ inline void advantage_statistics_block(const float* advantage, const unsigned char* overridden,
                                                       float* moments, float* isv, int rows, int mask_overridden) {
    __shared__ float scratch[32];
    float count = 0.0f, sum = 0.0f, magnitude = 0.0f;
#pragma unroll 8
    for (int r = threadIdx.x; r < rows; r += blockDim.x) {
        if (mask_overridden && overridden[r]) continue;
        count += 1.0f;
        sum += advantage[r];
        magnitude += fabsf(advantage[r]);
    }
    count = block_sum(count, scratch);
    const float floor_count = count > 0.0f ? count : 1.0f;
    const float mean = block_sum(sum, scratch) / floor_count;
    magnitude = block_sum(magnitude, scratch) / floor_count;
    float square = 0.0f;
#pragma unroll 8
    for (int r = threadIdx.x; r < rows; r += blockDim.x) {
        if (mask_overridden && overridden[r]) continue;
        const float d = advantage[r] - mean;
        square = fmaf(d, d, square);
    }
    const float std = sqrtf(block_sum(square, scratch) / floor_count);
    if (threadIdx.x == 0) {
        moments[0] = count > 1.0f ? mean : 0.0f;
        moments[1] = count > 1.0f ? 1.0f / (std + ADVANTAGE_STD_FLOOR) : count;
        moments[2] = count;
        isv[ISV_ADV_ABS_MEAN] = magnitude;
    }
}

// ppo_clipped_surrogate_fwd, row `row`.
static __device__ inline void ppo_clipped_surrogate_fwd_row(
    const float* pi_all, const float* b_pi, const float* w_pi_ctx, const float* context, const int* position_class,
    const signed char* action_drawn, const float* log_prob, const float* advantage, const unsigned char* overridden,
    const float* moments, const float* isv, float* pi_soft, float* log_ratio, float* row_loss_pi, float* row_entropy,
    int P, int mask_overridden, int row) {
    float logits[N_ACTIONS], soft[N_ACTIONS];
    policy_logits(pi_all, b_pi, w_pi_ctx, context, row, head_block(position_class[row], P), P, logits);
    policy_softmax(logits, soft);
    for (int a = 0; a < N_ACTIONS; ++a) pi_soft[(long long)row * N_ACTIONS + a] = soft[a];
    row_entropy[row] = policy_entropy(soft);

    const float lr = logf(policy_floored(soft[action_drawn[row]], isv[ISV_P_MIN])) - log_prob[row];
    log_ratio[row] = lr;
    const float ratio_max = isv[ISV_PPO_RATIO_CLAMP_MAX], eps = isv[ISV_PPO_CLIP_EPS];
    const float rho = clampf(expf(lr), 1.0f / ratio_max, ratio_max);
    const float normal = (advantage[row] - moments[0]) * moments[1];
    const float free = rho * normal, clipped = clampf(rho, 1.0f - eps, 1.0f + eps) * normal;
    const bool masked = mask_overridden && overridden[row];
    row_loss_pi[row] = masked ? 0.0f : -(clipped < free ? clipped : free);
}

// ppo_clipped_surrogate_bwd, row `row`: the logits of its class; those of the others are zero and not written here.
static __device__ inline void ppo_clipped_surrogate_bwd_row(
    const float* pi_soft, const float* log_ratio, const float* row_entropy, const int* position_class,
    const signed char* action_drawn, const float* advantage, const unsigned char* overridden, const float* moments,
    const float* isv, float* grad_pi_all, int rows, int P, int mask_overridden, int row) {
    const float* soft = pi_soft + (long long)row * N_ACTIONS;
    const int drawn = action_drawn[row];
    const float p_min = isv[ISV_P_MIN], eps = isv[ISV_PPO_CLIP_EPS], ratio_max = isv[ISV_PPO_RATIO_CLAMP_MAX];
    const float normal = (advantage[row] - moments[0]) * moments[1];
    const float raw = expf(log_ratio[row]);
    const bool masked = mask_overridden && overridden[row];
    const bool clamped = raw > ratio_max || raw < 1.0f / ratio_max;
    const bool clipped = normal >= 0.0f ? raw > 1.0f + eps : raw < 1.0f - eps;
    float pull = 0.0f;  // d loss / d logits = pull * s_a-weighted softmax derivative
    if (!masked && !clamped && !clipped && moments[2] > 0.0f) {
        const float p = policy_floored(soft[drawn], p_min);
        pull = -normal * raw * (1.0f - N_ACTIONS * p_min) * soft[drawn] / (p * moments[2]);
    }
    const float weight = isv[ISV_LOSS_LAMBDA_PI];
    const float entropy_pull = isv[ISV_ENTROPY_COEF] / rows, entropy = row_entropy[row];

    float* out = grad_pi_all + ((long long)row * P + head_block(position_class[row], P)) * N_ACTIONS;
    for (int i = 0; i < N_ACTIONS; ++i) {
        const float hot = i == drawn ? 1.0f : 0.0f;
        const float log_soft = soft[i] == 0.0f ? 0.0f : logf(soft[i]);
        out[i] = weight * (pull * (hot - soft[i]) + entropy_pull * soft[i] * (log_soft + entropy));
    }
}

// rl_value_loss_grad, row `row`: the output of its class; those of the others are zero and not written here.
static __device__ inline void value_loss_grad_row(const float* value, const float* value_target,
                                                  const int* position_class, const float* isv, float* grad_v_all,
                                                  float* row_loss_v, int rows, int P, int row) {
    const float sigma = popart_sigma(isv[ISV_POPART_MEAN], isv[ISV_POPART_SECOND_MOMENT]);
    const float error = (value[row] - value_target[row]) / sigma;
    row_loss_v[row] = huber(error, VALUE_HUBER_KAPPA);
    const float slope = huber_slope(error, VALUE_HUBER_KAPPA);
    grad_v_all[(long long)row * P + head_block(position_class[row], P)] = isv[ISV_LOSS_LAMBDA_V] * slope / rows;
}

#define ENTROPY_EMA_RATE 0.05f

// rl_loss_reduce.
static __device__ inline void loss_reduce_block(const float* row_loss_pi, const float* row_loss_v,
                                              const float* row_entropy, const float* moments, float* isv, int rows) {
    __shared__ float scratch[32];
    float pi = 0.0f, v = 0.0f, entropy = 0.0f;
#pragma unroll 8
    for (int r = threadIdx.x; r < rows; r += blockDim.x) {
        pi += row_loss_pi[r];
        v += row_loss_v[r];
        entropy += row_entropy[r];
    }
    pi = block_sum(pi, scratch);
    v = block_sum(v, scratch) / rows;
    entropy = block_sum(entropy, scratch) / rows;
    if (threadIdx.x == 0) {
        if (moments[2] > 0.0f) isv[ISV_LOSS_PI] = pi / moments[2];
        isv[ISV_LOSS_V] = v;
        const float old = isv[ISV_ENTROPY_OBSERVED_EMA];
        isv[ISV_ENTROPY_OBSERVED_EMA] = old == 0.0f ? entropy : ema(old, entropy, ENTROPY_EMA_RATE);
    }
}
