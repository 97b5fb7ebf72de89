// One replay update of the implicit quantile head for a share of the rows: choice at h_n, quantiles, loss, gradients.
//
// A block of 512 threads takes tiles of ROWS rows, tile blockIdx.x + i gridDim.x, i ascending, and keeps sums of its
// own; rl_iqn_update_reduce adds those of all blocks in order. Written once over a Math (block_product.cuh) and the slots
// of a row: 11 (path targets) or 1 (executed action). A tile is a chain of short phases, so what a phase reads from
// device memory is asked for as early as it is known, and everything else lies in shared memory.
#pragma once
#include "fused/iqn_tile.cuh"

// The phases of a tile, in the order in which run() at the end calls them.
template <class Math, int SLOTS, IqnSums SUMS>
struct IqnRows : IqnBlock<Math, SLOTS, SUMS> {
    using Base = IqnBlock<Math, SLOTS, SUMS>;
    using typename Base::Rows;
    using typename Base::Tile;
    using Base::b, Base::group, Base::k, Base::pairs, Base::q, Base::s, Base::sums, Base::target_b, Base::tid, Base::u;
    using Base::begin, Base::fetch_rows, Base::keep_rows, Base::load_slots, Base::mean_embedding, Base::my_parts;
    using Base::ROW_LOADS, Base::ROWS, Base::USED;
    using Quantiles = typename Math::template Block<Tile::PADDED, IQN_MAX_TAUS, HIDDEN_DIM, false, true, IQN_STRIDE,
                                                    IQN_STRIDE, IQN_THREADS / 2>;
    using GradHw = typename Math::template Block<Tile::PADDED, HIDDEN_DIM, IQN_MAX_TAUS, false, false, IQN_Z_STRIDE,
                                                 IQN_STRIDE, IQN_THREADS>;
    using GradPhi = typename Math::template Block<IQN_MAX_TAUS, HIDDEN_DIM, Tile::DEPTH, true, false, IQN_Z_STRIDE,
                                                  IQN_STRIDE, IQN_THREADS>;

    using Base::Base;

    // E[IQN] at h_n of every pair without bias: a thread a column, each group a quarter of the inputs.
    __device__ __forceinline__ void expectations(const Rows& t) const {
        constexpr int DEPTH = HIDDEN_DIM / IQN_GROUPS, AHEAD = SUMS == IQN_ONE_TILE ? 8 : DEPTH / 4;  // registers allow
        for (int c = k; c < pairs; c += HIDDEN_DIM) {
            const float* w = u.w_iqn + group * DEPTH * pairs + c;
            float sum[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; ++r) sum[r] = 0.0f;
#pragma unroll AHEAD
            for (int i = 0; i < DEPTH; i += 4) {
                const int input = group * DEPTH + i;
                float scaled[4], x[4];
                load4(s.mean + input, scaled);
#pragma unroll
                for (int e = 0; e < 4; ++e) scaled[e] *= w[(i + e) * pairs];
#pragma unroll
                for (int r = 0; r < ROWS; ++r) {
                    load4(t.h[1] + r * HIDDEN_DIM + input, x);
#pragma unroll
                    for (int e = 0; e < 4; ++e) sum[r] = fmaf(x[e], scaled[e], sum[r]);
                }
            }
#pragma unroll
            for (int r = 0; r < ROWS; ++r) q[(group * ROWS + r) * pairs + c] = sum[r];
        }
    }

    // The target's column: the action of largest E[IQN] at h_n in the class after the slot's action; first of equals.
    __device__ __forceinline__ void choose(const Rows& t) const {
        if (tid >= USED) return;
        const int first = t.next_class[tid] * N_ACTIONS;
        const float* shares = q + tid / SLOTS * pairs + first;
        float best_value = 0.0f;
        int best = 0;
#pragma unroll
        for (int a = 0; a < N_ACTIONS; ++a) {
            float value = shares[a];
#pragma unroll
            for (int g = 1; g < IQN_GROUPS; ++g) value += shares[g * ROWS * pairs + a];
            value += b[first + a];
            if (a == 0 || value > best_value) best = a, best_value = value;
        }
        s.next_column[tid] = first + best;
        s.bias[tid] = b[t.column[tid]];
        s.offset[tid] = fmaf(t.keep[tid], target_b[first + best], t.reward[tid]);
    }

