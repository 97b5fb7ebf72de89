// The C51 head's update on tensor cores: logits, targets, loss and gradients of some rows and eight pairs by a block.
//
// A block keeps eight pairs, two warps each, and goes through its slice of the batch in tiles of 32 rows. Of a pair each
// warp has the logits and the loss of 16 rows, in registers; then, of all 32 rows, the gradient of the weights of 64
// inputs, whose sums stay in registers over all tiles. Order of every sum: by the sizes alone.
#pragma once
#include "cuda_only/c51_project.cuh"
#include "cuda_only/c51_tf32.cuh"
#include "fused/block_product.cuh"
#include "fused/critic_parts.cuh"
#include "include/math.cuh"
#include "include/reduce.cuh"
#include "nets/adam.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

#define UPDATE_ROWS 32
#define ROW_STRIDE 136      // floats of a row of encodings in shared memory: 8 mod 32, so that no access meets another
#define UPDATE_THREADS 512
#define UPDATE_PAIRS 8
#define HALF_ROWS (UPDATE_ROWS / 2)     // of a warp
#define HALF_INPUTS (HIDDEN_DIM / 2)

// The batch; PATH: rewards [R, pairs] and next_class [pairs], else rewards [R] and next_lots [R].
struct C51Batch {
    const float *h, *next_prob, *reward, *discount, *weight;
    const signed char *next_class, *next_lots, *lots, *action;
    const unsigned char* terminal;
};

// Shared memory of a tile; the tile's next distributions [32, P, 21] and their Below [32, P, 22] follow it.
struct UpdateTile {
    float rows[2][UPDATE_ROWS * ROW_STRIDE];  // of the tile and, while it is worked on, of the next one
    unsigned int halves[UPDATE_ROWS * ROW_WORDS];  // the tile's, for the logits
    float slope[UPDATE_PAIRS][UPDATE_ROWS * C51_PLACES];  // gradient of a pair's logits, row-major
    float reward[UPDATE_ROWS][UPDATE_PAIRS], loss[UPDATE_ROWS][UPDATE_PAIRS];
    float keep[UPDATE_ROWS], scale[UPDATE_ROWS], stretch[UPDATE_ROWS], inverse[UPDATE_ROWS];
    int executed[UPDATE_ROWS], to[UPDATE_ROWS];  // executed pair; class after n steps
};

// What a lane adds up over its rows.
struct UpdateSums {
    float weights[HALF_INPUTS / 16][3][4];  // gradient of the pair's weights: tiles of 16 inputs x 8 columns
    float bias[6];
    float top, low, clipped, bad;
};

// Asks for what is long of a tile: encodings, and the next distributions into `next`. Ends the group of copies.
static __device__ __forceinline__ void fetch_tile(float* rows, float* next, const C51Batch& batch, int r0, int R, int P) {
    const int width = P * C51_ATOMS, vectors = UPDATE_ROWS * width / 4;
    for (int i = threadIdx.x; i < UPDATE_ROWS * (HIDDEN_DIM / 4); i += blockDim.x) {
        const int row = i / (HIDDEN_DIM / 4), k = i % (HIDDEN_DIM / 4) * 4, real = r0 + row < R ? 16 : 0;
        copy16_async(rows + row * ROW_STRIDE + k, batch.h + (long long)(real ? r0 + row : 0) * HIDDEN_DIM + k, real);
    }
    const long long first = (long long)r0 * width, left = (long long)R * width - first;
    for (int i = threadIdx.x; i < vectors; i += blockDim.x) {
        const long long floats = left - 4 * i;
        const int bytes = floats >= 4 ? 16 : (floats > 0 ? 4 * (int)floats : 0);
        copy16_async(next + 4 * i, batch.next_prob + (bytes ? first + 4 * i : 0), bytes);
    }
    copy_commit();
}

