// One replay update of the implicit quantile head for a share of the rows: choice at h_n, quantiles, loss, gradients.
//
// A block of 512 threads takes tiles of ROWS rows, tile blockIdx.x + i gridDim.x, i ascending, and keeps sums of its own;
// rl_iqn_update_reduce adds those of all blocks in order. Written once over a Math (block_product.cuh) and the slots of a
// row: 11 (path targets) or 1 (executed action). A tile is a chain of short phases, so what a phase reads from device
// memory is asked for as early as it is known, and everything else lies in shared memory.
//
// Sums of a block, iqn_update_parts [blocks, IQN_PART_SIZE]: gradient of W [P*11][128], of b [P*11], of phi [32][128],
// then the sum of the rows' losses and the number of rows whose loss is not finite.
#pragma once
#include "fused/block_product.cuh"
#include "generated/isv_slots.cuh"
#include "include/reduce.cuh"
#include "nets/c51.cuh"
#include "nets/iqn.cuh"

#define IQN_MAX_TAUS 32
#define IQN_THREADS 512
#define IQN_GROUPS (IQN_THREADS / HIDDEN_DIM)  // threads that share an input
#define IQN_STRIDE 132   // rows of 128 floats in shared memory (4 mod 32: block_tf32.cuh)
#define IQN_Z_STRIDE 36  // rows of 32 taus
#define IQN_COLUMN_SUMS(pairs) ((pairs) * (HIDDEN_DIM + 1))
#define IQN_PART_SIZE(pairs) (IQN_COLUMN_SUMS(pairs) + IQN_MAX_TAUS * HIDDEN_DIM + 2)

// Everything an update reads, and the sums it writes. Of the targets a batch has either path_return and next_class
// or next_lots, action and reward; the others are null.
struct IqnUpdate {
    const float *h, *next_h;  // [rows, 128]
    const float *w_iqn, *iqn_columns, *iqn_phi, *iqn_tau;  // [128, P*11]; the others as rl_iqn_embed left them
    const float *b_iqn, *target_b_iqn;  // [P*11]
    const signed char *lots, *next_class, *next_lots, *action;
    const float *path_return, *reward, *discount, *weight;
    const unsigned char* terminal;
    const float* isv;
    float* parts;
    int rows, P, n;  // n taus, at most IQN_MAX_TAUS
};

template <int SLOTS>
struct IqnTile {
    static constexpr int ROWS = SLOTS == 1 ? 8 : 2, USED = ROWS * SLOTS, PADDED = (USED + 15) / 16 * 16;
    static constexpr int DEPTH = (USED + 7) / 8 * 8;  // slots that the gradient of phi sums over
    static constexpr int HW = PADDED * IQN_STRIDE, Z = PADDED * IQN_Z_STRIDE;
    float phi[2][IQN_MAX_TAUS * IQN_STRIDE];  // of the predictions, of the targets
    float hw[2][HW];                          // h * W of the slots; [1] later the gradient of [0]
    float z[2][Z], grad_z[Z];                 // quantiles, targets, gradient of the quantiles
    float h[2][ROWS * HIDDEN_DIM], mean[HIDDEN_DIM], mean_parts[IQN_GROUPS][HIDDEN_DIM];
    float tau[IQN_MAX_TAUS], keep[PADDED], reward[PADDED], bias[PADDED], offset[PADDED], scale[ROWS];
    float loss[2 * PADDED], slot_grad[2 * PADDED];  // of the halves of a slot's quantiles
    int column[PADDED], next_class[PADDED], next_column[PADDED];
};
// What stands behind the tile: E[IQN] at h_n [ROWS][pairs], b and the target's b [pairs], then, where it has room, the
// sums of W and b.
#define IQN_TABLES(rows, pairs) ((rows + 2) * (pairs))
static_assert(sizeof(float) == 8 || (sizeof(IqnTile<N_ACTIONS>) <= 87808 && sizeof(IqnTile<1>) <= 69376),
              "the launch rules of the kernels ask for less shared memory than a tile takes");