    // h * W[:, column] of the online head, h_n * W[:, next column] of the target head; four adjacent inputs a thread.
    __device__ __forceinline__ void scaled_columns(const Rows& t) const {
        constexpr int EACH = (2 * USED + IQN_THREADS / 32 - 1) / (IQN_THREADS / 32);
        const int input = tid % 32 * 4;
        float w[EACH][4], x[4];
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            const int at = tid / 32 + i * (IQN_THREADS / 32), slot = at % USED;
            if (at >= 2 * USED) continue;
            const int column = at < USED ? t.column[slot] : pairs + s.next_column[slot];
            load4(u.iqn_columns + column * HIDDEN_DIM + input, w[i]);
        }
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            const int at = tid / 32 + i * (IQN_THREADS / 32), slot = at % USED, head = at / USED;
            if (at >= 2 * USED) continue;
            load4(t.h[head] + slot / SLOTS * HIDDEN_DIM + input, x);
#pragma unroll
            for (int e = 0; e < 4; ++e) x[e] = Math::operand(x[e] * w[i][e]);
            store4(s.hw[head] + slot * IQN_STRIDE + input, x);
        }
    }

    // z[0]: quantiles at h; z[1]: targets.
    __device__ __forceinline__ void quantiles(const Rows& t) const {
        const int head = tid / (IQN_THREADS / 2);
        Quantiles product(tid % (IQN_THREADS / 2));
        product.multiply(s.hw[head], s.phi[head]);
        product.each([&](int slot, int tau, float& v) {
            if (slot >= USED) return;
            s.z[head][slot * IQN_Z_STRIDE + tau] = head == 0 ? v + s.bias[slot] : fmaf(t.keep[slot], v, s.offset[slot]);
        });
    }

    // Loss of each slot (times N_TAU) and gradient of its quantiles. A warp takes half a slot's quantiles at a time,
    // two lanes a quantile, each half the targets, ascending.
    __device__ __forceinline__ void losses(const Rows& t) const {
        const int lane = tid % 32, targets = (u.n + 1) / 2, first = lane / 16 * targets;
        const int last = first + targets < u.n ? first + targets : u.n;
        for (int half = tid / 32; half < 2 * USED; half += IQN_THREADS / 32) {
            const int slot = half / 2, i = half % 2 * 16 + lane % 16;
            const float* target = s.z[1] + slot * IQN_Z_STRIDE;
            const float z = s.z[0][slot * IQN_Z_STRIDE + i], tau = s.tau[i];
            float loss = 0.0f, pull = 0.0f;
#pragma unroll 8
            for (int j = first; j < last; ++j) quantile_huber_pair(target[j], z, tau, &loss, &pull);
            pull += loss - loss;  // a loss that is no number shows in the gradient, too
            pull += __shfl_xor_sync(REDUCE_FULL_WARP, pull, 16);
            if (lane < 16) s.grad_z[slot * IQN_Z_STRIDE + i] = i < u.n ? Math::operand(t.scale[slot] * pull) : 0.0f;
            loss = warp_sum(i < u.n ? loss : 0.0f);
            if (lane == 0) s.loss[half] = loss;
        }
    }

    __device__ __forceinline__ void gradients(GradPhi& grad_phi) const {
        GradHw grad_hw(tid);
        grad_hw.multiply(s.grad_z, s.phi[0]);
        grad_phi.multiply(s.grad_z, s.hw[0]);
        grad_hw.each([&](int slot, int input, float& v) {
            if (slot < USED) s.hw[1][slot * IQN_STRIDE + input] = v;
        });
        if (tid >= USED) return;
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < IQN_MAX_TAUS; i += 4) {
            float v[4];
            load4(s.grad_z + tid * IQN_Z_STRIDE + i, v);
            sum += (v[0] + v[1]) + (v[2] + v[3]);
        }
        s.slot_grad[tid] = sum;
    }

    // Adds the slot to the sums of its column.
    __device__ __forceinline__ void add_slot(const Rows& t, int slot) const {
        float* to = sums + t.column[slot] * HIDDEN_DIM + k;
        *to = fmaf(t.h[0][slot / SLOTS * HIDDEN_DIM + k], s.hw[1][slot * IQN_STRIDE + k], *to);
        if (k == 0) sums[pairs * HIDDEN_DIM + t.column[slot]] += s.slot_grad[slot];
    }

    // Sums of a column over the tile's rows of its class, the first of which is `first`: the bits of add_slot from zero on.
    __device__ __forceinline__ void store_slots(const Rows& t, int first, int a) const {
        const int column = t.column[first * SLOTS + a];
        float sum = 0.0f, bias = 0.0f;
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int slot = r * SLOTS + a;
            if (r < first || t.column[slot] != column) continue;
            sum = fmaf(t.h[0][r * HIDDEN_DIM + k], s.hw[1][slot * IQN_STRIDE + k], sum);
            bias += s.slot_grad[slot];
        }
        sums[column * HIDDEN_DIM + k] = sum;
        if (k == 0) sums[pairs * HIDDEN_DIM + column] = bias;
    }

    __device__ __forceinline__ void add_columns(const Rows& t) const {
        if (SUMS == IQN_ONE_TILE) {
            static_assert(SUMS != IQN_ONE_TILE || (SLOTS == N_ACTIONS && IqnTile<SLOTS>::ROWS == 2), "two rows, all actions");
            const bool alike = t.column[0] == t.column[SLOTS];
            for (int a = group; a < SLOTS; a += IQN_GROUPS) {
                store_slots(t, 0, a);
                if (!alike) store_slots(t, 1, a);
            }
        } else if (SLOTS == 1) {
            for (int slot = 0; slot < USED; ++slot) {
                if (t.column[slot] % N_ACTIONS % IQN_GROUPS == group) add_slot(t, slot);
            }
        } else {
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                for (int a = group; a < SLOTS; a += IQN_GROUPS) add_slot(t, r * SLOTS + a);
            }
        }
    }

    __device__ __forceinline__ void add_losses(int row0, float* sum, float* bad) const {
        for (int r = 0; r < ROWS && row0 + r < u.rows; ++r) {
            float loss = 0.0f;
#pragma unroll
            for (int half = 0; half < 2 * SLOTS; ++half) loss += s.loss[2 * r * SLOTS + half];
            loss /= IQN_KAPPA * u.n * SLOTS;
            *sum += loss;
            if (!is_finite(loss)) *bad += 1.0f;
        }
    }

    __device__ __forceinline__ void finish(GradPhi& grad_phi, float loss_sum, float bad) const {
        float *parts = my_parts(), *rest = parts + IQN_COLUMN_SUMS(pairs);
        if (SUMS == IQN_SUMS_SHARED) {
            for (int c = 0; c < u.P; ++c) {
                if (!(s.visited >> c & 1)) continue;
#pragma unroll 4
                for (int a = group; a < N_ACTIONS; a += IQN_GROUPS) {
                    const int column = c * N_ACTIONS + a;
                    parts[column * HIDDEN_DIM + k] = sums[column * HIDDEN_DIM + k];
                    if (k == 0) parts[pairs * HIDDEN_DIM + column] = sums[pairs * HIDDEN_DIM + column];
                }
            }
        }
        grad_phi.each([&](int tau, int input, float& v) { rest[tau * HIDDEN_DIM + input] = v; });
        if (tid == IQN_THREADS - 1) {
            rest[IQN_MAX_TAUS * HIDDEN_DIM] = loss_sum;
            rest[IQN_MAX_TAUS * HIDDEN_DIM + 1] = bad;
            rest[IQN_MAX_TAUS * HIDDEN_DIM + 2] = (float)s.visited;
        }
    }

    __device__ __forceinline__ void run() const {
        float loss_sum = 0.0f, bad = 0.0f, ahead[2][ROW_LOADS];
        GradPhi grad_phi(tid);
        int row0 = blockIdx.x * ROWS, now = 0;
        if (tid == IQN_THREADS - 32) s.visited = 0;
        __syncthreads();
        load_slots(s.rows[0], row0);
        fetch_rows(row0, ahead);
        begin();
        keep_rows(s.rows[0], ahead);
        __syncthreads();
        mean_embedding();
        __syncthreads();
        for (; row0 < u.rows; row0 += gridDim.x * ROWS, now ^= 1) {
            const Rows& t = s.rows[now];
            Rows& next = s.rows[now ^ 1];
            const int next_row0 = row0 + gridDim.x * ROWS;
            expectations(t);
            __syncthreads();
            choose(t);
            __syncthreads();
            scaled_columns(t);
            __syncthreads();
            quantiles(t);
            __syncthreads();
            if (SUMS != IQN_ONE_TILE && next_row0 < u.rows) {
                fetch_rows(next_row0, ahead);
                load_slots(next, next_row0);
            }
            losses(t);
            if (SUMS != IQN_ONE_TILE) keep_rows(next, ahead);
            __syncthreads();
            gradients(grad_phi);
            __syncthreads();
            add_columns(t);
            if (tid == IQN_THREADS - 1) add_losses(row0, &loss_sum, &bad);
            if (SUMS == IQN_ONE_TILE) break;
            __syncthreads();
        }
        finish(grad_phi, loss_sum, bad);
    }
};
