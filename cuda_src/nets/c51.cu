// The C51 head: expectations, double-DQN choice, targets, losses and their gradients.
//
// c51_logits [rows, P*11*21] hold the product without bias; b_c51 [P*11*21] is added where they are read, so that the
// product is written once. Span of the atoms: slots C51_V_MIN, C51_V_MAX, read at use.
#include "include/reduce.cuh"
#include "nets/c51.cuh"

#define Q_BIAS_RATE 0.05f  // EMA rate per update

// rl_atom_support_update: the atoms as numbers, for people and other kernels.
// launch: threads 21, block 32
// One thread an atom. c51_atoms [21] = linspace(V_MIN, V_MAX), ends exact. Slots read: C51_V_MIN, C51_V_MAX.
extern "C" __global__ void rl_atom_support_update(const float* isv, float* c51_atoms) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < C51_ATOMS) c51_atoms[i] = c51_atom(i, isv[ISV_C51_V_MIN], isv[ISV_C51_V_MAX]);
}

// rl_c51_expected_q: E[Q] of every pair.
// launch: threads rows*P*11, block 64
// One thread a pair. c51_logits [rows, P*11*21] of a chunk of rows that begins at row0 of c51_q [*, P*11].
// Slots read: C51_V_MIN, C51_V_MAX.
extern "C" __global__ void rl_c51_expected_q(const float* c51_logits, const float* b_c51, const float* isv,
                                             float* c51_q, int rows, int P, int row0) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int pairs = P * N_ACTIONS;
    if (i >= rows * pairs) return;
    float x[C51_PADDED], prob[C51_PADDED];
    c51_softmax(c51_logits + (long long)i * C51_ATOMS, b_c51 + (long long)(i % pairs) * C51_ATOMS, x, prob);
    c51_q[(long long)row0 * pairs + i] = c51_mean(prob, isv[ISV_C51_V_MIN], isv[ISV_C51_V_MAX]);
}

// rl_c51_row_q: mean and standard deviation of Q for the actions of each row's own class.
// launch: threads rows*11, block 64
// One thread a (row, action), which walks the 128 inputs with 21 sums in registers. h [*, 128] and position_class
// [*] are read from row t*rows on (one environment step); w_c51 [128, P*11*21], b_c51; q_mean, q_sigma [rows, 11].
// P = 1: every row uses the one block. Slots read: C51_V_MIN, C51_V_MAX.
extern "C" __global__ void rl_c51_row_q(const float* h, const float* w_c51, const float* b_c51,
                                        const int* position_class, const float* isv, float* q_mean, float* q_sigma,
                                        int rows, int P, int t) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * N_ACTIONS) return;
    const int row = i / N_ACTIONS, action = i - row * N_ACTIONS;
    const long long from = (long long)t * rows + row;
    const long long columns = (long long)P * N_ACTIONS * C51_ATOMS;
    const long long column = ((P == 1 ? 0 : position_class[from]) * N_ACTIONS + action) * C51_ATOMS;
    float logits[C51_PADDED], x[C51_PADDED], prob[C51_PADDED];
    for (int z = 0; z < C51_ATOMS; ++z) logits[z] = 0.0f;
    for (int k = 0; k < HIDDEN_DIM; ++k) {
        const float input = h[from * HIDDEN_DIM + k];
        const float* w = w_c51 + k * columns + column;
#pragma unroll
        for (int z = 0; z < C51_ATOMS; ++z) logits[z] = fmaf(input, w[z], logits[z]);
    }
    c51_softmax(logits, b_c51 + column, x, prob);
    const float v_min = isv[ISV_C51_V_MIN], v_max = isv[ISV_C51_V_MAX];
    const float mean = c51_mean(prob, v_min, v_max);
    float variance = 0.0f;
    for (int z = 0; z < C51_ATOMS; ++z) {
        const float d = c51_atom(z, v_min, v_max) - mean;
        variance = fmaf(prob[z] * d, d, variance);
    }
    q_mean[i] = mean;
    q_sigma[i] = sqrtf(variance);
}

// argmax_expected_q: the action of largest E[Q] for every class of every row (double DQN, by the online head).
// launch: threads rows*P, block 64
// One thread a (row, class). c51_logits [rows, P*11*21], b_c51; best_action [rows, P], the first of equals.
// Slots read: C51_V_MIN, C51_V_MAX.
extern "C" __global__ void argmax_expected_q(const float* c51_logits, const float* b_c51, const float* isv,
                                             signed char* best_action, int rows, int P) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * P) return;
    const float v_min = isv[ISV_C51_V_MIN], v_max = isv[ISV_C51_V_MAX];
    const long long bias = (long long)(i % P) * N_ACTIONS * C51_ATOMS;
    int best = 0;
    float best_q = 0.0f;
    for (int a = 0; a < N_ACTIONS; ++a) {
        float x[C51_PADDED], prob[C51_PADDED];
        c51_softmax(c51_logits + ((long long)i * N_ACTIONS + a) * C51_ATOMS, b_c51 + bias + a * C51_ATOMS, x, prob);
        const float q = c51_mean(prob, v_min, v_max);
        if (a == 0 || q > best_q) {
            best = a;
            best_q = q;
        }
    }
    best_action[i] = (signed char)best;
}

