// Implicit quantile network (Dabney 2018): Z_tau(h, p, a) = (h * phi(tau)) . W[:, p, a] + b[p, a],
// phi(tau) = ReLU(cos(i pi tau) W_phi + b_phi), i = 0..63.
//
// One set of taus serves the whole batch, drawn anew every update: each sample's quantile loss keeps its expectation,
// and phi costs [N_TAU, 64] instead of [rows, N_TAU, 64]. Z is linear in phi, so for the columns (p, a) a row needs,
// its "slots", the work is two products: iqn_hw[row, slot] = h * W[:, column], then Z = iqn_hw phi^T.
// slots = 11 (path targets: every action at the row's class) or 1 (executed action). iqn_column [rows, slots] names
// the column p * 11 + a.
#include "generated/isv_slots.cuh"
#include "generated/structure.cuh"
#include "include/math.cuh"
#include "include/rng.cuh"
#include "nets/c51.cuh"
#include "nets/iqn.cuh"

#define IQN_LANES 8      // quantiles a thread works on at a time

// rl_sample_tau: uniform quantile fractions in (0, 1).
// launch: threads n, block 64
// updates: rng_tau
// One thread a tau. rng_tau [n] xorshift32 states; iqn_tau [n].
extern "C" __global__ void rl_sample_tau(unsigned int* rng_tau, float* iqn_tau, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) iqn_tau[i] = uniform_open(&rng_tau[i]);
}

// rl_tau_midpoints: the fixed taus (i + 1/2) / n, whose mean is the quadrature of the expectation.
// launch: threads n, block 64
// One thread a tau. iqn_tau [n].
extern "C" __global__ void rl_tau_midpoints(float* iqn_tau, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) iqn_tau[i] = (i + 0.5f) / n;
}

// rl_iqn_cosines: cos(i pi tau).
// launch: threads n*64, block 64
// One thread an element. iqn_tau [n]; iqn_cos [n, 64].
extern "C" __global__ void rl_iqn_cosines(const float* iqn_tau, float* iqn_cos, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n * IQN_COSINES) return;
    iqn_cos[i] = cos_pi((i % IQN_COSINES) * iqn_tau[i / IQN_COSINES]);
}

// rl_iqn_phi: phi = ReLU(x + b), in place.
// launch: threads n*HIDDEN_DIM, block 64
// updates: iqn_phi
// One thread an element. iqn_phi [n, 128] holds cos W_phi; b_iqn_phi [128].
extern "C" __global__ void rl_iqn_phi(const float* b_iqn_phi, float* iqn_phi, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n * HIDDEN_DIM) return;
    const float v = iqn_phi[i] + b_iqn_phi[i % HIDDEN_DIM];
    iqn_phi[i] = v < 0.0f ? 0.0f : v;
}

// rl_iqn_phi_backward: the gradient behind phi's ReLU, in place.
// launch: threads n*HIDDEN_DIM, block 64
// updates: grad_iqn_phi
// One thread an element. iqn_phi [n, 128] after the ReLU; grad_iqn_phi [n, 128].
extern "C" __global__ void rl_iqn_phi_backward(const float* iqn_phi, float* grad_iqn_phi, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n * HIDDEN_DIM && iqn_phi[i] == 0.0f) grad_iqn_phi[i] = 0.0f;
}

// rl_iqn_mean_weights: W scaled by the mean of phi over the taus: E[IQN] = h . iqn_mean_w + b.
// launch: blocks HIDDEN_DIM, block 64
// One block an input; every thread sums phi over the taus in the same order, then strides over the columns.
// iqn_phi [n, 128]; w_iqn [128, columns]; iqn_mean_w [128, columns].
extern "C" __global__ void rl_iqn_mean_weights(const float* iqn_phi, const float* w_iqn, float* iqn_mean_w, int n,
                                               int columns) {
    const int k = blockIdx.x;
    float sum = 0.0f;
    for (int j = 0; j < n; ++j) sum += iqn_phi[j * HIDDEN_DIM + k];
    const float mean = sum / n;
    const long long start = (long long)k * columns;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) iqn_mean_w[start + c] = mean * w_iqn[start + c];
}

// rl_iqn_expected_q: E[IQN] of every pair, in place.
// launch: threads rows*P*11, block 128
// updates: iqn_q
// One thread a pair. iqn_q [rows, P*11] holds h . iqn_mean_w; b_iqn [P*11].
extern "C" __global__ void rl_iqn_expected_q(const float* b_iqn, float* iqn_q, int rows, int P) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows * P * N_ACTIONS) iqn_q[i] += b_iqn[i % (P * N_ACTIONS)];
}

// rl_iqn_argmax: the action of largest E[IQN] for every class of every row.
// launch: threads rows*P, block 64
// One thread a (row, class). iqn_q [rows, P*11]; iqn_best_action [rows, P], the first of equals.
extern "C" __global__ void rl_iqn_argmax(const float* iqn_q, signed char* iqn_best_action, int rows, int P) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * P) return;
    const float* q = iqn_q + (long long)i * N_ACTIONS;
    int best = 0;
    for (int a = 1; a < N_ACTIONS; ++a) best = q[a] > q[best] ? a : best;
    iqn_best_action[i] = (signed char)best;
}

