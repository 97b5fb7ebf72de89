// One replay update of the implicit quantile head for a share of the rows: choice at h_n, quantiles, loss, gradients.
//
// A block of 512 threads takes tiles of IQN_ROWS rows, tile blockIdx.x + i gridDim.x, i ascending, and keeps sums of
// its own; rl_iqn_update_reduce adds those of all blocks in order. Written once over a Math (block_product.cuh) and the
// slots of a row: 11 (path targets) or 1 (executed action).
//
// Sums of a block, iqn_update_parts [blocks, IQN_PART_SIZE]: grad W [P*11][128] (column-major: a thread owns its element
// for the whole launch), grad b [P*11], grad phi [32][128], the sum of the rows' losses, rows whose loss is not finite.
#pragma once
#include "fused/block_product.cuh"
#include "generated/isv_slots.cuh"
#include "include/reduce.cuh"
#include "nets/c51.cuh"
#include "nets/iqn.cuh"

#define IQN_MAX_TAUS 32
#define IQN_THREADS 512
#define IQN_SPLITS 4     // shares of the inputs that the expectation at h_n is summed in
#define IQN_STRIDE 132   // rows of 128 floats in shared memory (4 mod 32: block_tf32.cuh)
#define IQN_Z_STRIDE 36  // rows of 32 taus
#define IQN_PART_SIZE(pairs) ((long long)(pairs) * (HIDDEN_DIM + 1) + IQN_MAX_TAUS * HIDDEN_DIM + 2)

// Everything an update reads, and the sums it writes. Of the targets a batch has either path_return and next_class
// or next_lots, action and reward; the others are null.
struct IqnUpdate {
    const float *h, *next_h;                                // [rows, 128]
    const float *iqn_columns, *iqn_mean_w, *iqn_phi, *iqn_phi_next, *iqn_tau;  // rl_iqn_embed
    const float *b_iqn, *target_b_iqn;                      // [P*11]
    const signed char *lots, *next_class, *next_lots, *action;
    const float *path_return, *reward, *discount, *weight;
    const unsigned char* terminal;
    const float* isv;
    float* parts;
    int rows, P, n;  // n taus, at most IQN_MAX_TAUS
};

template <int SLOTS>
struct IqnTile {
    static constexpr int ROWS = SLOTS == 1 ? 16 : 2, USED = ROWS * SLOTS, PADDED = (USED + 15) / 16 * 16;
    static constexpr int DEPTH = (USED + 7) / 8 * 8;  // slots that the gradient of phi sums over
    // Shared memory, in floats: both embeddings, h * W of both heads, quantiles, their gradient, encodings.
    static constexpr int PHI = IQN_MAX_TAUS * IQN_STRIDE, HW = PADDED * IQN_STRIDE, Z = PADDED * IQN_Z_STRIDE;
    float phi[2][PHI], hw[2][HW], z[2][Z], grad_z[Z];
    float h[2][ROWS * HIDDEN_DIM];
    float tau[IQN_MAX_TAUS], bias[PADDED], keep[PADDED], offset[PADDED], scale[ROWS], loss[PADDED], slot_grad[PADDED];
    int column[PADDED], next_column[PADDED];
};
static_assert(sizeof(float) == 8 || (sizeof(IqnTile<N_ACTIONS>) <= 84992 && sizeof(IqnTile<1>) <= 74752),
              "the launch rules of the kernels ask for less shared memory than a tile takes");

template <class Math, int SLOTS>
struct IqnRows {
    using Tile = IqnTile<SLOTS>;
    using Quantiles = typename Math::template Block<Tile::PADDED, IQN_MAX_TAUS, HIDDEN_DIM, false, true, IQN_STRIDE,
                                                    IQN_STRIDE, IQN_THREADS / 2>;
    using GradHw = typename Math::template Block<Tile::PADDED, HIDDEN_DIM, IQN_MAX_TAUS, false, false, IQN_Z_STRIDE,
                                                 IQN_STRIDE, IQN_THREADS>;
    using GradPhi = typename Math::template Block<IQN_MAX_TAUS, HIDDEN_DIM, Tile::DEPTH, true, false, IQN_Z_STRIDE,
                                                  IQN_STRIDE, IQN_THREADS>;