// SUMS_SHARED: the sums of W and b lie in shared memory until the block ends, not in its part of iqn_update_parts.
template <class Math, int SLOTS, bool SUMS_SHARED>
struct IqnRows {
    using Tile = IqnTile<SLOTS>;
    using Quantiles = typename Math::template Block<Tile::PADDED, IQN_MAX_TAUS, HIDDEN_DIM, false, true, IQN_STRIDE,
                                                    IQN_STRIDE, IQN_THREADS / 2>;
    using GradHw = typename Math::template Block<Tile::PADDED, HIDDEN_DIM, IQN_MAX_TAUS, false, false, IQN_Z_STRIDE,
                                                 IQN_STRIDE, IQN_THREADS>;
    using GradPhi = typename Math::template Block<IQN_MAX_TAUS, HIDDEN_DIM, Tile::DEPTH, true, false, IQN_Z_STRIDE,
                                                  IQN_STRIDE, IQN_THREADS>;
    static constexpr int ROWS = Tile::ROWS, USED = Tile::USED;
    Tile& s;
    const IqnUpdate& u;
    float *q, *b, *target_b, *sums;
    int pairs, tid, k, group;  // thread (k, group) owns input k of the columns whose action is group mod IQN_GROUPS

    __device__ __forceinline__ IqnRows(float* shared, const IqnUpdate& update)
        : s(*(Tile*)shared), u(update), pairs(update.P * N_ACTIONS), tid(threadIdx.x), k(threadIdx.x % HIDDEN_DIM),
          group(threadIdx.x / HIDDEN_DIM) {
        q = shared + sizeof(Tile) / sizeof(float);
        b = q + ROWS * pairs;
        target_b = b + pairs;
        sums = SUMS_SHARED ? target_b + pairs : my_parts();
    }

    __device__ __forceinline__ float* my_parts() const { return u.parts + (long long)blockIdx.x * IQN_PART_SIZE(pairs); }

    // Embeddings, tables, zeros where a product reads what nobody writes, zeros of the sums.
    __device__ __forceinline__ void begin() const {
        const float* middle = u.iqn_phi + 2 * u.n * HIDDEN_DIM;
        float mean = 0.0f;
#pragma unroll
        for (int i = 0; i < IQN_MAX_TAUS / IQN_GROUPS; ++i) {
            const int tau = i * IQN_GROUPS + group;
            const bool real = tau < u.n;
            s.phi[0][tau * IQN_STRIDE + k] = real ? u.iqn_phi[tau * HIDDEN_DIM + k] : 0.0f;
            s.phi[1][tau * IQN_STRIDE + k] = real ? u.iqn_phi[(u.n + tau) * HIDDEN_DIM + k] : 0.0f;
            mean += real ? middle[tau * HIDDEN_DIM + k] : 0.0f;
        }
        s.mean_parts[group][k] = mean;
        for (int c = tid; c < pairs; c += IQN_THREADS) b[c] = u.b_iqn[c], target_b[c] = u.target_b_iqn[c];
        if (tid < IQN_MAX_TAUS) s.tau[tid] = tid < u.n ? u.iqn_tau[tid] : 0.0f;
        for (int i = tid; i < Tile::HW; i += IQN_THREADS) s.hw[0][i] = s.hw[1][i] = 0.0f;
        for (int i = tid; i < Tile::Z; i += IQN_THREADS) s.grad_z[i] = 0.0f;
        for (int i = tid; i < IQN_COLUMN_SUMS(pairs); i += IQN_THREADS) sums[i] = 0.0f;
    }

    __device__ __forceinline__ void mean_embedding() const {
        if (group != 0) return;
        float sum = 0.0f;
#pragma unroll
        for (int g = 0; g < IQN_GROUPS; ++g) sum += s.mean_parts[g][k];
        s.mean[k] = sum / u.n;
    }

    __device__ __forceinline__ void load_rows(int row0) const {
        for (int i = tid; i < ROWS * HIDDEN_DIM; i += IQN_THREADS) {
            const bool real = row0 + i / HIDDEN_DIM < u.rows;
            const long long from = (long long)row0 * HIDDEN_DIM + i;
            s.h[0][i] = real ? u.h[from] : 0.0f;
            s.h[1][i] = real ? u.next_h[from] : 0.0f;
        }
    }

