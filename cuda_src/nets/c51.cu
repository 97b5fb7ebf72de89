// The C51 head: expectations, double-DQN choice, targets, losses and their gradients.
//
// c51_logits [rows, P*11*21] hold the product without bias; b_c51 [P*11*21] is added where they are read, so that the
// product is written once. Span of the atoms: slots C51_V_MIN, C51_V_MAX, read at use.
#include "include/reduce.cuh"
#include "nets/c51.cuh"
#include "nets/q_statistics.cuh"

// sum + input times a pair's weights of that input.
static __device__ inline C51Row c51_add_scaled(C51Row sum, float input, C51Row w) {
    const eight x = eight_of(input);
    return C51Row{eight_fma(x, w.low, sum.low), eight_fma(x, w.middle, sum.middle), eight_fma(x, w.high, sum.high)};
}

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
    const C51Row x = c51_load(c51_logits + (long long)i * C51_ATOMS) + c51_load(b_c51 + i % pairs * C51_ATOMS);
    c51_q[(long long)row0 * pairs + i] = c51_expectation(x, isv[ISV_C51_V_MIN], isv[ISV_C51_V_MAX]);
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
    C51Row x = c51_load(b_c51 + column), prob;
    for (int k = 0; k < HIDDEN_DIM; ++k) {
        x = c51_add_scaled(x, h[from * HIDDEN_DIM + k], c51_load(w_c51 + k * columns + column));
    }
    c51_softmax(x, &prob);
    const float v_min = isv[ISV_C51_V_MIN], v_max = isv[ISV_C51_V_MAX];
    const C51Row away = c51_indices() + -c51_sum(prob * c51_indices());
    q_mean[i] = c51_mean(prob, v_min, v_max);
    q_sigma[i] = (v_max - v_min) / (C51_ATOMS - 1) * sqrtf(c51_sum(prob * away * away));
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
        const float* logits = c51_logits + ((long long)i * N_ACTIONS + a) * C51_ATOMS;
        const float q = c51_expectation(c51_load(logits) + c51_load(b_c51 + bias + a * C51_ATOMS), v_min, v_max);
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
    const float* logits = target_logits + ((long long)i * N_ACTIONS + a) * C51_ATOMS;
    C51Row prob;
    c51_softmax(c51_load(logits) + c51_load(target_b_c51 + bias), &prob);
    c51_store(next_prob + (long long)i * C51_ATOMS, prob);
}

// rl_c51_next_at_choice: the target distribution at h_n, with logits formed at the chosen actions alone.
// launch: threads P*11, block 4
// One thread a pair, which looks for the rows that chose it and takes them two at a time: its columns stay in the
// nearest cache. For a CPU; a GPU multiplies everything. h [rows, 128] encodings at h_n; target_w_c51 [128, P*11*21],
// target_b_c51 [P*11*21]; best_action [rows, P]; next_prob [rows, P, 21].
extern "C" __global__ void rl_c51_next_at_choice(const float* h, const float* target_w_c51, const float* target_b_c51,
                                                 const signed char* best_action, float* next_prob, int rows, int P) {
    const int pair = blockIdx.x * blockDim.x + threadIdx.x;
    if (pair >= P * N_ACTIONS) return;
    const int p = pair / N_ACTIONS, action = pair - p * N_ACTIONS, column = pair * C51_ATOMS;
    const long long columns = (long long)P * N_ACTIONS * C51_ATOMS;
    int found = 0, first = 0;
    for (int r = 0; r <= rows; ++r) {
        if (r < rows && best_action[(long long)r * P + p] != action) continue;
        const bool last = r == rows;
        if (!last && ++found == 1) first = r;
        if (found == 0 || (found == 1 && !last)) continue;
        const int second = last ? first : r;
        const float *one = h + (long long)first * HIDDEN_DIM, *two = h + (long long)second * HIDDEN_DIM;
        C51Row x = c51_load(target_b_c51 + column), y = x, prob;
        for (int k = 0; k < HIDDEN_DIM; ++k) {
            const C51Row w = c51_load(target_w_c51 + k * columns + column);
            x = c51_add_scaled(x, one[k], w);
            y = c51_add_scaled(y, two[k], w);
        }
        c51_softmax(x, &prob);
        c51_store(next_prob + ((long long)first * P + p) * C51_ATOMS, prob);
        c51_softmax(y, &prob);
        c51_store(next_prob + ((long long)second * P + p) * C51_ATOMS, prob);
        found = 0;
    }
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
    const C51Target target = c51_target_of(next, replay_reward[row], keep, v_min, v_max);
    row_clipped[row] = target.clipped;
    row_target[row] = target.mean;
    c51_store(c51_target + (long long)row * C51_ATOMS, target.mass);
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
    C51Target target = {c51_load(c51_target + (long long)row * C51_ATOMS), 0.0f, row_target[row], 0.0f};
    target.total = c51_sum(target.mass);
    C51Row prob;
    const C51Row x = c51_load(c51_logits + (long long)i * C51_ATOMS) + c51_load(b_c51 + pair * C51_ATOMS);
    c51_td[row] = c51_cross_entropy(x, target, &prob);
    row_gap[row] = c51_mean(prob, isv[ISV_C51_V_MIN], isv[ISV_C51_V_MAX]) - target.mean;
    c51_store(grad, c51_slope(prob, target, isv[ISV_LOSS_LAMBDA_Q] * is_weight[row] / rows));
}

