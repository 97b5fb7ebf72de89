// The three supervised heads in one pass over the encodings: forward, losses, backward, gradient of the encodings.
//
// A block of 512 threads takes tiles of M rows, tile blockIdx.x + i gridDim.x, i ascending. Of a tile the encodings, the
// first layers' outputs (64 FRD units, 3 direction logits, 3 P outcome logits: one product) and the FRD logits stay in
// shared memory, where their gradients take their place; gradients of the weights stay in registers until the block
// ends. rl_heads_reduce adds the blocks' sums in order. Written once over a Math (block_product.cuh).
//
// Columns of the first layer: [0, 64) FRD units, [64, 67) direction, [67, 67 + 3P) outcome, padded with zeros to WIDTH.
// heads_weights, packed by rl_heads_prepare: first layer [128][WIDTH + 8], second [64][72], their biases [WIDTH], [64].
// heads_parts [blocks, HEADS_PART_SIZE]: gradients of the first layer [128][WIDTH], of the second [64][64], of their
// biases [WIDTH], [64], then HEADS_SUMS sums.
#pragma once
#include "fused/block_product.cuh"
#include "generated/isv_slots.cuh"
#include "generated/structure.cuh"
#include "include/math.cuh"
#include "include/reduce.cuh"
#include "nets/lanes.cuh"
#include "nets/outcome.cuh"
#include "nets/policy.cuh"

#define HEADS_THREADS 512
#define HEADS_UNITS 64                // FRD units
#define HEADS_FRD 64                  // FRD logits, 63, padded
#define HEADS_OUTCOME (HEADS_UNITS + N_HORIZONS)  // first column of the outcome head
#define HEADS_WIDTH(P) ((P) <= 9 ? 96 : 128)      // columns of the first layer; P at most 20
#define HEADS_STRIDE 132              // rows of encodings in shared memory
#define HEADS_FRD_STRIDE (HEADS_FRD + 8)
#define LABEL_BLOCKS 64               // of rl_heads_prepare
// What a block sums over its rows: cross-entropies of labels, rows whose loss is not finite, outcomes that were right.
#define HEADS_SUMS 7
#define SUM_FRD 0
#define SUM_DIRECTION 2
#define SUM_OUTCOME 4
#define SUM_HITS 6
#define HEADS_WEIGHT_SIZE(width) (HIDDEN_DIM * ((width) + 8) + HEADS_UNITS * HEADS_FRD_STRIDE + (width) + HEADS_FRD)
#define HEADS_PART_SIZE(width) ((HIDDEN_DIM + 1) * (width) + (HEADS_UNITS + 1) * HEADS_FRD + HEADS_SUMS)

struct HeadsUpdate {
    const float* h;                                     // [rows, 128]
    const float* weights;                               // heads_weights
    const signed char *frd_target, *direction_target;   // [rows, 3], -1 = none
    const signed char* outcome_target;                  // [rows], -1 = none
    const int* position_class;                          // [rows] before the step
    const int* label_counts;                            // [LABEL_BLOCKS, 3]: labels of each head
    const float* isv;
    float *grad_h, *parts;
    int rows, P, first;  // first: grad_h is overwritten, else added to
};

// STAGED: the weights have a copy in shared memory.
template <class Math, int M, int WIDTH, bool STAGED>
struct Heads {
    static constexpr int STRIDE = WIDTH + 8, FIRST = HIDDEN_DIM * STRIDE, SECOND = HEADS_UNITS * HEADS_FRD_STRIDE;
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

    struct Tile {
        float h[M * HEADS_STRIDE], outputs[M * STRIDE], logits[M * HEADS_FRD_STRIDE];
        float frd_loss[M * N_HORIZONS], direction_loss[M * N_HORIZONS], outcome_loss[M], outcome_hit[M];
        float scale[3];  // factor of each head's gradient: its weight / its labels
        alignas(16) float staged[STAGED ? FIRST + SECOND : 4];  // read and written four at a time
    };
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