    // Zeros where a product would read what nobody writes, embeddings, this block's sums of W and b.
    static __device__ __forceinline__ void begin(Tile& s, const IqnUpdate& u, float* parts) {
        const int tid = threadIdx.x, k = tid % HIDDEN_DIM, group = tid / HIDDEN_DIM, pairs = u.P * N_ACTIONS;
        for (int i = tid; i < IQN_MAX_TAUS * HIDDEN_DIM; i += IQN_THREADS) {
            const int to = i / HIDDEN_DIM * IQN_STRIDE + i % HIDDEN_DIM;
            const bool real = i / HIDDEN_DIM < u.n;
            s.phi[0][to] = real ? u.iqn_phi[i] : 0.0f;
            s.phi[1][to] = real ? u.iqn_phi_next[i] : 0.0f;
        }
        for (int i = tid; i < Tile::HW; i += IQN_THREADS) s.hw[0][i] = s.hw[1][i] = 0.0f;
        for (int i = tid; i < Tile::Z; i += IQN_THREADS) s.grad_z[i] = 0.0f;
        if (tid < IQN_MAX_TAUS) s.tau[tid] = tid < u.n ? u.iqn_tau[tid] : 0.0f;
        for (int c = group; c < pairs; c += IQN_THREADS / HIDDEN_DIM) parts[(long long)c * HIDDEN_DIM + k] = 0.0f;
        for (int c = tid; c < pairs; c += IQN_THREADS) parts[(long long)pairs * HIDDEN_DIM + c] = 0.0f;
    }

    static __device__ __forceinline__ void load_rows(Tile& s, const IqnUpdate& u, int row0) {
        for (int i = threadIdx.x; i < Tile::ROWS * HIDDEN_DIM; i += IQN_THREADS) {
            const bool real = row0 + i / HIDDEN_DIM < u.rows;
            const long long from = (long long)row0 * HIDDEN_DIM + i;
            s.h[0][i] = real ? u.h[from] : 0.0f;
            s.h[1][i] = real ? u.next_h[from] : 0.0f;
        }
    }

    // Shares of E[IQN] at h_n without bias: q [IQN_SPLITS][ROWS][pairs].
    static __device__ __forceinline__ void expectations(const Tile& s, const IqnUpdate& u, float* q) {
        const int pairs = u.P * N_ACTIONS, width = HIDDEN_DIM / IQN_SPLITS;
        for (int i = threadIdx.x; i < IQN_SPLITS * pairs; i += IQN_THREADS) {
            const int split = i / pairs, c = i - split * pairs;
            float sum[Tile::ROWS];
#pragma unroll
            for (int r = 0; r < Tile::ROWS; ++r) sum[r] = 0.0f;
#pragma unroll 16
            for (int k = split * width; k < (split + 1) * width; ++k) {
                const float w = u.iqn_mean_w[(long long)k * pairs + c];
#pragma unroll
                for (int r = 0; r < Tile::ROWS; ++r) sum[r] = fmaf(s.h[1][r * HIDDEN_DIM + k], w, sum[r]);
            }
#pragma unroll
            for (int r = 0; r < Tile::ROWS; ++r) q[(split * Tile::ROWS + r) * pairs + c] = sum[r];
        }
    }

    // The action of largest E[IQN] at h_n for every (row, class); the first of equals.
    static __device__ __forceinline__ void choose(const IqnUpdate& u, const float* q, int* best_action) {
        const int pairs = u.P * N_ACTIONS;
        for (int i = threadIdx.x; i < Tile::ROWS * u.P; i += IQN_THREADS) {
            const int at = i * N_ACTIONS;  // row * pairs + class * 11
            float best_q = 0.0f;
            int best = 0;
            for (int a = 0; a < N_ACTIONS; ++a) {
                float sum = q[at + a];
#pragma unroll
                for (int p = 1; p < IQN_SPLITS; ++p) sum += q[p * Tile::ROWS * pairs + at + a];
                sum += u.b_iqn[(i % u.P) * N_ACTIONS + a];
                if (a == 0 || sum > best_q) best = a, best_q = sum;
            }
            best_action[i] = best;
        }
    }

