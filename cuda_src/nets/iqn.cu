// Implicit quantile network (Dabney 2018): Z_tau(h, p, a) = (h * phi(tau)) . W[:, p, a] + b[p, a],
// phi(tau) = ReLU(cos(i pi tau) W_phi + b_phi), i = 0..63.
//
// One set of taus serves the whole batch, drawn anew every update: each sample's quantile loss keeps its expectation,
// and phi costs [N_TAU, 64] instead of [rows, N_TAU, 64]. For the columns (p, a) a row needs, its "slots",
// Z[tau] = sum_k (h_k W_k,column) phi_tau,k. Gradients: with M_tau,k = sum over the rows of a class of dL/dZ_tau h_k,
// those of W are sum_tau phi_tau,k M_tau,k and those of phi sum over columns of W_k,column M_tau,k: one sum over rows.
// slots = 11 (path targets: every action at the row's class) or 1 (executed action). iqn_column [rows, slots] names
// the column p * 11 + a.
#include "generated/isv_slots.cuh"
#include "generated/structure.cuh"
#include "include/eight.cuh"
#include "include/math.cuh"
#include "include/rng.cuh"
#include "nets/c51.cuh"
#include "nets/iqn.cuh"

#define IQN_PADDED 32  // taus of the transposed embedding, at most

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
// launch: threads n*HIDDEN_DIM, block 128
// updates: iqn_phi
// One thread an element. iqn_phi [n, 128] holds cos W_phi; b_iqn_phi [128].
extern "C" __global__ void rl_iqn_phi(const float* b_iqn_phi, float* iqn_phi, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n * HIDDEN_DIM) return;
    const float v = iqn_phi[i] + b_iqn_phi[i % HIDDEN_DIM];
    iqn_phi[i] = v < 0.0f ? 0.0f : v;
}

// rl_iqn_phi_columns: phi transposed.
// launch: threads 32*HIDDEN_DIM, block 128
// One thread an element of iqn_phi_t [128, 32], zero beyond n taus (at most 32). iqn_phi [n, 128].
extern "C" __global__ void rl_iqn_phi_columns(const float* iqn_phi, float* iqn_phi_t, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= IQN_PADDED * HIDDEN_DIM) return;
    const int k = i / IQN_PADDED, tau = i % IQN_PADDED;
    iqn_phi_t[i] = tau < n ? iqn_phi[tau * HIDDEN_DIM + k] : 0.0f;
}

// rl_iqn_phi_backward: the gradient of phi from the shares of the classes, then behind its ReLU.
// launch: threads n*HIDDEN_DIM, block 128
// One thread an element, classes ascending. iqn_phi [n, 128] after the ReLU; iqn_class_phi [P, n, 128]; grad_iqn_phi
// [n, 128].
extern "C" __global__ void rl_iqn_phi_backward(const float* iqn_phi, const float* iqn_class_phi, float* grad_iqn_phi,
                                               int n, int P) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n * HIDDEN_DIM) return;
    float sum = 0.0f;
    for (int c = 0; c < P; ++c) sum += iqn_class_phi[c * n * HIDDEN_DIM + i];
    grad_iqn_phi[i] = iqn_phi[i] == 0.0f ? 0.0f : sum;
}

// rl_iqn_mean_weights: W scaled by the mean of phi over the taus: E[IQN] = h . iqn_mean_w + b.
// launch: threads HIDDEN_DIM, block 16
// One thread an input, taus ascending. iqn_phi [n, 128]; w_iqn [128, columns]; iqn_mean_w [128, columns].
extern "C" __global__ void rl_iqn_mean_weights(const float* iqn_phi, const float* w_iqn, float* iqn_mean_w, int n,
                                               int columns) {
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= HIDDEN_DIM) return;
    float sum = 0.0f;
    for (int j = 0; j < n; ++j) sum += iqn_phi[j * HIDDEN_DIM + k];
    const float mean = sum / n;
    const long long start = (long long)k * columns;
    for (int c = 0; c < columns; ++c) iqn_mean_w[start + c] = mean * w_iqn[start + c];
}

