// The on-policy update: advantages, the clipped surrogate through the floored mixture, entropy, value loss.
#include "generated/isv_slots.cuh"
#include "include/reduce.cuh"
#include "nets/policy.cuh"

#define ADVANTAGE_STD_FLOOR 1e-6f  // under the standard deviation of the advantages
#define VALUE_HUBER_KAPPA 1.0f     // in units of the normalised return

// gae_advantage: generalised advantage estimation (Schulman 2016), one backward sweep a row.
// launch: threads B, block 64
// One thread a row. reward, terminal [T, B]; value [T+1, B]; advantage, value_target [T, B].
//   delta_t = r_t + gamma (1 - d_t) V_{t+1} - V_t ;  A_t = delta_t + gamma lambda (1 - d_t) A_{t+1}
// Episodes end at the end of an iteration only, so V_T is the bootstrap of truncated rows too (class flat by then).
// value_target = A + V, bounded by V_TARGET_CLAMP. Slots read: GAMMA, GAE_LAMBDA, V_TARGET_CLAMP.
extern "C" __global__ void gae_advantage(const float* reward, const unsigned char* terminal, const float* value,
                                         const float* isv, float* advantage, float* value_target, int B, int T) {
    int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= B) return;
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

// rl_advantage_statistics: mean and standard deviation of the advantages that the surrogate uses.
// launch: blocks 1, block 128
// One block, fixed order. advantage [rows]; overridden [rows]; moments [3] = mean, 1 / std, rows counted.
// mask_overridden != 0 leaves out rows whose executed action the policy did not choose. No row at all: 0, 0, 0. One row
// has no spread to be measured by: 0, 1, 1, its advantage is used as it is.
// Slots written: ADV_ABS_MEAN.
extern "C" __global__ void rl_advantage_statistics(const float* advantage, const unsigned char* overridden,
                                                   float* moments, float* isv, int rows, int mask_overridden) {
    __shared__ float scratch[32];
    float count = 0.0f, sum = 0.0f, magnitude = 0.0f;
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

// ppo_clipped_surrogate_fwd: loss of each row and the softmax the backward needs.
// launch: threads rows, block 64
// One thread a row. pi_all [rows, P*11], b_pi, w_pi_ctx, context, position_class as in rl_pi_action_kernel;
// action_drawn, log_prob (of the draw), advantage, overridden [rows]; moments [3] of rl_advantage_statistics;
// pi_soft [rows, 11]; log_ratio, row_loss_pi, row_entropy [rows].
//   rho = p_new / p_old kept in [1/max, max] first;  loss = -min(rho A, clip(rho, 1 - eps, 1 + eps) A)  (Schulman 2017)
// A is normalised by moments. A masked row has loss 0. Entropy is that of the softmax, nats.
// Slots read: P_MIN, PPO_CLIP_EPS, PPO_RATIO_CLAMP_MAX.
extern "C" __global__ void ppo_clipped_surrogate_fwd(const float* pi_all, const float* b_pi, const float* w_pi_ctx,
                                                     const float* context, const int* position_class,
                                                     const signed char* action_drawn, const float* log_prob,
                                                     const float* advantage, const unsigned char* overridden,
                                                     const float* moments, const float* isv, float* pi_soft,
                                                     float* log_ratio, float* row_loss_pi, float* row_entropy,
                                                     int rows, int P, int mask_overridden) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
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

// ppo_clipped_surrogate_bwd: gradient of surrogate and entropy bonus with respect to all classes' logits.
// launch: threads rows, block 64
// One thread a row, which owns its whole row of grad_pi_all [rows, P*11]: zero outside its class's block.
//   d loss / d rho = -A where the unclipped branch is the smaller one and the ratio clamp is inactive, else 0
//   d rho / d logit_i = rho (1 - 11 P_MIN) s_a (1[i = a] - s_i) / p_a
//   d (-c H) / d logit_i = c s_i (ln s_i + H)
// Surrogate rows share 1 / counted rows, entropy 1 / rows; both carry LOSS_LAMBDA_PI.
// Slots read: P_MIN, PPO_CLIP_EPS, PPO_RATIO_CLAMP_MAX, ENTROPY_COEF, LOSS_LAMBDA_PI.
extern "C" __global__ void ppo_clipped_surrogate_bwd(const float* pi_soft, const float* log_ratio,
                                                     const float* row_entropy, const int* position_class,
                                                     const signed char* action_drawn, const float* advantage,
                                                     const unsigned char* overridden, const float* moments,
                                                     const float* isv, float* grad_pi_all, int rows, int P,
                                                     int mask_overridden) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
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

    const long long width = (long long)P * N_ACTIONS;
    float* out = grad_pi_all + row * width;
    for (long long i = 0; i < width; ++i) out[i] = 0.0f;
    out += head_block(position_class[row], P) * N_ACTIONS;
    for (int i = 0; i < N_ACTIONS; ++i) {
        const float hot = i == drawn ? 1.0f : 0.0f;
        const float log_soft = soft[i] == 0.0f ? 0.0f : logf(soft[i]);
        out[i] = weight * (pull * (hot - soft[i]) + entropy_pull * soft[i] * (log_soft + entropy));
    }
}

// rl_value_loss_grad: Huber loss of the normalised value and its gradient with respect to all classes' outputs.
// launch: threads rows, block 64
// One thread a row, which owns its row of grad_v_all [rows, P]. value, value_target, row_loss_v [rows].
// Normalised error = (value - target) / sigma (PopArt); gradient carries LOSS_LAMBDA_V / rows.
// Slots read: LOSS_LAMBDA_V, POPART_MEAN, POPART_SECOND_MOMENT.
extern "C" __global__ void rl_value_loss_grad(const float* value, const float* value_target, const int* position_class,
                                              const float* isv, float* grad_v_all, float* row_loss_v, int rows,
                                              int P) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float sigma = popart_sigma(isv[ISV_POPART_MEAN], isv[ISV_POPART_SECOND_MOMENT]);
    const float error = (value[row] - value_target[row]) / sigma;
    row_loss_v[row] = huber(error, VALUE_HUBER_KAPPA);
    for (int c = 0; c < P; ++c) grad_v_all[(long long)row * P + c] = 0.0f;
    const float slope = huber_slope(error, VALUE_HUBER_KAPPA);
    grad_v_all[(long long)row * P + head_block(position_class[row], P)] = isv[ISV_LOSS_LAMBDA_V] * slope / rows;
}

#define ENTROPY_EMA_RATE 0.05f

// rl_loss_reduce: mean policy and value losses and the entropy signal of the iteration.
// launch: blocks 1, block 128
// updates: isv
// One block, fixed order. row_loss_pi, row_loss_v, row_entropy [rows]; moments[2] = rows the surrogate counted.
// Slots written: LOSS_PI (no row counted: left alone), LOSS_V, ENTROPY_OBSERVED_EMA (first observation as it is).
extern "C" __global__ void rl_loss_reduce(const float* row_loss_pi, const float* row_loss_v, const float* row_entropy,
                                          const float* moments, float* isv, int rows) {
    __shared__ float scratch[32];
    float pi = 0.0f, v = 0.0f, entropy = 0.0f;
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