// rl_iqn_path_columns: which quantiles path targets compare: every action at the row's class.
// launch: threads rows, block 64
// One thread a row. replay_lots [rows] signed lots; next_class [P*11]; iqn_best_action [rows, P] at h_n; path_return
// [rows, P*11]; iqn_column (at h), iqn_next_column (target head at h_n), iqn_reward [rows, 11].
extern "C" __global__ void rl_iqn_path_columns(const signed char* replay_lots, const signed char* next_class,
                                               const signed char* iqn_best_action, const float* path_return,
                                               int* iqn_column, int* iqn_next_column, float* iqn_reward, int rows,
                                               int P) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const int base = head_class(replay_lots[row], P) * N_ACTIONS;
    for (int a = 0; a < N_ACTIONS; ++a) {
        const int slot = row * N_ACTIONS + a, to = next_class[base + a];
        iqn_column[slot] = base + a;
        iqn_next_column[slot] = to * N_ACTIONS + iqn_best_action[(long long)row * P + to];
        iqn_reward[slot] = path_return[(long long)row * P * N_ACTIONS + base + a];
    }
}

// rl_iqn_executed_columns: the same for the executed action alone.
// launch: threads rows, block 64
// One thread a row. replay_lots, replay_next_lots [rows] signed lots; replay_action, replay_reward [rows] n-step return;
// iqn_best_action [rows, P]; iqn_column, iqn_next_column, iqn_reward [rows].
extern "C" __global__ void rl_iqn_executed_columns(const signed char* replay_lots, const signed char* replay_next_lots,
                                                   const signed char* replay_action, const float* replay_reward,
                                                   const signed char* iqn_best_action, int* iqn_column,
                                                   int* iqn_next_column, float* iqn_reward, int rows, int P) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const int to = head_class(replay_next_lots[row], P);
    iqn_column[row] = head_class(replay_lots[row], P) * N_ACTIONS + replay_action[row];
    iqn_next_column[row] = to * N_ACTIONS + iqn_best_action[(long long)row * P + to];
    iqn_reward[row] = replay_reward[row];
}

// rl_iqn_forward: h * W[:, column] of every slot; the product with phi^T makes it Z without bias.
// launch: blocks rows*slots, block 128
// One block a slot, one thread an input. h [rows, 128]; w_iqn [128, P*11]; iqn_column [rows, slots]; iqn_hw
// [rows*slots, 128].
extern "C" __global__ void rl_iqn_forward(const float* h, const float* w_iqn, const int* iqn_column, float* iqn_hw,
                                          int rows, int slots, int P) {
    const int slot = blockIdx.x, k = threadIdx.x;
    const int row = slot / slots;
    iqn_hw[(long long)slot * HIDDEN_DIM + k] =
        h[(long long)row * HIDDEN_DIM + k] * w_iqn[(long long)k * P * N_ACTIONS + iqn_column[slot]];
}

// rl_iqn_loss: quantile Huber loss of every slot, pairwise over taus, and the gradient of its quantiles.
// launch: threads rows*slots, block 64
// One thread a slot; eight quantiles at a time in registers, then over all targets, ascending.
//   delta_ij = r + gamma^n (1 - d) Z'_j - Z_i;  loss = sum_i mean_j |tau_i - 1(delta_ij < 0)| Huber(delta_ij) / kappa
// A quantile below its targets (delta > 0) is pulled up with weight tau_i, one above is pulled down with 1 - tau_i.
// iqn_z [rows*slots, N_TAU] at h and iqn_next_z of the target head at h_n, both without bias; b_iqn, target_b_iqn
// [P*11]; iqn_column, iqn_next_column, iqn_reward [rows, slots]; replay_discount, replay_terminal, is_weight [rows];
// iqn_tau [N_TAU]; grad_iqn_z [rows*slots, N_TAU]; slot_loss, grad_iqn_slot (sum of the slot's gradients) [rows*slots].
// Gradient carries LOSS_LAMBDA_Q weight / (rows slots). Slots read: LOSS_LAMBDA_Q.
extern "C" __global__ void rl_iqn_loss(const float* iqn_z, const float* b_iqn, const int* iqn_column,
                                       const float* iqn_next_z, const float* target_b_iqn, const int* iqn_next_column,
                                       const float* iqn_reward, const float* replay_discount,
                                       const unsigned char* replay_terminal, const float* is_weight,
                                       const float* iqn_tau, const float* isv, float* grad_iqn_z, float* slot_loss,
                                       float* grad_iqn_slot, int rows, int slots, int N_TAU) {
    const int slot = blockIdx.x * blockDim.x + threadIdx.x;
    if (slot >= rows * slots) return;
    const int row = slot / slots;
    const float keep = replay_terminal[row] ? 0.0f : replay_discount[row];
    const float bias = b_iqn[iqn_column[slot]];
    const float offset = fmaf(keep, target_b_iqn[iqn_next_column[slot]], iqn_reward[slot]);
    const float scale = isv[ISV_LOSS_LAMBDA_Q] * is_weight[row] / ((float)rows * slots);
    const long long start = (long long)slot * N_TAU;

    float loss = 0.0f, slot_grad = 0.0f;
    for (int i0 = 0; i0 < N_TAU; i0 += IQN_LANES) {
        float z[IQN_LANES], tau[IQN_LANES], lane_loss[IQN_LANES], pull[IQN_LANES];
        for (int u = 0; u < IQN_LANES; ++u) {
            const int i = i0 + u < N_TAU ? i0 + u : N_TAU - 1;
            z[u] = iqn_z[start + i] + bias;
            tau[u] = iqn_tau[i];
            lane_loss[u] = pull[u] = 0.0f;
        }
        for (int j = 0; j < N_TAU; ++j) {
            const float target = fmaf(keep, iqn_next_z[start + j], offset);
            for (int u = 0; u < IQN_LANES; ++u) quantile_huber_pair(target, z[u], tau[u], &lane_loss[u], &pull[u]);
        }
        for (int u = 0; u < IQN_LANES; ++u) {
            if (i0 + u >= N_TAU) break;
            pull[u] += lane_loss[u] - lane_loss[u];  // a loss that is no number shows in the gradient, too
            const float grad = -scale * pull[u] / (IQN_KAPPA * N_TAU);
            loss += lane_loss[u] / (IQN_KAPPA * N_TAU);
            slot_grad += grad;
            grad_iqn_z[start + i0 + u] = grad;
        }
    }
    slot_loss[slot] = loss;
    grad_iqn_slot[slot] = slot_grad;
}