// Encodings that this thread has asked for become TF32 numbers, for the gradient, and halves.
static __device__ __forceinline__ void round_rows(float* rows, unsigned int* halves) {
    for (int i = threadIdx.x; i < UPDATE_ROWS * (HIDDEN_DIM / 4); i += blockDim.x) {
        const int row = i / (HIDDEN_DIM / 4), k = i % (HIDDEN_DIM / 4) * 4;
        float four[4];
        load4(rows + row * ROW_STRIDE + k, four);
        *(uint2*)(halves + row * ROW_WORDS + k / 2) = make_uint2(to_halves(four[0], four[1]), to_halves(four[2], four[3]));
#pragma unroll
        for (int e = 0; e < 4; ++e) four[e] = __uint_as_float(to_tf32(four[e]));
        store4(rows + row * ROW_STRIDE + k, four);
    }
}

// What a row brings beside the long arrays.
template <bool PATH>
static __device__ __forceinline__ void load_scalars(UpdateTile* tile, const C51Batch& batch, const float* isv, int r0,
                                                    int pair0, int R, int P) {
    const int pairs = P * N_ACTIONS;
    for (int i = threadIdx.x; PATH && i < UPDATE_ROWS * UPDATE_PAIRS; i += blockDim.x) {
        const int r = r0 + i / UPDATE_PAIRS, pair = pair0 + i % UPDATE_PAIRS;
        tile->reward[0][i] = r < R && pair < pairs ? batch.reward[(long long)r * pairs + pair] : 0.0f;
    }
    // The last warp: the first ones have the rewards.
    const int row = (int)threadIdx.x - (UPDATE_THREADS - UPDATE_ROWS);
    if (row < 0) return;
    const int r = r0 + row < R ? r0 + row : R - 1, middle = (P - 1) / 2;
    const float learned = (float)R * (PATH ? pairs : 1), keep = batch.terminal[r] ? 0.0f : batch.discount[r];
    const float stretch = isv[ISV_C51_V_MAX] > isv[ISV_C51_V_MIN] ? keep : 0.0f;
    tile->keep[row] = keep;
    tile->stretch[row] = stretch;
    tile->inverse[row] = 1.0f / stretch;
    tile->scale[row] = r0 + row < R ? isv[ISV_LOSS_LAMBDA_Q] * batch.weight[r] / learned : 0.0f;
    tile->executed[row] = (P == 1 ? 0 : batch.lots[r] + middle) * N_ACTIONS + batch.action[r];
    if (PATH) return;
    tile->to[row] = P == 1 ? 0 : batch.next_lots[r] + middle;
    for (int w = 0; w < UPDATE_PAIRS; ++w) tile->reward[row][w] = batch.reward[r];
}

// Sums of the next distributions, one thread a distribution.
static __device__ __forceinline__ void sum_next(const float* next, Below* below, int P) {
    for (int i = threadIdx.x; i < UPDATE_ROWS * P; i += blockDim.x) {
        float own[C51_ATOMS];
#pragma unroll
        for (int j = 0; j < C51_ATOMS; ++j) own[j] = next[i * C51_ATOMS + j];
        Below sum = {0.0f, 0.0f};
        below[i * BELOW_ATOMS] = sum;
#pragma unroll
        for (int j = 0; j < C51_ATOMS; ++j) {
            sum.mass += own[j];
            sum.moment = fmaf((float)j, own[j], sum.moment);
            below[i * BELOW_ATOMS + j + 1] = sum;
        }
    }
}

