// What a block of the quantile head's update (iqn_update.cuh) holds in shared memory, how it is loaded, and the sums
// that the block leaves.
//
// Sums of a block, iqn_update_parts [blocks, IQN_PART_SIZE]: gradient of W [P*11][128] and of b [P*11], both of the
// classes that its rows are in alone; of phi [32][128]; the sum of the rows' losses, the number of rows whose loss is
// not finite, and the classes, bit by bit, as a number.
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
#define IQN_PART_SIZE(pairs) (IQN_COLUMN_SUMS(pairs) + IQN_MAX_TAUS * HIDDEN_DIM + 3)

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
// An IqnUpdate from the parameters of a kernel.
#define IQN_PATH_UPDATE                                                                                              \
    {h, next_h, w_iqn, iqn_columns, iqn_phi_sets, iqn_tau, b_iqn, target_b_iqn, replay_lots, next_class, nullptr,    \
     nullptr, path_return, nullptr, replay_discount, is_weight, replay_terminal, isv, iqn_update_parts, rows, P, n}
#define IQN_EXECUTED_UPDATE                                                                                          \
    {h, next_h, w_iqn, iqn_columns, iqn_phi_sets, iqn_tau, b_iqn, target_b_iqn, replay_lots, nullptr,                \
     replay_next_lots, replay_action, nullptr, replay_reward, replay_discount, is_weight, replay_terminal, isv,      \
     iqn_update_parts, rows, P, n}

template <int SLOTS>
struct IqnTile {
    static constexpr int ROWS = SLOTS == 1 ? 8 : 2, USED = ROWS * SLOTS, PADDED = (USED + 15) / 16 * 16;
    static constexpr int DEPTH = (USED + 7) / 8 * 8;  // slots that the gradient of phi sums over
    // Of the tile and, while it is worked on, of the next one.
    struct Rows {
        float h[2][ROWS * HIDDEN_DIM];  // at the moment, n steps later
        float keep[PADDED], reward[PADDED], scale[PADDED];  // scale: of the gradient of a quantile
        int column[PADDED], next_class[PADDED];
    };
    float phi[2][IQN_MAX_TAUS * IQN_STRIDE];  // of the predictions, of the targets
    float hw[2][PADDED * IQN_STRIDE];         // h * W of the slots; [1] later the gradient of [0]
    float z[2][PADDED * IQN_Z_STRIDE], grad_z[PADDED * IQN_Z_STRIDE];  // quantiles, targets, gradient of the quantiles
    Rows rows[2];
    float mean[HIDDEN_DIM], tau[IQN_MAX_TAUS];
    float bias[PADDED], offset[PADDED], slot_grad[PADDED], loss[2 * PADDED];  // loss: of halves of a slot's quantiles
    int next_column[PADDED], visited;
};
// Behind the tile stand the shares of E[IQN] at h_n [4][ROWS][pairs], b and the target's b [pairs], then, where there is
// room, the sums of W and b.
static_assert(sizeof(float) == 8 || (sizeof(IqnTile<N_ACTIONS>) <= 88320 && sizeof(IqnTile<1>) <= 75776),
              "the launch rules of the kernels ask for less shared memory than a tile takes");

// Where a block adds up the gradients of W and b: in its part of iqn_update_parts, in shared memory until it ends, or, where
// it has one tile alone, nowhere: the tile's sums go straight to the part.
enum IqnSums { IQN_SUMS_IN_PART, IQN_SUMS_SHARED, IQN_ONE_TILE };

// A block with its tile: embeddings and tables once, rows tile by tile.
template <class Math, int SLOTS, IqnSums SUMS>
struct IqnBlock {
    using Tile = IqnTile<SLOTS>;
    using Rows = typename Tile::Rows;
    static constexpr int ROWS = Tile::ROWS, USED = Tile::USED;
    static constexpr int ROW_LOADS = (ROWS * HIDDEN_DIM + IQN_THREADS - 1) / IQN_THREADS;
    Tile& s;
    const IqnUpdate& u;
    float *q, *b, *target_b, *sums;
    int pairs, tid, k, group;  // thread (k, group) owns input k of the columns whose action is group mod IQN_GROUPS

    __device__ __forceinline__ IqnBlock(float* shared, const IqnUpdate& update)
        : s(*(Tile*)shared), u(update), pairs(update.P * N_ACTIONS), tid(threadIdx.x), k(threadIdx.x % HIDDEN_DIM),
          group(threadIdx.x / HIDDEN_DIM) {
        q = shared + sizeof(Tile) / sizeof(float);
        b = q + IQN_GROUPS * ROWS * pairs;
        target_b = b + pairs;
        sums = SUMS == IQN_SUMS_SHARED ? target_b + pairs : my_parts();
    }

