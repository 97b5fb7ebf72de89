// The implicit quantile head forward: taus and their embeddings, choice of actions, quantiles (iqn.cuh has the formulas).
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

// rl_iqn_executed_columns: which quantiles n-step targets compare: the executed action's at the row's class.
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