// Loss and gradient of a pair in a warp's half of a tile: the gradient goes to tile->slope, losses to tile->loss, gaps of
// the rows that executed the pair to row_gap.
template <bool PATH>
static __device__ __forceinline__ void learn_pair(UpdateTile* tile, const Below* next, UpdateSums* sums,
                                                  const C51Batch& batch, const unsigned int* packed_w,
                                                  const float* packed_b, float v_min, float v_max, float* row_gap,
                                                  int r0, int pair, int next_class, int R, int P) {
    const int warp = threadIdx.x / 32, own = warp % UPDATE_PAIRS, row0 = warp / UPDATE_PAIRS * HALF_ROWS;
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const float width = (v_max - v_min) / (C51_ATOMS - 1), inverse = v_max > v_min ? 1.0f / width : 0.0f;
    float bias[6], logits[1][3][4];
    load_bias(bias, packed_b, pair, t);
    pair_logits<1>(logits, tile->halves + row0 * ROW_WORDS, packed_w + (long long)pair * PAIR_WORDS, lane);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = row0 + 8 * half + g;
        const bool executed = tile->executed[row] == pair, learns = r0 + row < R && (PATH || executed);
        const QuadRow x = quad_softmax(logits[0], bias, half, t);
        const Below* below = next + (row * P + (PATH ? next_class : tile->to[row])) * BELOW_ATOMS;
        const float keep = tile->keep[row], reward = tile->reward[row][own], mass = below[C51_ATOMS].mass;
        const float mean = fmaf(keep, fmaf(width, below[C51_ATOMS].moment, v_min * mass), reward);
        const Landing at = {(fmaf(keep, v_min, reward) - v_min) * inverse, tile->stretch[row], tile->inverse[row]};
        const float scale = learns ? tile->scale[row] : 0.0f, share = __fdividef(mass, x.sum);
        float target[6], dot = 0.0f;
        project(below, at, mass, lane, target);
#pragma unroll
        for (int n = 0; n < 3; ++n) {
            float slope[2];
#pragma unroll
            for (int k = 0; k < 2; ++k) {
                dot = fmaf(target[2 * n + k], x.x[2 * n + k], dot);
                slope[k] = scale * (x.weight[2 * n + k] * share - target[2 * n + k]);
                sums->bias[2 * n + k] += slope[k];
                slope[k] = __uint_as_float(to_tf32(slope[k]));
            }
            *(float2*)(tile->slope[own] + row * C51_PLACES + 8 * n + 2 * t) = make_float2(slope[0], slope[1]);
        }
        // A mean that is not a number shows in the loss.
        const float loss = fmaf(0.0f, mean, MATH_LN2 * fmaf(x.top + __log2f(x.sum), mass, -quad_sum(dot)));
        float expected = 0.0f;
        if (__any_sync(0xffffffffu, executed)) {
#pragma unroll
            for (int k = 0; k < 6; ++k) expected = fmaf((float)atom_of(k, t), x.weight[k], expected);
            expected = fmaf(width, __fdividef(quad_sum(expected), x.sum), v_min);
        }
        if (t != 0) continue;
        tile->loss[row][own] = learns ? loss : 0.0f;
        if (!learns) continue;
        if (executed) row_gap[r0 + row] = expected - mean;
        sums->top = max_keep_nan(sums->top, mean);
        sums->low = min_keep_nan(sums->low, mean);
        const float end = fmaf(at.stretch, (float)(C51_ATOMS - 1), at.base);
        if (at.base < -C51_EDGE_SLACK || end > C51_ATOMS - 1 + C51_EDGE_SLACK) {
            sums->clipped += landed_outside(below, at, mass);
        }
    }
}

// sums.weights += h^T slope, the inputs of a warp's half by its pair. Rows are taken in their order, eight at a time.
static __device__ __forceinline__ void add_weight_gradient(const UpdateTile& tile, const float* rows, UpdateSums* sums) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int input0 = warp / UPDATE_PAIRS * HALF_INPUTS;
#pragma unroll
    for (int r = 0; r < UPDATE_ROWS; r += 8) {
        const float* slope = tile.slope[warp % UPDATE_PAIRS] + (r + t) * C51_PLACES + g;
        unsigned int b[3][2];
#pragma unroll
        for (int n = 0; n < 3; ++n) {
            b[n][0] = __float_as_uint(slope[8 * n]);
            b[n][1] = __float_as_uint(slope[4 * C51_PLACES + 8 * n]);
        }
        const float* h = rows + (r + t) * ROW_STRIDE + input0 + g;
#pragma unroll
        for (int m = 0; m < HALF_INPUTS / 16; ++m) {
            const unsigned int a[4] = {__float_as_uint(h[16 * m]), __float_as_uint(h[16 * m + 8]),
                                       __float_as_uint(h[4 * ROW_STRIDE + 16 * m]),
                                       __float_as_uint(h[4 * ROW_STRIDE + 16 * m + 8])};
#pragma unroll
            for (int n = 0; n < 3; ++n) mma_tf32(sums->weights[m][n], a, b[n]);
        }
    }
}