// rl_c51_path_loss: path targets of every class and action: projection, cross-entropy and gradient in one go.
// launch: threads rows*P, block 16
// One thread a (row, class p), which goes through the actions: many have no effect on the position, and their target is
// that of Hold. c51_logits [rows, P*11*21], b_c51 of the online head at h; next_prob [rows, P, 21] of the target head at
// h_n; path_return [rows, P*11] = R(p, a); next_class [P*11] class after a; replay_lots, replay_action, replay_discount
// (gamma^n), replay_terminal, is_weight [rows]; grad_c51_logits [rows, P*11*21]. Of a class, [rows, P]: class_loss the
// mean cross-entropy; class_top, class_low the largest and least mean target before clipping; class_clipped the mean
// mass outside the span. row_gap [rows] = E[Q] - mean target at the executed action. Loss = mean over pairs; gradient
// LOSS_LAMBDA_Q weight (p - target) / (rows pairs). Slots read: LOSS_LAMBDA_Q, C51_V_MIN, C51_V_MAX.
extern "C" __global__ void rl_c51_path_loss(
    const float* c51_logits, const float* b_c51, const float* next_prob, const float* path_return,
    const signed char* next_class, const signed char* replay_lots, const signed char* replay_action,
    const float* replay_discount, const unsigned char* replay_terminal, const float* is_weight, const float* isv,
    float* grad_c51_logits, float* class_loss, float* class_top, float* class_low, float* class_clipped, float* row_gap,
    int rows, int P) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * P) return;
    const int row = i / P, p = i - row * P, first = p * N_ACTIONS;
    const float v_min = isv[ISV_C51_V_MIN], v_max = isv[ISV_C51_V_MAX];
    const float keep = replay_terminal[row] ? 0.0f : replay_discount[row];
    const float scale = isv[ISV_LOSS_LAMBDA_Q] * is_weight[row] / ((float)rows * P * N_ACTIONS);
    const float* next = next_prob + (long long)row * P * C51_ATOMS;
    const float* reward = path_return + (long long)i * N_ACTIONS;
    const int executed = p == head_class(replay_lots[row], P) ? replay_action[row] : N_ACTIONS;
    const int stay = next_class[first + ACTION_HOLD];
    const C51Target held = c51_target_of(next + stay * C51_ATOMS, reward[ACTION_HOLD], keep, v_min, v_max);

    float loss = 0.0f, clipped = 0.0f, top = held.mean, low = held.mean;
    for (int a = 0; a < N_ACTIONS; ++a) {
        const long long at = ((long long)i * N_ACTIONS + a) * C51_ATOMS;
        const int to = next_class[first + a];
        const bool holds = to == stay && reward[a] == reward[ACTION_HOLD];
        const C51Target target = holds ? held : c51_target_of(next + to * C51_ATOMS, reward[a], keep, v_min, v_max);
        const C51Row x = c51_load(c51_logits + at) + c51_load(b_c51 + (first + a) * C51_ATOMS);
        C51Row prob;
        loss += c51_cross_entropy(x, target, &prob);
        clipped += target.clipped;
        top = max_keep_nan(top, target.mean);
        low = min_keep_nan(low, target.mean);
        if (a == executed) row_gap[row] = c51_mean(prob, v_min, v_max) - target.mean;
        c51_store(grad_c51_logits + at, c51_slope(prob, target, scale));
    }
    class_loss[i] = loss / N_ACTIONS;
    class_top[i] = top;
    class_low[i] = low;
    class_clipped[i] = clipped / N_ACTIONS;
}

// rl_q_target_statistics: largest and smallest target and the share of mass clipped, over an iteration's updates.
// launch: blocks 1, block 32 if n <= 4096 else 128
// updates: isv
// One block, fixed order. tops, lows, clipped [n] of this update; update = 0 starts anew, later updates widen the
// extremes and average the share. Slots written: Q_TARGET_MAX, Q_TARGET_MIN, Q_TARGET_CLIP_RATE. NaN shows.
extern "C" __global__ void rl_q_target_statistics(const float* tops, const float* lows, const float* clipped,
                                                  float* isv, int n, int update) {
    __shared__ float scratch[32];
    float top = -MATH_FLOAT_MAX, low = MATH_FLOAT_MAX, sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        top = max_keep_nan(top, tops[i]);
        low = min_keep_nan(low, lows[i]);
        sum += clipped[i];
    }
    top = block_max(top, scratch);
    low = block_min(low, scratch);
    sum = block_sum(sum, scratch) / n;
    if (threadIdx.x == 0) q_target_statistics_finish(top, low, sum, update, isv);
}

// rl_q_bias: mean of E[Q](s, a) - target at the executed action, into its EMA.
// launch: blocks 1, block 32 if rows <= 1024 else 128
// updates: isv
// One block, fixed order. row_gap [rows]. Slots written: Q_BIAS_EMA (the first observation replaces 0).
extern "C" __global__ void rl_q_bias(const float* row_gap, float* isv, int rows) {
    __shared__ float scratch[32];
    float sum = 0.0f;
    for (int r = threadIdx.x; r < rows; r += blockDim.x) sum += row_gap[r];
    sum = block_sum(sum, scratch) / rows;
    if (threadIdx.x == 0) q_bias_finish(sum, isv);
}
