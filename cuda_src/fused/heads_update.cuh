// The three supervised heads in one pass over the encodings: forward, losses, backward, gradient of the encodings.
//
// A block of 512 threads takes tiles of M rows, tile blockIdx.x + i gridDim.x, i ascending. Of a tile the encodings, the
// first layers' outputs (64 FRD units, 3 direction logits, 3 P outcome logits: one product) and the FRD logits stay in
// shared memory, where their gradients take their place; gradients of the weights stay in registers until the block
// ends. rl_heads_reduce adds the blocks' sums in order. Written once over a Math (block_product.cuh).
#pragma once
#include "fused/block_product.cuh"
#include "fused/heads_tile.cuh"

// The phases of a tile, in the order in which run() at the end calls them.
template <class Math, int M, int WIDTH, bool STAGED>
struct Heads {
    using Tile = HeadsTile<M, WIDTH, STAGED>;
    static constexpr int STRIDE = Tile::STRIDE, FIRST = Tile::FIRST, SECOND = Tile::SECOND;
    using Layer1 = typename Math::template Block<M, WIDTH, HIDDEN_DIM, false, false, HEADS_STRIDE, STRIDE,
                                                 HEADS_THREADS>;
    using Layer2 = typename Math::template Block<M, HEADS_FRD, HEADS_UNITS, false, false, STRIDE, HEADS_FRD_STRIDE,
                                                 HEADS_THREADS>;
    using GradUnits = typename Math::template Block<M, HEADS_UNITS, HEADS_FRD, false, true, HEADS_FRD_STRIDE,
                                                    HEADS_FRD_STRIDE, HEADS_THREADS>;
    using GradH = typename Math::template Block<M, HIDDEN_DIM, WIDTH, false, true, STRIDE, STRIDE, HEADS_THREADS>;
    using GradFirst = typename Math::template Block<HIDDEN_DIM, WIDTH, M, true, false, HEADS_STRIDE, STRIDE,
                                                    HEADS_THREADS>;
    using GradSecond = typename Math::template Block<HEADS_UNITS, HEADS_FRD, M, true, false, STRIDE, HEADS_FRD_STRIDE,
                                                     HEADS_THREADS>;

    struct Sums {
        float of[HEADS_SUMS], bias;  // bias: gradient of one column's bias, this thread's
    };

    static __device__ __forceinline__ void begin(Tile& s, const HeadsUpdate& u) {
        const int head = threadIdx.x / 32, lane = threadIdx.x % 32;
        if (head < 3) {  // a warp a head
            int labels = 0;
#pragma unroll
            for (int i = lane; i < LABEL_BLOCKS; i += 32) labels += u.label_counts[i * 3 + head];
            labels = warp_sum_int(labels);
            const float weight = u.isv[head == 1 ? ISV_LOSS_LAMBDA_BCE : ISV_LOSS_LAMBDA_AUX];
            if (lane == 0) s.scale[head] = weight * (1.0f / (labels > 1 ? (float)labels : 1.0f));
        }
        if (STAGED) {
#pragma unroll 6
            for (int i = 4 * threadIdx.x; i < FIRST + SECOND; i += 4 * HEADS_THREADS) {
                float v[4];
                load4(u.weights + i, v);
#pragma unroll
                for (int e = 0; e < 4; ++e) v[e] = Math::operand(v[e]);
                store4(s.staged + i, v);
            }
        }
    }