// rl_iqn_argmax: the action of largest E[IQN] for every class of every row.
// launch: threads rows*P, block 64
// One thread a (row, class). iqn_q [rows, P*11] without bias; b_iqn [P*11]; iqn_best_action [rows, P], the first of
// equals.
extern "C" __global__ void rl_iqn_argmax(const float* iqn_q, const float* b_iqn, signed char* iqn_best_action, int rows,
                                         int P) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * P) return;
    const float* q = iqn_q + (long long)i * N_ACTIONS;
    const float* b = b_iqn + i % P * N_ACTIONS;
    float best_q = q[0] + b[0];
    int best = 0;
    for (int a = 1; a < N_ACTIONS; ++a) {
        const float value = q[a] + b[a];
        best = value > best_q ? a : best;
        best_q = value > best_q ? value : best_q;
    }
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

// Quantiles of 32 taus of one slot.
struct IqnQuantiles {
    eight a, b, c, d;
};

static __device__ inline void add_scaled(IqnQuantiles& z, float x, eight a, eight b, eight c, eight d) {
    z.a = eight_fma(eight_of(x), a, z.a);
    z.b = eight_fma(eight_of(x), b, z.b);
    z.c = eight_fma(eight_of(x), c, z.c);
    z.d = eight_fma(eight_of(x), d, z.d);
}

static __device__ inline void store_quantiles(const IqnQuantiles& z, float* to, int n) {
    if (n == IQN_PADDED) {
        eight_store(to, z.a);
        eight_store(to + 8, z.b);
        eight_store(to + 16, z.c);
        eight_store(to + 24, z.d);
        return;
    }
    for (int i = 0; i < n; ++i) {
        const eight group = i < 8 ? z.a : (i < 16 ? z.b : (i < 24 ? z.c : z.d));
        to[i] = group[i % 8];
    }
}

// rl_iqn_quantiles: Z without bias of every slot.
// launch: threads rows*((slots + 1)/2), block 16
// One thread two slots of a row, which share what is read of phi; inputs ascending. h [rows, 128]; w_iqn [128, P*11];
// iqn_column [rows, slots]; iqn_phi_t [128, 32], zero beyond n taus; iqn_z [rows*slots, n].
extern "C" __global__ void rl_iqn_quantiles(const float* h, const float* w_iqn, const int* iqn_column,
                                            const float* iqn_phi_t, float* iqn_z, int rows, int slots, int P, int n) {
    const int pairs = (slots + 1) / 2, i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * pairs) return;
    const int row = i / pairs, first = row * slots + i % pairs * 2;
    const int second = first + 1 < (row + 1) * slots ? first + 1 : first;
    const float *x = h + (long long)row * HIDDEN_DIM, *w = w_iqn + iqn_column[first], *v = w_iqn + iqn_column[second];
    const eight zero = eight_of(0.0f);
    IqnQuantiles z = {zero, zero, zero, zero}, y = z;
    for (int k = 0; k < HIDDEN_DIM; ++k) {
        const float* phi = iqn_phi_t + k * IQN_PADDED;
        const eight a = eight_load(phi), b = eight_load(phi + 8), c = eight_load(phi + 16), d = eight_load(phi + 24);
        add_scaled(z, x[k] * w[k * P * N_ACTIONS], a, b, c, d);
        add_scaled(y, x[k] * v[k * P * N_ACTIONS], a, b, c, d);
    }
    store_quantiles(z, iqn_z + (long long)first * n, n);
    if (second != first) store_quantiles(y, iqn_z + (long long)second * n, n);
}

// Eight quantiles of a slot, as the loss sees them: numbers beyond n repeat the last.
static __device__ inline eight eight_quantiles(const float* from, int first, int n) {
    if (first + 8 <= n) return eight_load(from + first);
    eight v = eight_of(from[n - 1]);
    for (int i = first; i < n; ++i) v[i - first] = from[i];
    return v;
}