    // What of a slot does not depend on the choice at h_n; by the last warp, while all compute expectations. A row
    // beyond the last learns nothing: its scale is zero.
    __device__ __forceinline__ void load_slot(int row0) const {
        const int slot = tid - (IQN_THREADS - 32);
        if (slot < 0 || slot >= USED) return;
        const int r = slot / SLOTS, row = row0 + r < u.rows ? row0 + r : u.rows - 1;
        int column = head_class(u.lots[row], u.P) * N_ACTIONS;
        if (SLOTS == 1) {
            column += u.action[row];
            s.next_class[slot] = head_class(u.next_lots[row], u.P);
            s.reward[slot] = u.reward[row];
        } else {
            column += slot - r * SLOTS;
            s.next_class[slot] = u.next_class[column];
            s.reward[slot] = u.path_return[(long long)row * pairs + column];
        }
        s.column[slot] = column;
        s.keep[slot] = u.terminal[row] ? 0.0f : u.discount[row];
        if (slot == r * SLOTS) {
            s.scale[r] = row0 + r < u.rows ? u.isv[ISV_LOSS_LAMBDA_Q] * u.weight[row] / ((float)u.rows * SLOTS) : 0.0f;
        }
    }

    // E[IQN] at h_n of every pair: eight columns a warp, four lanes share a column's inputs.
    __device__ __forceinline__ void expectations() const {
        constexpr int COLUMNS = IQN_THREADS / 4, DEPTH = HIDDEN_DIM / 4;
        const int split = tid % 32 / 8;
        for (int c0 = 0; c0 < pairs; c0 += COLUMNS) {
            const int c = c0 + tid / 32 * 8 + tid % 8;
            float sum[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; ++r) sum[r] = 0.0f;
#pragma unroll
            for (int i = 0; i < DEPTH; ++i) {
                const int input = split * DEPTH + i;
                const float w = c < pairs ? s.mean[input] * u.w_iqn[input * pairs + c] : 0.0f;
#pragma unroll
                for (int r = 0; r < ROWS; ++r) sum[r] = fmaf(s.h[1][r * HIDDEN_DIM + input], w, sum[r]);
            }
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                sum[r] += __shfl_xor_sync(REDUCE_FULL_WARP, sum[r], 8);
                sum[r] += __shfl_xor_sync(REDUCE_FULL_WARP, sum[r], 16);
                if (c < pairs && split == r % 4) q[r * pairs + c] = sum[r] + b[c];
            }
        }
    }

    // The target's column: the action of largest E[IQN] at h_n in the class after the slot's action; first of equals.
    __device__ __forceinline__ void choose() const {
        if (tid >= USED) return;
        const float* values = q + tid / SLOTS * pairs + s.next_class[tid] * N_ACTIONS;
        int best = 0;
#pragma unroll
        for (int a = 1; a < N_ACTIONS; ++a) best = values[a] > values[best] ? a : best;
        s.next_column[tid] = s.next_class[tid] * N_ACTIONS + best;
        s.bias[tid] = b[s.column[tid]];
        s.offset[tid] = fmaf(s.keep[tid], target_b[s.next_column[tid]], s.reward[tid]);
    }

    // h * W[:, column] of the online head, h_n * W[:, next column] of the target head; four adjacent inputs a thread.
    __device__ __forceinline__ void scaled_columns() const {
        const int input = tid % 32 * 4;
#pragma unroll
        for (int i = tid / 32; i < 2 * USED; i += IQN_THREADS / 32) {
            const int head = i / USED, slot = i - head * USED;
            const int column = head == 0 ? s.column[slot] : pairs + s.next_column[slot];
            float w[4], x[4];
            load4(u.iqn_columns + column * HIDDEN_DIM + input, w);
            load4(s.h[head] + slot / SLOTS * HIDDEN_DIM + input, x);
#pragma unroll
            for (int e = 0; e < 4; ++e) x[e] *= w[e];
            store4(s.hw[head] + slot * IQN_STRIDE + input, x);
        }
    }

    // z[0]: quantiles at h; z[1]: targets.
    __device__ __forceinline__ void quantiles() const {
        const int head = tid / (IQN_THREADS / 2);
        Quantiles product(tid % (IQN_THREADS / 2));
        product.multiply(s.hw[head], s.phi[head]);
        product.each([&](int slot, int tau, float& v) {
            if (slot >= USED) return;
            s.z[head][slot * IQN_Z_STRIDE + tau] = head == 0 ? v + s.bias[slot] : fmaf(s.keep[slot], v, s.offset[slot]);
        });
    }

    // Loss of each slot and gradient of its quantiles. A warp takes half a slot's quantiles at a time, two lanes a
    // quantile, each half the targets, ascending.
    __device__ __forceinline__ void losses() const {
        const int lane = tid % 32, targets = (u.n + 1) / 2, first = lane / 16 * targets;
        const int last = first + targets < u.n ? first + targets : u.n;
        for (int half = tid / 32; half < 2 * USED; half += IQN_THREADS / 32) {
            const int slot = half / 2, i = half % 2 * 16 + lane % 16;
            const float* target = s.z[1] + slot * IQN_Z_STRIDE;
            const float z = s.z[0][slot * IQN_Z_STRIDE + i], tau = s.tau[i];
            float loss = 0.0f, pull = 0.0f;
#pragma unroll 8
            for (int j = first; j < last; ++j) quantile_huber_pair(target[j], z, tau, &loss, &pull);
            loss += __shfl_xor_sync(REDUCE_FULL_WARP, loss, 16);
            pull += __shfl_xor_sync(REDUCE_FULL_WARP, pull, 16);
            pull += loss - loss;  // a loss that is no number shows in the gradient, too
            const bool real = i < u.n;
            const float grad = real ? -s.scale[slot / SLOTS] * pull / (IQN_KAPPA * u.n) : 0.0f;
            if (lane < 16) s.grad_z[slot * IQN_Z_STRIDE + i] = grad;
            const float half_loss = group_sum<16>(real ? loss / (IQN_KAPPA * u.n) : 0.0f), half_grad = group_sum<16>(grad);
            if (lane == 0) s.loss[half] = half_loss, s.slot_grad[half] = half_grad;
        }
    }

    __device__ __forceinline__ void gradients(GradPhi& grad_phi) const {
        GradHw grad_hw(tid);
        grad_hw.multiply(s.grad_z, s.phi[0]);
        grad_phi.multiply(s.grad_z, s.hw[0]);
        grad_hw.each([&](int slot, int input, float& v) {
            if (slot < USED) s.hw[1][slot * IQN_STRIDE + input] = v;
        });
    }

    // Adds the slot to the sums of its column.
    __device__ __forceinline__ void add_slot(int slot) const {
        float* to = sums + s.column[slot] * HIDDEN_DIM + k;
        *to = fmaf(s.h[0][slot / SLOTS * HIDDEN_DIM + k], s.hw[1][slot * IQN_STRIDE + k], *to);
        if (k == 0) sums[pairs * HIDDEN_DIM + s.column[slot]] += s.slot_grad[2 * slot] + s.slot_grad[2 * slot + 1];
    }

    __device__ __forceinline__ void add_columns() const {
        if (SLOTS == 1) {
            for (int slot = 0; slot < USED; ++slot) {
                if (s.column[slot] % N_ACTIONS % IQN_GROUPS == group) add_slot(slot);
            }
        } else {
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                for (int a = group; a < SLOTS; a += IQN_GROUPS) add_slot(r * SLOTS + a);
            }
        }
    }

    __device__ __forceinline__ void add_losses(int row0, float* sum, float* bad) const {
        for (int r = 0; r < ROWS && row0 + r < u.rows; ++r) {
            float loss = 0.0f;
            for (int half = 2 * r * SLOTS; half < 2 * (r + 1) * SLOTS; ++half) loss += s.loss[half];
            loss /= SLOTS;
            *sum += loss;
            if (!is_finite(loss)) *bad += 1.0f;
        }
    }

    __device__ __forceinline__ void run() const {
        float loss_sum = 0.0f, bad = 0.0f;
        GradPhi grad_phi(tid);
        begin();
        __syncthreads();
        mean_embedding();
        for (int row0 = blockIdx.x * ROWS; row0 < u.rows; row0 += gridDim.x * ROWS) {
            load_rows(row0);
            __syncthreads();
            load_slot(row0);
            expectations();
            __syncthreads();
            choose();
            __syncthreads();
            scaled_columns();
            __syncthreads();
            quantiles();
            __syncthreads();
            losses();
            __syncthreads();
            gradients(grad_phi);
            __syncthreads();
            add_columns();
            if (tid == IQN_THREADS - 1) add_losses(row0, &loss_sum, &bad);
            __syncthreads();
        }
        float *parts = my_parts(), *phi_parts = parts + IQN_COLUMN_SUMS(pairs);
        if (SUMS_SHARED) {
            for (int i = tid; i < IQN_COLUMN_SUMS(pairs); i += IQN_THREADS) parts[i] = sums[i];
        }
        grad_phi.each([&](int tau, int input, float& v) { phi_parts[tau * HIDDEN_DIM + input] = v; });
        if (tid == IQN_THREADS - 1) {
            phi_parts[IQN_MAX_TAUS * HIDDEN_DIM] = loss_sum;
            phi_parts[IQN_MAX_TAUS * HIDDEN_DIM + 1] = bad;
        }
    }
};