    static __device__ __forceinline__ void load_rows(Tile& s, const HeadsUpdate& u, int row0) {
#pragma unroll
        for (int i = threadIdx.x; i < M * HIDDEN_DIM / 4; i += HEADS_THREADS) {
            const int r = i / (HIDDEN_DIM / 4), k = i % (HIDDEN_DIM / 4) * 4;
            float v[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            if (row0 + r < u.rows) load4(u.h + (long long)(row0 + r) * HIDDEN_DIM + k, v);
#pragma unroll
            for (int e = 0; e < 4; ++e) v[e] = Math::operand(v[e]);
            store4(s.h + r * HEADS_STRIDE + k, v);
        }
    }

    static __device__ __forceinline__ void forward(Tile& s, const float* first, const float* second, const float* bias) {
        Layer1 one(threadIdx.x);
        one.multiply(s.h, first);
        one.each([&](int r, int c, float& v) {
            const float x = v + bias[c];  // of units an operand, of the other heads a logit
            s.outputs[r * STRIDE + c] = c >= HEADS_UNITS ? x : (x < 0.0f ? 0.0f : Math::operand(x));
        });
        __syncthreads();
        Layer2 two(threadIdx.x);
        two.multiply(s.outputs, second);
        two.each([&](int r, int c, float& v) { s.logits[r * HEADS_FRD_STRIDE + c] = v + bias[WIDTH + c]; });
        __syncthreads();
    }

    static __device__ __forceinline__ void add_row(const Tile& s, int r, Sums& sums) {
        float frd = 0.0f, direction = 0.0f;
        for (int i = 0; i < N_HORIZONS; ++i) {
            frd += s.frd_loss[r * N_HORIZONS + i];
            direction += s.direction_loss[r * N_HORIZONS + i];
        }
        const float loss[3] = {frd, direction, s.outcome_loss[r]};
        for (int i = 0; i < 3; ++i) {
            sums.of[2 * i] += loss[i];
            if (!is_finite(loss[i])) sums.of[2 * i + 1] += 1.0f;
        }
        sums.of[SUM_HITS] += s.outcome_hit[r];
    }

    static __device__ __forceinline__ float column_sum(const float* matrix, int stride) {
        float sum = 0.0f;
#pragma unroll 8
        for (int r = 0; r < M; ++r) sum += matrix[r * stride];
        return sum;
    }

    // From the losses' gradients to those of weights and encodings.
    static __device__ __forceinline__ void backward(Tile& s, const HeadsUpdate& u, const float* first,
                                                    const float* second, int row0, GradFirst& grad_first,
                                                    GradSecond& grad_second, Sums& sums) {
        const int tid = threadIdx.x;
        GradUnits grad_units(tid);
        grad_second.multiply(s.outputs, s.logits);
        grad_units.multiply(s.logits, second);
        if (tid >= WIDTH && tid < WIDTH + HEADS_FRD) sums.bias += column_sum(s.logits + tid - WIDTH, HEADS_FRD_STRIDE);
        if (tid >= HEADS_THREADS - M) add_row(s, tid - (HEADS_THREADS - M), sums);
        __syncthreads();
        // A unit at zero passes nothing; a NaN unit passes its gradient on.
        grad_units.each([&](int r, int c, float& v) {
            float* unit = s.outputs + r * STRIDE + c;
            *unit = *unit == 0.0f ? 0.0f : Math::operand(v);
        });
        __syncthreads();
        grad_first.multiply(s.h, s.outputs);
        if (tid < WIDTH) sums.bias += column_sum(s.outputs + tid, STRIDE);
        __syncthreads();
        const float frd_lambda = u.isv[ISV_FRD_LAMBDA], outcome_lambda = u.isv[ISV_OUTCOME_LAMBDA];
        for (int i = tid; i < M * WIDTH; i += HEADS_THREADS) {  // the weights bear on the encoder alone
            const int c = i % WIDTH;
            float* v = s.outputs + i / WIDTH * STRIDE + c;
            *v = Math::operand(*v * (c < HEADS_UNITS ? frd_lambda : (c < HEADS_OUTCOME ? 1.0f : outcome_lambda)));
        }
        __syncthreads();
        GradH grad_h(tid);
        grad_h.multiply(s.outputs, first);
        float* to = u.grad_h + (long long)row0 * HIDDEN_DIM;
        const int here = u.rows - row0;
        if (!u.first) {  // every load before the first store
            grad_h.each([&](int r, int k, float& v) {
                if (r < here) v = to[r * HIDDEN_DIM + k] + v;
            });
        }
        grad_h.each([&](int r, int k, float& v) {
            if (r < here) to[r * HIDDEN_DIM + k] = v;
        });
    }

    static __device__ __forceinline__ void finish(Tile& s, const HeadsUpdate& u, GradFirst& grad_first,
                                                  GradSecond& grad_second, Sums& sums) {
        float* parts = u.parts + (long long)blockIdx.x * HEADS_PART_SIZE(WIDTH);
        float* second = parts + HIDDEN_DIM * WIDTH;
        float* bias = second + HEADS_UNITS * HEADS_FRD;
        grad_first.each([&](int k, int c, float& v) { parts[k * WIDTH + c] = v; });
        grad_second.each([&](int unit, int c, float& v) { second[unit * HEADS_FRD + c] = v; });
        if (threadIdx.x < WIDTH + HEADS_FRD) bias[threadIdx.x] = sums.bias;
        // The threads that add rows are the last M: one to two warps, whose sums are added one after another.
        const int warp = threadIdx.x / 32, first = (HEADS_THREADS - M) / 32;
        if (warp >= first) {
#pragma unroll
            for (int i = 0; i < HEADS_SUMS; ++i) {
                const float sum = warp_sum(sums.of[i]);
                if (threadIdx.x % 32 == 0) s.h[(warp - first) * HEADS_SUMS + i] = sum;
            }
        }
        __syncthreads();
        if (threadIdx.x < HEADS_SUMS) {
            float sum = 0.0f;
            for (int w = 0; w < HEADS_THREADS / 32 - first; ++w) sum += s.h[w * HEADS_SUMS + threadIdx.x];
            bias[WIDTH + HEADS_FRD + threadIdx.x] = sum;
        }
    }

    static __device__ __forceinline__ void run(float* shared, const HeadsUpdate& u) {
        Tile& s = *(Tile*)shared;
        const float* first = STAGED ? s.staged : u.weights;
        const float *second = first + FIRST, *bias = u.weights + FIRST + SECOND;
        GradFirst grad_first(threadIdx.x);
        GradSecond grad_second(threadIdx.x);
        Sums sums = {};
        begin(s, u);
        for (int row0 = blockIdx.x * M; row0 < u.rows; row0 += gridDim.x * M) {
            load_rows(s, u, row0);
            __syncthreads();
            forward(s, first, second, bias);
            HeadsLosses<Math, M, WIDTH, STAGED>::all(s, u, row0);
            __syncthreads();
            backward(s, u, first, second, row0, grad_first, grad_second, sums);
        }
        __syncthreads();  // finish() reuses the rows
        finish(s, u, grad_first, grad_second, sums);
    }
};

// The width that P asks for.
template <class Math, int M, bool STAGED>
static __device__ __forceinline__ void run_heads(float* shared, const HeadsUpdate& u) {
    if (HEADS_WIDTH(u.P) == 96) Heads<Math, M, 96, STAGED>::run(shared, u);
    else Heads<Math, M, 128, STAGED>::run(shared, u);
}