// rl_iqn_loss: quantile Huber loss of every slot, pairwise over taus, and the gradient of its quantiles.
// launch: threads rows*slots, block 64
// One thread a slot; sixteen quantiles at a time in registers, then over all targets, ascending.
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
    const float *z_of = iqn_z + (long long)slot * N_TAU, *next_z = iqn_next_z + (long long)slot * N_TAU;

    float loss = 0.0f, slot_grad = 0.0f;
    for (int i0 = 0; i0 < N_TAU; i0 += 16) {  // two groups: neither waits for its own last sum
        const eight z = eight_quantiles(z_of, i0, N_TAU) + bias, y = eight_quantiles(z_of, i0 + 8, N_TAU) + bias;
        const eight tau = eight_quantiles(iqn_tau, i0, N_TAU), mu = eight_quantiles(iqn_tau, i0 + 8, N_TAU);
        eight z_loss = eight_of(0.0f), z_pull = z_loss, y_loss = z_loss, y_pull = z_loss;
        for (int j = 0; j < N_TAU; ++j) {
            const eight target = eight_of(fmaf(keep, next_z[j], offset));
            quantile_huber_eight(target, z, tau, z_loss, z_pull);
            quantile_huber_eight(target, y, mu, y_loss, y_pull);
        }
        for (int u = 0; u < 16 && i0 + u < N_TAU; ++u) {
            const float one = u < 8 ? z_loss[u] : y_loss[u - 8], pull = u < 8 ? z_pull[u] : y_pull[u - 8];
            const float grad = -scale * (pull + (one - one)) / (IQN_KAPPA * N_TAU);  // a bad loss shows in the gradient
            loss += one / (IQN_KAPPA * N_TAU);
            slot_grad += grad;
            grad_iqn_z[(long long)slot * N_TAU + i0 + u] = grad;
        }
    }
    slot_loss[slot] = loss;
    grad_iqn_slot[slot] = slot_grad;
}

// rl_iqn_class_rows: the rows of each class, ascending.
// launch: threads P, block 1
// One thread a class. iqn_column [rows, slots], all slots of a row in one class; iqn_class_rows [P, rows + 1]: how many,
// then which.
extern "C" __global__ void rl_iqn_class_rows(const int* iqn_column, int* iqn_class_rows, int rows, int slots, int P) {
    const int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= P) return;
    int* list = iqn_class_rows + (long long)c * (rows + 1);
    int count = 0;
    for (int row = 0; row < rows; ++row) {
        if (iqn_column[row * slots] / N_ACTIONS == c) list[++count] = row;
    }
    list[0] = count;
}

// Sums over rows of four taus' gradients times sixteen inputs.
struct IqnMoments {
    eight a, b, c, d, e, f, g, h;
};

static __device__ inline void add_moments(IqnMoments& m, const float* x, float g0, float g1, float g2, float g3) {
    const eight low = eight_load(x), high = eight_load(x + 8);
    m.a = eight_fma(eight_of(g0), low, m.a);
    m.b = eight_fma(eight_of(g0), high, m.b);
    m.c = eight_fma(eight_of(g1), low, m.c);
    m.d = eight_fma(eight_of(g1), high, m.d);
    m.e = eight_fma(eight_of(g2), low, m.e);
    m.f = eight_fma(eight_of(g2), high, m.f);
    m.g = eight_fma(eight_of(g3), low, m.g);
    m.h = eight_fma(eight_of(g3), high, m.h);
}

// Of one tau: its part of the gradient of W, and of that of phi (share).
static __device__ inline void add_tau(const float* phi, float* share, eight w, eight moment, eight& grad_w) {
    grad_w = eight_fma(eight_load(phi), moment, grad_w);
    eight_store(share, eight_fma(w, moment, eight_load(share)));
}