// rl_c51_next_distribution: the target head's distribution at the chosen action, for every class of every row.
// launch: threads rows*P, block 64
// One thread a (row, class). target_logits [rows, P*11*21] and target_b_c51 of the target head; best_action [rows, P];
// next_prob [rows, P, 21].
extern "C" __global__ void rl_c51_next_distribution(const float* target_logits, const float* target_b_c51,
                                                    const signed char* best_action, float* next_prob, int rows,
                                                    int P) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * P) return;
    const int a = best_action[i];
    const long long bias = ((long long)(i % P) * N_ACTIONS + a) * C51_ATOMS;
    float x[C51_PADDED], prob[C51_PADDED];
    c51_softmax(target_logits + ((long long)i * N_ACTIONS + a) * C51_ATOMS, target_b_c51 + bias, x, prob);
    for (int z = 0; z < C51_ATOMS; ++z) next_prob[(long long)i * C51_ATOMS + z] = prob[z];
}

// bellman_target_projection: distribution of r + gamma^n (1 - d) Z' on the atoms, for the executed action.
// launch: threads rows, block 64
// One thread a row. next_prob [rows, P, 21]; replay_next_lots [rows] signed lots after n steps; replay_reward [rows]
// n-step return; replay_discount [rows] gamma^n; replay_terminal [rows]; c51_target [rows, 21]; row_target [rows] mean
// of the target before clipping; row_clipped [rows] mass that landed outside the span. Mass 1 to 1e-6 for every span.
// Slots read: C51_V_MIN, C51_V_MAX.
extern "C" __global__ void bellman_target_projection(const float* next_prob, const signed char* replay_next_lots,
                                                     const float* replay_reward, const float* replay_discount,
                                                     const unsigned char* replay_terminal, const float* isv,
                                                     float* c51_target, float* row_target, float* row_clipped,
                                                     int rows, int P) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float v_min = isv[ISV_C51_V_MIN], v_max = isv[ISV_C51_V_MAX];
    const float keep = replay_terminal[row] ? 0.0f : replay_discount[row];
    const float* next = next_prob + ((long long)row * P + head_class(replay_next_lots[row], P)) * C51_ATOMS;
    float target[C51_PADDED], prob[C51_PADDED];
    c51_load(next, prob);
    row_clipped[row] = c51_project(prob, replay_reward[row], keep, v_min, v_max, target);
    row_target[row] = fmaf(keep, c51_mean(prob, v_min, v_max), replay_reward[row]);
    for (int z = 0; z < C51_ATOMS; ++z) c51_target[(long long)row * C51_ATOMS + z] = target[z];
}

// rl_c51_executed_loss: cross-entropy at the executed action, and the gradient of every pair's logits.
// launch: threads rows*P*11, block 64
// One thread a pair, which owns its 21 logits' gradient: zero but for the executed pair. c51_logits, b_c51; c51_target
// [rows, 21]; replay_lots [rows] signed lots; replay_action [rows]; is_weight [rows]; grad_c51_logits [rows, P*11*21];
// c51_td [rows] the cross-entropy; row_gap [rows] = E[Q](s, a) - mean target, row_target as projected above.
// Gradient LOSS_LAMBDA_Q weight (p - target) / rows. Slots read: LOSS_LAMBDA_Q, C51_V_MIN, C51_V_MAX.
extern "C" __global__ void rl_c51_executed_loss(const float* c51_logits, const float* b_c51, const float* c51_target,
                                                const float* row_target, const signed char* replay_lots,
                                                const signed char* replay_action, const float* is_weight,
                                                const float* isv, float* grad_c51_logits, float* c51_td,
                                                float* row_gap, int rows, int P) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int pairs = P * N_ACTIONS;
    if (i >= rows * pairs) return;
    const int row = i / pairs, pair = i - row * pairs;
    float* grad = grad_c51_logits + (long long)i * C51_ATOMS;
    if (pair != head_class(replay_lots[row], P) * N_ACTIONS + replay_action[row]) {
        for (int z = 0; z < C51_ATOMS; ++z) grad[z] = 0.0f;
        return;
    }
    float target[C51_PADDED], prob[C51_PADDED], mass;
    c51_load(c51_target + (long long)row * C51_ATOMS, target);
    c51_td[row] = c51_cross_entropy(c51_logits + (long long)i * C51_ATOMS, b_c51 + (long long)pair * C51_ATOMS, target,
                                    prob, &mass);
    row_gap[row] = c51_mean(prob, isv[ISV_C51_V_MIN], isv[ISV_C51_V_MAX]) - row_target[row];
    const float scale = isv[ISV_LOSS_LAMBDA_Q] * is_weight[row] / rows;
    for (int z = 0; z < C51_ATOMS; ++z) grad[z] = scale * (prob[z] * mass - target[z]);
}

