// The implicit quantile head's loss and gradients (iqn.cuh has the formulas).
#include "generated/isv_slots.cuh"
#include "generated/structure.cuh"
#include "include/eight.cuh"
#include "nets/iqn.cuh"

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