    // Columns, biases and targets' constants of every slot. A slot beyond the rows learns nothing: its scale is zero.
    static __device__ __forceinline__ void columns(Tile& s, const IqnUpdate& u, const int* best_action, int row0) {
        const int slot = threadIdx.x, pairs = u.P * N_ACTIONS;
        if (slot >= Tile::USED) return;
        const int r = slot / SLOTS, row = row0 + r < u.rows ? row0 + r : u.rows - 1;
        int column = head_class(u.lots[row], u.P) * N_ACTIONS, to;
        float reward;
        if (SLOTS == 1) {
            column += u.action[row];
            to = head_class(u.next_lots[row], u.P);
            reward = u.reward[row];
        } else {
            column += slot - r * SLOTS;
            to = u.next_class[column];
            reward = u.path_return[(long long)row * pairs + column];
        }
        s.column[slot] = column;
        s.next_column[slot] = to * N_ACTIONS + best_action[r * u.P + to];
        s.keep[slot] = u.terminal[row] ? 0.0f : u.discount[row];
        s.bias[slot] = u.b_iqn[column];
        s.offset[slot] = fmaf(s.keep[slot], u.target_b_iqn[s.next_column[slot]], reward);
        if (slot == r * SLOTS) {
            s.scale[r] = row0 + r < u.rows ? u.isv[ISV_LOSS_LAMBDA_Q] * u.weight[row] / ((float)u.rows * SLOTS) : 0.0f;
        }
    }

    // h * W[:, column] of the online head, h_n * W[:, next column] of the target head.
    static __device__ __forceinline__ void scaled_columns(Tile& s, const IqnUpdate& u) {
        const int pairs = u.P * N_ACTIONS;
        for (int i = threadIdx.x; i < 2 * Tile::USED * HIDDEN_DIM / 4; i += IQN_THREADS) {
            const int k = i % (HIDDEN_DIM / 4) * 4, slot = i / (HIDDEN_DIM / 4) % Tile::USED;
            const int head = i / (HIDDEN_DIM / 4 * Tile::USED);
            const int column = head == 0 ? s.column[slot] : s.next_column[slot];
            float w[4];
            load4(u.iqn_columns + ((long long)head * pairs + column) * HIDDEN_DIM + k, w);
            float* to = s.hw[head] + slot * IQN_STRIDE + k;
            const float* x = s.h[head] + slot / SLOTS * HIDDEN_DIM + k;
#pragma unroll
            for (int e = 0; e < 4; ++e) to[e] = x[e] * w[e];
        }
    }

    // z[0]: quantiles at h; z[1]: targets.
    static __device__ __forceinline__ void quantiles(Tile& s) {
        const int head = threadIdx.x / (IQN_THREADS / 2);
        Quantiles product(threadIdx.x % (IQN_THREADS / 2));
        product.multiply(s.hw[head], s.phi[head]);
        product.each([&](int slot, int tau, float& v) {
            if (slot >= Tile::USED) return;
            s.z[head][slot * IQN_Z_STRIDE + tau] = head == 0 ? v + s.bias[slot] : fmaf(s.keep[slot], v, s.offset[slot]);
        });
    }

    // Loss of each slot and gradient of its quantiles; one warp a slot, one lane a quantile, targets ascending.
    static __device__ __forceinline__ void losses(Tile& s, const IqnUpdate& u) {
        const int lane = threadIdx.x % 32;
        for (int slot = threadIdx.x / 32; slot < Tile::USED; slot += IQN_THREADS / 32) {
            const float* target = s.z[1] + slot * IQN_Z_STRIDE;
            const float z = s.z[0][slot * IQN_Z_STRIDE + lane], tau = s.tau[lane];
            float loss = 0.0f, pull = 0.0f;
#pragma unroll 8
            for (int j = 0; j < u.n; ++j) quantile_huber_pair(target[j], z, tau, &loss, &pull);
            const bool real = lane < u.n;
            const float grad = real ? -s.scale[slot / SLOTS] * pull / (IQN_KAPPA * u.n) : 0.0f;
            s.grad_z[slot * IQN_Z_STRIDE + lane] = grad;
            const float slot_loss = warp_sum(real ? loss / (IQN_KAPPA * u.n) : 0.0f), slot_grad = warp_sum(grad);
            if (lane == 0) s.loss[slot] = slot_loss, s.slot_grad[slot] = slot_grad;
        }
    }