    __device__ __forceinline__ float* my_parts() const { return u.parts + (long long)blockIdx.x * IQN_PART_SIZE(pairs); }

    // Embeddings, tables, zeros where the gradient of phi reads what nobody writes, zeros of the sums.
    __device__ __forceinline__ void begin() const {
        const int input = tid % 32 * 4, first = tid / 32;  // a warp takes every 16th tau
        float mean[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int set = 0; set < 3; ++set) {
#pragma unroll
            for (int tau = first; tau < IQN_MAX_TAUS; tau += 16) {
                float v[4] = {0.0f, 0.0f, 0.0f, 0.0f};
                if (tau < u.n) load4(u.iqn_phi + (set * u.n + tau) * HIDDEN_DIM + input, v);
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    if (set == 2) mean[e] += v[e];
                    v[e] = Math::operand(v[e]);
                }
                if (set < 2) store4(s.phi[set] + tau * IQN_STRIDE + input, v);
            }
        }
        store4(s.hw[1] + first * HIDDEN_DIM + input, mean);  // in passing: nothing else is there yet
        for (int c = tid; c < pairs; c += IQN_THREADS) b[c] = u.b_iqn[c], target_b[c] = u.target_b_iqn[c];
        if (tid < IQN_MAX_TAUS) s.tau[tid] = tid < u.n ? u.iqn_tau[tid] : 0.0f;
        for (int i = USED * IQN_STRIDE + tid; i < Tile::DEPTH * IQN_STRIDE; i += IQN_THREADS) s.hw[0][i] = 0.0f;
        for (int i = USED * IQN_Z_STRIDE + tid; i < Tile::PADDED * IQN_Z_STRIDE; i += IQN_THREADS) s.grad_z[i] = 0.0f;
        if (SUMS == IQN_ONE_TILE) return;
#pragma unroll 8
        for (int i = tid; i < IQN_COLUMN_SUMS(pairs); i += IQN_THREADS) sums[i] = 0.0f;
    }

    __device__ __forceinline__ void mean_embedding() const {
        if (group != 0) return;
        float sum = 0.0f;
#pragma unroll
        for (int g = 0; g < 16; ++g) sum += s.hw[1][g * HIDDEN_DIM + k];
        s.mean[k] = sum / u.n;
    }

    // This thread's share of the encodings of a tile; beyond the last row zeros.
    __device__ __forceinline__ void fetch_rows(int row0, float (*v)[ROW_LOADS]) const {
#pragma unroll
        for (int i = 0; i < ROW_LOADS; ++i) {
            const int at = tid + i * IQN_THREADS;
            const bool real = at < ROWS * HIDDEN_DIM && row0 + at / HIDDEN_DIM < u.rows;
            v[0][i] = real ? u.h[(long long)row0 * HIDDEN_DIM + at] : 0.0f;
            v[1][i] = real ? u.next_h[(long long)row0 * HIDDEN_DIM + at] : 0.0f;
        }
    }

    __device__ __forceinline__ void keep_rows(Rows& t, const float (*v)[ROW_LOADS]) const {
#pragma unroll
        for (int i = 0; i < ROW_LOADS; ++i) {
            const int at = tid + i * IQN_THREADS;
            if (at < ROWS * HIDDEN_DIM) t.h[0][at] = v[0][i], t.h[1][at] = v[1][i];
        }
    }

    // What of a slot does not depend on the choice at h_n; by the last warp. A row beyond the last learns nothing: its
    // scale is zero.
    __device__ __forceinline__ void load_slots(Rows& t, int row0) const {
        const int slot = tid - (IQN_THREADS - 32);
        if (slot < 0 || slot >= USED) return;
        const int r = slot / SLOTS, row = row0 + r < u.rows ? row0 + r : u.rows - 1;
        const int own = head_class(u.lots[row], u.P);
        const float keep = u.terminal[row] ? 0.0f : u.discount[row];
        const float scale = u.isv[ISV_LOSS_LAMBDA_Q] * u.weight[row] / ((float)u.rows * SLOTS) / (IQN_KAPPA * u.n);
        int column = own * N_ACTIONS;
        if (SLOTS == 1) {
            column += u.action[row];
            t.next_class[slot] = head_class(u.next_lots[row], u.P);
            t.reward[slot] = u.reward[row];
        } else {
            column += slot - r * SLOTS;
            t.next_class[slot] = u.next_class[column];
            t.reward[slot] = u.path_return[(long long)row * pairs + column];
        }
        t.column[slot] = column;
        t.keep[slot] = keep;
        t.scale[slot] = row0 + r < u.rows ? -scale : 0.0f;
        if (slot == r * SLOTS && row0 + r < u.rows) atomicOr(&s.visited, 1 << own);
    }
};