    // Cross-entropy of one horizon; its logits become their gradient. The pad column belongs to the last horizon.
    static __device__ __forceinline__ void frd_loss(Tile& s, const HeadsUpdate& u, int row0, int item) {
        const int r = item / N_HORIZONS, horizon = item - r * N_HORIZONS;
        const int label = row0 + r < u.rows ? u.frd_target[(long long)row0 * N_HORIZONS + item] : -1;
        float* logits = s.logits + r * HEADS_FRD_STRIDE + horizon * N_BUCKETS;
        float x[N_BUCKETS], top = -MATH_FLOAT_MAX, sum = 0.0f, loss = 0.0f;
        if (label >= 0) {
#pragma unroll
            for (int k = 0; k < N_BUCKETS; ++k) {
                x[k] = logits[k];
                top = x[k] > top ? x[k] : top;
            }
            const float chosen = logits[label] - top;
#pragma unroll
            for (int k = 0; k < N_BUCKETS; ++k) {
                x[k] = lanes_exp(x[k] - top);
                sum += x[k];
            }
            loss = logf(sum) - chosen;
        }
        const float scale = label < 0 ? 0.0f : s.scale[0], inverse = 1.0f / sum;
#pragma unroll
        for (int k = 0; k < N_BUCKETS; ++k) {
            logits[k] = scale == 0.0f ? 0.0f : Math::operand(scale * (x[k] * inverse - (k == label ? 1.0f : 0.0f)));
        }
        if (horizon == N_HORIZONS - 1) logits[N_BUCKETS] = 0.0f;
        s.frd_loss[item] = loss;
    }

    static __device__ __forceinline__ void direction_loss(Tile& s, const HeadsUpdate& u, int row0, int item) {
        const int r = item / N_HORIZONS;
        const int label = row0 + r < u.rows ? u.direction_target[(long long)row0 * N_HORIZONS + item] : -1;
        float* x = s.outputs + r * STRIDE + HEADS_UNITS + item - r * N_HORIZONS;
        const float y = label > 0 ? 1.0f : 0.0f;
        s.direction_loss[item] = label < 0 ? 0.0f : softplus(*x) - y * *x;
        *x = label < 0 ? 0.0f : Math::operand(s.scale[1] * (sigmoid(*x) - y));
    }

    static __device__ __forceinline__ void outcome_loss(Tile& s, const HeadsUpdate& u, int row0, int r) {
        const int label = row0 + r < u.rows ? u.outcome_target[row0 + r] : -1;
        const int own = label < 0 ? 0 : head_block(u.position_class[row0 + r], u.P) * N_OUTCOMES;
        float* x = s.outputs + r * STRIDE + HEADS_OUTCOME;
        float prob[N_OUTCOMES], loss = 0.0f, sum = 0.0f;
        int best = 0;
        if (label >= 0) {
            for (int k = 1; k < N_OUTCOMES; ++k) best = x[own + k] > x[own + best] ? k : best;
            const float top = x[own + best];
            for (int k = 0; k < N_OUTCOMES; ++k) {
                prob[k] = expf(x[own + k] - top);
                sum += prob[k];
            }
            loss = logf(sum) - (x[own + label] - top);
        }
        for (int c = HEADS_OUTCOME; c < WIDTH; ++c) s.outputs[r * STRIDE + c] = 0.0f;
        for (int k = 0; k < N_OUTCOMES && label >= 0; ++k) {
            x[own + k] = Math::operand(s.scale[2] * (prob[k] / sum - (k == label ? 1.0f : 0.0f)));
        }
        s.outcome_loss[r] = loss;
        s.outcome_hit[r] = label >= 0 && label == best ? 1.0f : 0.0f;
    }

    // Every head's losses by threads of their own; outputs and logits become gradients.
    static __device__ __forceinline__ void losses(Tile& s, const HeadsUpdate& u, int row0) {
        const int items = M * N_HORIZONS;
        for (int i = threadIdx.x; i < 2 * items + M; i += HEADS_THREADS) {
            if (i < items) frd_loss(s, u, row0, i);
            else if (i < 2 * items) direction_loss(s, u, row0, i - items);
            else outcome_loss(s, u, row0, i - 2 * items);
        }
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
            losses(s, u, row0);
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
