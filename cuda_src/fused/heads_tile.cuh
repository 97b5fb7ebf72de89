// The supervised heads on a tile of rows (heads_update.cuh): its memory, the layout of weights and sums, the losses.
//
// Columns of the first layer: [0, 64) FRD units, [64, 67) direction, [67, 67 + 3P) outcome, padded with zeros to WIDTH.
// heads_weights, packed by rl_heads_prepare: first layer [128][WIDTH + 8], second [64][72], their biases [WIDTH], [64].
// heads_parts [blocks, HEADS_PART_SIZE]: gradients of the first layer [128][WIDTH], of the second [64][64], of their
// biases [WIDTH], [64], then HEADS_SUMS sums.
#pragma once
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

// Of a tile of M rows, in shared memory. STAGED: the weights have a copy there.
template <int M, int WIDTH, bool STAGED>
struct HeadsTile {
    static constexpr int STRIDE = WIDTH + 8;  // of a row of outputs
    static constexpr int FIRST = HIDDEN_DIM * STRIDE, SECOND = HEADS_UNITS * HEADS_FRD_STRIDE;  // of the layers' weights
    float h[M * HEADS_STRIDE], outputs[M * STRIDE], logits[M * HEADS_FRD_STRIDE];
    float frd_loss[M * N_HORIZONS], direction_loss[M * N_HORIZONS], outcome_loss[M], outcome_hit[M];
    float scale[3];  // factor of each head's gradient: its weight / its labels
    alignas(16) float staged[STAGED ? FIRST + SECOND : 4];  // read and written four at a time
};

// From outputs and logits to their gradients, in the same places; a loss a row and horizon stays for the sums.
template <class Math, int M, int WIDTH, bool STAGED>
struct HeadsLosses {
    using Tile = HeadsTile<M, WIDTH, STAGED>;
    static constexpr int STRIDE = Tile::STRIDE;

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

    // Every head's, by threads of their own.
    static __device__ __forceinline__ void all(Tile& s, const HeadsUpdate& u, int row0) {
        const int items = M * N_HORIZONS;
        for (int i = threadIdx.x; i < 2 * items + M; i += HEADS_THREADS) {
            if (i < items) frd_loss(s, u, row0, i);
            else if (i < 2 * items) direction_loss(s, u, row0, i - items);
            else outcome_loss(s, u, row0, i - 2 * items);
        }
    }
};