    // Adds the tile to the block's sums of W and b. Thread (k, group) owns input k of columns = group mod 4.
    static __device__ __forceinline__ void add_columns(const Tile& s, const IqnUpdate& u, float* parts) {
        const int k = threadIdx.x % HIDDEN_DIM, group = threadIdx.x / HIDDEN_DIM, pairs = u.P * N_ACTIONS;
        for (int slot = 0; slot < Tile::USED; ++slot) {
            const int column = s.column[slot];
            if (column % (IQN_THREADS / HIDDEN_DIM) != group) continue;
            float* to = parts + (long long)column * HIDDEN_DIM + k;
            *to = fmaf(s.h[0][slot / SLOTS * HIDDEN_DIM + k], s.hw[1][slot * IQN_STRIDE + k], *to);
            if (k == 0) parts[(long long)pairs * HIDDEN_DIM + column] += s.slot_grad[slot];
        }
    }

    static __device__ __forceinline__ void add_losses(const Tile& s, const IqnUpdate& u, int row0, float* sum, float* bad) {
        for (int r = 0; r < Tile::ROWS && row0 + r < u.rows; ++r) {
            float loss = 0.0f;
            for (int a = 0; a < SLOTS; ++a) loss += s.loss[r * SLOTS + a];
            loss /= SLOTS;
            *sum += loss;
            if (!is_finite(loss)) *bad += 1.0f;
        }
    }

    // shared: one Tile, then q [IQN_SPLITS][ROWS][P*11] and the choices [ROWS][P].
    static __device__ __forceinline__ void run(float* shared, const IqnUpdate& u) {
        Tile& s = *(Tile*)shared;
        const int pairs = u.P * N_ACTIONS;
        float* q = shared + sizeof(Tile) / sizeof(float);
        int* best_action = (int*)(q + IQN_SPLITS * Tile::ROWS * pairs);
        float* parts = u.parts + blockIdx.x * IQN_PART_SIZE(pairs);
        float loss_sum = 0.0f, bad = 0.0f;
        GradPhi grad_phi(threadIdx.x);
        begin(s, u, parts);
        for (int row0 = blockIdx.x * Tile::ROWS; row0 < u.rows; row0 += gridDim.x * Tile::ROWS) {
            load_rows(s, u, row0);
            __syncthreads();
            expectations(s, u, q);
            __syncthreads();
            choose(u, q, best_action);
            __syncthreads();
            columns(s, u, best_action, row0);
            __syncthreads();
            scaled_columns(s, u);
            __syncthreads();
            quantiles(s);
            __syncthreads();
            losses(s, u);
            __syncthreads();
            GradHw grad_hw(threadIdx.x);
            grad_hw.multiply(s.grad_z, s.phi[0]);
            grad_phi.multiply(s.grad_z, s.hw[0]);
            grad_hw.each([&](int slot, int k, float& v) {
                if (slot < Tile::USED) s.hw[1][slot * IQN_STRIDE + k] = v;
            });
            __syncthreads();
            add_columns(s, u, parts);
            if (threadIdx.x == IQN_THREADS - 1) add_losses(s, u, row0, &loss_sum, &bad);
            __syncthreads();
        }
        float* phi_parts = parts + (long long)pairs * (HIDDEN_DIM + 1);
        grad_phi.each([&](int tau, int k, float& v) { phi_parts[tau * HIDDEN_DIM + k] = v; });
        if (threadIdx.x == IQN_THREADS - 1) {
            phi_parts[IQN_MAX_TAUS * HIDDEN_DIM] = loss_sum;
            phi_parts[IQN_MAX_TAUS * HIDDEN_DIM + 1] = bad;
        }
    }
};