// rl_c51_path_loss: path targets of every class and action: projection, cross-entropy and gradient in one go.
// launch: threads rows*P*11, block 64
// One thread a (row, class p, action a). c51_logits [rows, P*11*21], b_c51 of the online head at h; next_prob
// [rows, P, 21] of the target head at h_n; path_return [rows, P*11] = R(p, a); next_class [P*11] class after a;
// replay_discount [rows] gamma^n; replay_terminal [rows]; is_weight [rows]; grad_c51_logits [rows, P*11*21];
// pair_loss, pair_target (mean before clipping), pair_clipped (mass outside the span), pair_gap (E[Q] - pair_target)
// [rows, P*11]. Loss = mean over pairs; gradient LOSS_LAMBDA_Q weight (p - target) / (rows pairs).
// Slots read: LOSS_LAMBDA_Q, C51_V_MIN, C51_V_MAX.
extern "C" __global__ void rl_c51_path_loss(const float* c51_logits, const float* b_c51, const float* next_prob,
                                            const float* path_return, const signed char* next_class,
                                            const float* replay_discount, const unsigned char* replay_terminal,
                                            const float* is_weight, const float* isv, float* grad_c51_logits,
                                            float* pair_loss, float* pair_target, float* pair_clipped,
                                            float* pair_gap, int rows, int P) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int pairs = P * N_ACTIONS;
    if (i >= rows * pairs) return;
    const int row = i / pairs, pair = i - row * pairs;
    const float v_min = isv[ISV_C51_V_MIN], v_max = isv[ISV_C51_V_MAX];
    const float keep = replay_terminal[row] ? 0.0f : replay_discount[row];
    const float* next = next_prob + ((long long)row * P + next_class[pair]) * C51_ATOMS;

    float target[C51_PADDED], prob[C51_PADDED], mass;
    c51_load(next, prob);
    pair_clipped[i] = c51_project(prob, path_return[i], keep, v_min, v_max, target);
    const float mean = fmaf(keep, c51_mean(prob, v_min, v_max), path_return[i]);
    pair_target[i] = mean;
    pair_loss[i] = c51_cross_entropy(c51_logits + (long long)i * C51_ATOMS, b_c51 + (long long)pair * C51_ATOMS, target,
                                     prob, &mass);
    pair_gap[i] = c51_mean(prob, v_min, v_max) - mean;
    const float scale = isv[ISV_LOSS_LAMBDA_Q] * is_weight[row] / ((float)rows * pairs);
    float* grad = grad_c51_logits + (long long)i * C51_ATOMS;
    for (int z = 0; z < C51_ATOMS; ++z) grad[z] = scale * (prob[z] * mass - target[z]);
}

// rl_q_target_statistics: largest and smallest target and the share of mass clipped, over an iteration's updates.
// launch: blocks 1, block 128
// updates: isv
// One block, fixed order. targets, clipped [n] of this update; update = 0 starts anew, later updates widen the
// extremes and average the share. Slots written: Q_TARGET_MAX, Q_TARGET_MIN, Q_TARGET_CLIP_RATE. NaN shows.
extern "C" __global__ void rl_q_target_statistics(const float* targets, const float* clipped, float* isv, int n,
                                                  int update) {
    __shared__ float scratch[32];
    float top = -MATH_FLOAT_MAX, low = MATH_FLOAT_MAX, sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        top = max_keep_nan(top, targets[i]);
        low = min_keep_nan(low, targets[i]);
        sum += clipped[i];
    }
    top = block_max(top, scratch);
    low = block_min(low, scratch);
    sum = block_sum(sum, scratch) / n;
    if (threadIdx.x != 0) return;
    if (update > 0) {
        top = max_keep_nan(top, isv[ISV_Q_TARGET_MAX]);
        low = min_keep_nan(low, isv[ISV_Q_TARGET_MIN]);
        sum = ema(isv[ISV_Q_TARGET_CLIP_RATE], sum, 1.0f / (update + 1));
    }
    isv[ISV_Q_TARGET_MAX] = top;
    isv[ISV_Q_TARGET_MIN] = low;
    isv[ISV_Q_TARGET_CLIP_RATE] = sum;
}

// rl_q_bias: mean of E[Q](s, a) - target at the executed action, into its EMA.
// launch: blocks 1, block 128
// updates: isv
// One block, fixed order. q_gap [rows, width]: width = P*11 (path targets: the row's pair is read) or 1 (executed
// action); replay_lots, replay_action [rows]. Slots written: Q_BIAS_EMA (the first observation replaces 0).
extern "C" __global__ void rl_q_bias(const float* q_gap, const signed char* replay_lots,
                                     const signed char* replay_action, float* isv, int rows, int P, int width) {
    __shared__ float scratch[32];
    float sum = 0.0f;
    for (int r = threadIdx.x; r < rows; r += blockDim.x) {
        const int pair = width == 1 ? 0 : head_class(replay_lots[r], P) * N_ACTIONS + replay_action[r];
        sum += q_gap[(long long)r * width + pair];
    }
    sum = block_sum(sum, scratch) / rows;
    if (threadIdx.x == 0) isv[ISV_Q_BIAS_EMA] = isv[ISV_Q_BIAS_EMA] == 0.0f ? sum : ema(isv[ISV_Q_BIAS_EMA], sum, Q_BIAS_RATE);
}