// A warp's part of the gradient, [129, pairs, 24] of its slice; counts what is not finite or too large for its square.
static __device__ __forceinline__ void store_weight_gradient(UpdateSums* sums, float* part, int pair, int pairs) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const long long input_size = (long long)pairs * C51_PLACES;
    float* to = part + (warp / UPDATE_PAIRS * HALF_INPUTS + g) * input_size + (long long)pair * C51_PLACES + 2 * t;
#pragma unroll
    for (int i = 0; i < HALF_INPUTS / 16 * 6; ++i) {
        const float* two = &sums->weights[0][0][0] + 2 * i;  // [m][n][half][2]
        const int m = i / 6, n = i % 6 / 2, half = i % 2;
        *(float2*)(to + (16 * m + 8 * half) * input_size + 8 * n) = make_float2(two[0], two[1]);
        if (!(fabsf(two[0]) < HUGE_GRADIENT && fabsf(two[1]) < HUGE_GRADIENT)) sums->bad += 1.0f;
    }
}

// The bias's: both warps of a pair have a half of the rows, which meet in `shared` [8, 2, 24]. All threads of the block.
static __device__ __forceinline__ void store_bias_gradient(UpdateSums* sums, float* shared, float* part, int pair0,
                                                           int pairs) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 6; ++i) {
        float v = sums->bias[i];
        for (int step = 4; step < 32; step <<= 1) v += __shfl_xor_sync(0xffffffffu, v, step);
        const int place = atom_of(i, lane % 4);
        if (lane < 4) shared[(warp % UPDATE_PAIRS * 2 + warp / UPDATE_PAIRS) * C51_PLACES + place] = v;
    }
    __syncthreads();
    const int pair = threadIdx.x / C51_PLACES, place = threadIdx.x % C51_PLACES;
    if (pair < UPDATE_PAIRS && pair0 + pair < pairs) {
        const float v = shared[2 * pair * C51_PLACES + place] + shared[(2 * pair + 1) * C51_PLACES + place];
        if (!(fabsf(v) < HUGE_GRADIENT)) sums->bad += 1.0f;
        part[((long long)HIDDEN_DIM * pairs + pair0 + pair) * C51_PLACES + place] = v;
    }
    __syncthreads();
}

// What the block tells of its rows, c51_block_parts: warps side by side, then theirs in order. shared [4 * 16]. All threads.
static __device__ __forceinline__ void store_block(const UpdateSums& own, float* shared, float* part) {
    constexpr int WARPS = UPDATE_THREADS / 32;
    const float top = warp_max(own.top), low = warp_min(own.low), clipped = warp_sum(own.clipped), bad = warp_sum(own.bad);
    float* mine = shared + threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) {
        mine[PART_TOP * WARPS] = top, mine[PART_LOW * WARPS] = low;
        mine[PART_CLIPPED * WARPS] = clipped, mine[PART_BAD * WARPS] = bad;
    }
    __syncthreads();
    const int which = threadIdx.x;
    if (which >= 4) return;
    float v = shared[which * WARPS];
#pragma unroll
    for (int w = 1; w < WARPS; ++w) {
        const float next = shared[which * WARPS + w];
        v = which == PART_TOP ? max_keep_nan(v, next) : (which == PART_LOW ? min_keep_nan(v, next) : v + next);
    }
    part[which] = v;
}

#endif