// rl_iqn_backward: gradients of W and b from those of iqn_hw.
// launch: blocks P, block 128
// One block a class, one thread an input; rows in ascending order, so the sum's order is fixed. h [rows, 128];
// grad_iqn_hw [rows*slots, 128]; grad_iqn_slot [rows*slots]; iqn_column [rows, slots], all slots of a row in one class;
// grad_w_iqn [128, P*11]; grad_b_iqn [P*11]. Columns no row has get zero.
extern "C" __global__ void rl_iqn_backward(const float* h, const float* grad_iqn_hw, const float* grad_iqn_slot,
                                           const int* iqn_column, float* grad_w_iqn, float* grad_b_iqn, int rows,
                                           int slots, int P) {
    const int k = threadIdx.x, base = blockIdx.x * N_ACTIONS;
    float w[N_ACTIONS], b[N_ACTIONS];
    for (int a = 0; a < N_ACTIONS; ++a) w[a] = b[a] = 0.0f;
    for (int row = 0; row < rows; ++row) {
        const int first = iqn_column[row * slots] - base;
        if (first < 0 || first >= N_ACTIONS) continue;
        const float x = h[(long long)row * HIDDEN_DIM + k];
        const long long slot = (long long)row * slots;
        for (int a = 0; a < N_ACTIONS; ++a) {
            const int s = slots == N_ACTIONS ? a : (a == first ? 0 : -1);
            if (s < 0) continue;
            w[a] = fmaf(x, grad_iqn_hw[(slot + s) * HIDDEN_DIM + k], w[a]);
            b[a] += grad_iqn_slot[slot + s];
        }
    }
    for (int a = 0; a < N_ACTIONS; ++a) {
        grad_w_iqn[(long long)k * P * N_ACTIONS + base + a] = w[a];
        if (k == 0) grad_b_iqn[base + a] = b[a];
    }
}

// rl_iqn_input_grad: adds the head's gradient to the encodings' (only where the critic teaches the encoder).
// launch: blocks rows, block 128
// updates: grad_h
// One block a row, one thread an input, slots in ascending order. w_iqn [128, P*11]; grad_iqn_hw [rows*slots, 128];
// iqn_column [rows, slots]; grad_h [rows, 128].
extern "C" __global__ void rl_iqn_input_grad(const float* w_iqn, const float* grad_iqn_hw, const int* iqn_column,
                                             float* grad_h, int slots, int P, int rows) {
    const int row = blockIdx.x, k = threadIdx.x;
    const float* w = w_iqn + (long long)k * P * N_ACTIONS;
    float sum = 0.0f;
    for (int s = 0; s < slots; ++s) {
        const long long slot = (long long)row * slots + s;
        sum = fmaf(w[iqn_column[slot]], grad_iqn_hw[slot * HIDDEN_DIM + k], sum);
    }
    grad_h[(long long)row * HIDDEN_DIM + k] += sum;
}

// rl_ensemble_action_value: alpha E[C51] + (1 - alpha) E[IQN].
// launch: threads n, block 128
// One thread an element. c51_q, iqn_q, ensemble_q [n] (any shape). Slots read: ENSEMBLE_ALPHA.
extern "C" __global__ void rl_ensemble_action_value(const float* c51_q, const float* iqn_q, const float* isv,
                                                    float* ensemble_q, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) ensemble_q[i] = fmaf(isv[ISV_ENSEMBLE_ALPHA], c51_q[i] - iqn_q[i], iqn_q[i]);
}