// rl_iqn_backward: gradients of W and b, and each class's share of that of phi.
// launch: threads P*HIDDEN_DIM/16, block 1
// One thread sixteen inputs of a class; rows in ascending order. h [rows, 128]; iqn_phi [n, 128]; w_iqn [128, P*11];
// grad_iqn_z [rows*slots, n]; grad_iqn_slot [rows*slots]; iqn_column [rows, slots]; iqn_class_rows of rl_iqn_class_rows;
// grad_w_iqn [128, P*11]; grad_b_iqn [P*11]; iqn_class_phi [P, n, 128]. Columns no row has get zero.
extern "C" __global__ void rl_iqn_backward(const float* h, const float* iqn_phi, const float* w_iqn,
                                           const float* grad_iqn_z, const float* grad_iqn_slot, const int* iqn_column,
                                           const int* iqn_class_rows, float* grad_w_iqn, float* grad_b_iqn,
                                           float* iqn_class_phi, int rows, int slots, int P, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= P * HIDDEN_DIM / 16) return;
    const int c = i % P, k0 = i / P * 16, columns = P * N_ACTIONS;
    const int* list = iqn_class_rows + (long long)c * (rows + 1);
    float* class_phi = iqn_class_phi + (long long)c * n * HIDDEN_DIM + k0;
    const eight zero = eight_of(0.0f);
    for (int tau = 0; tau < n; ++tau) {
        eight_store(class_phi + tau * HIDDEN_DIM, zero);
        eight_store(class_phi + tau * HIDDEN_DIM + 8, zero);
    }
    for (int a = 0; a < N_ACTIONS; ++a) {
        const int column = c * N_ACTIONS + a;
        eight w_low = zero, w_high = zero, low = zero, high = zero;  // of W, of its gradient
        float grad_b = 0.0f;
        for (int u = 0; u < 8; ++u) {
            w_low[u] = w_iqn[(long long)(k0 + u) * columns + column];
            w_high[u] = w_iqn[(long long)(k0 + u + 8) * columns + column];
        }
        for (int t0 = 0; t0 < n; t0 += 4) {
            const int left = n - 1 - t0;  // taus beyond the last repeat it, and nobody looks at their sums
            const int t1 = left < 1 ? left : 1, t2 = left < 2 ? left : 2, t3 = left < 3 ? left : 3;
            IqnMoments m = {zero, zero, zero, zero, zero, zero, zero, zero};
            for (int r = 1; r <= list[0]; ++r) {
                const int row = list[r];
                if (slots == 1 && iqn_column[row] != column) continue;
                const long long slot = (long long)row * slots + (slots == 1 ? 0 : a);
                const float* grad = grad_iqn_z + slot * n + t0;
                add_moments(m, h + (long long)row * HIDDEN_DIM + k0, grad[0], grad[t1], grad[t2], grad[t3]);
                if (t0 == 0) grad_b += grad_iqn_slot[slot];
            }
            const float* phi = iqn_phi + t0 * HIDDEN_DIM + k0;
            float* share = class_phi + t0 * HIDDEN_DIM;
            const eight even[4] = {m.a, m.c, m.e, m.g}, odd[4] = {m.b, m.d, m.f, m.h};
            for (int u = 0; u <= left && u < 4; ++u) {
                add_tau(phi + u * HIDDEN_DIM, share + u * HIDDEN_DIM, w_low, even[u], low);
                add_tau(phi + u * HIDDEN_DIM + 8, share + u * HIDDEN_DIM + 8, w_high, odd[u], high);
            }
        }
        for (int u = 0; u < 8; ++u) {
            grad_w_iqn[(long long)(k0 + u) * columns + column] = low[u];
            grad_w_iqn[(long long)(k0 + u + 8) * columns + column] = high[u];
        }
        if (k0 == 0) grad_b_iqn[column] = grad_b;
    }
}

// rl_iqn_input_grad: adds the head's gradient to the encodings' (only where the critic teaches the encoder).
// launch: threads rows*HIDDEN_DIM, block 128
// updates: grad_h
// One thread an input of a row; slots, then taus in ascending order. w_iqn [128, P*11]; iqn_phi [n, 128]; grad_iqn_z
// [rows*slots, n]; iqn_column [rows, slots]; grad_h [rows, 128].
extern "C" __global__ void rl_iqn_input_grad(const float* w_iqn, const float* iqn_phi, const float* grad_iqn_z,
                                             const int* iqn_column, float* grad_h, int slots, int P, int rows, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * HIDDEN_DIM) return;
    const int row = i / HIDDEN_DIM, k = i % HIDDEN_DIM;
    float sum = 0.0f;
    for (int s = 0; s < slots; ++s) {
        const long long slot = (long long)row * slots + s;
        float pull = 0.0f;
        for (int tau = 0; tau < n; ++tau) pull = fmaf(grad_iqn_z[slot * n + tau], iqn_phi[tau * HIDDEN_DIM + k], pull);
        sum = fmaf(w_iqn[(long long)k * P * N_ACTIONS + iqn_column[slot]], pull, sum);
    }
    grad_h[i] += sum;
}

// rl_ensemble_action_value: alpha E[C51] + (1 - alpha) E[IQN].
// launch: threads rows*P, block 128
// One thread a (row, class). c51_q, iqn_q (without its bias), ensemble_q [rows, P*11]; b_iqn [P*11].
// Slots read: ENSEMBLE_ALPHA.
extern "C" __global__ void rl_ensemble_action_value(const float* c51_q, const float* iqn_q, const float* b_iqn,
                                                    const float* isv, float* ensemble_q, int rows, int P) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * P) return;
    const long long start = (long long)i * N_ACTIONS;
    const float* b = b_iqn + i % P * N_ACTIONS;
    for (int a = 0; a < N_ACTIONS; ++a) {
        const float iqn = iqn_q[start + a] + b[a];
        ensemble_q[start + a] = fmaf(isv[ISV_ENSEMBLE_ALPHA], c51_q[start + a] - iqn, iqn);
    }
}
