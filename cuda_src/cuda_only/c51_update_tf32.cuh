// The C51 head's update on tensor cores: logits, targets, loss and gradients of some rows and eight pairs by a block.
//
// A block keeps eight pairs, two warps each, and goes through its slice of the batch in tiles of 32 rows. Of a pair each
// warp has the logits and the loss of 16 rows, in registers; then, of all 32 rows, the gradient of the weights of 64
// inputs, whose sums stay in registers over all tiles. Order of every sum: by the sizes alone.
#pragma once
#include "cuda_only/c51_tf32.cuh"
#include "fused/critic_step.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

#define UPDATE_ROWS 32
#define UPDATE_PAIRS 8
#define HALF_ROWS (UPDATE_ROWS / 2)     // of a warp
#define HALF_INPUTS (HIDDEN_DIM / 2)
#define HUGE_GRADIENT 1.0e18f     // its square times a chunk of 32 is still a float32
#define C51_EDGE_SLACK 1e-4f      // atoms; mass this near beyond an end of the span is not called clipped
#define NARROW_STRETCH 0.6f       // from here on at most five atoms of the next state reach two neighbours
#define WINDOW 6                  // those, and one for rounding

// The batch; PATH: rewards [R, pairs] and next_class [pairs], else rewards [R] and next_lots [R].
struct C51Batch {
    const float *h, *next_prob, *reward, *discount, *weight;
    const signed char *next_class, *next_lots, *lots, *action;
    const unsigned char* terminal;
};

// Shared memory of a tile; `next`, `below` [32, P, 21] and `moment` [32, P, 2] follow it.
struct UpdateTile {
    float rows[UPDATE_ROWS * ROW_STRIDE];
    float slope[UPDATE_PAIRS][UPDATE_ROWS * C51_PLACES];  // gradient of a pair's logits, row-major
    float reward[UPDATE_ROWS][UPDATE_PAIRS], loss[UPDATE_ROWS][UPDATE_PAIRS];
    float keep[UPDATE_ROWS], scale[UPDATE_ROWS];
    int executed[UPDATE_ROWS], to[UPDATE_ROWS];  // executed pair; class after n steps
};

// The next distributions of a tile, [32, P, 21]: mass of an atom, mass up to and with it; mass and mean index in all.
struct NextTile {
    float *mass, *below, *moment;
};

// Where mass of a next state lands, in atoms: base + stretch j, kept on [0, 20].
struct Landing {
    float base, stretch, inverse;
};

static __device__ __forceinline__ float place_of(Landing at, int j) {
    return fminf(fmaxf(fmaf(at.stretch, (float)j, at.base), 0.0f), (float)(C51_ATOMS - 1));
}

// What atoms `first` and `first` + 1 gather of the next distribution: mass p that lands at x gives p max(0, 1 - |x - i|).
static __device__ __forceinline__ void gather_two(const float* next, const float* below, Landing at, int first,
                                                  float* lower, float* upper) {
    float low = 0.0f, high = 0.0f;
    if (at.stretch >= NARROW_STRETCH) {
        const int j0 = (int)fminf(fmaxf(((float)(first - 1) - at.base) * at.inverse, 0.0f), (float)C51_ATOMS);
#pragma unroll
        for (int i = 0; i < WINDOW; ++i) {
            const int j = j0 + i;
            const float mass = j < C51_ATOMS ? next[j] : 0.0f, away = place_of(at, j) - (float)first;
            low = fmaf(mass, fmaxf(0.0f, 1.0f - fabsf(away)), low);
            high = fmaf(mass, fmaxf(0.0f, 1.0f - fabsf(away - 1.0f)), high);
        }
        // What lands beyond an end is the end atom's, however far.
        if (first == 0 && j0 > 0) low += below[j0 - 1];
        if (first == C51_ATOMS - 1 && j0 + WINDOW < C51_ATOMS) low += below[C51_ATOMS - 1] - below[j0 + WINDOW - 1];
    } else {
        for (int j = 0; j < C51_ATOMS; ++j) {
            const float away = place_of(at, j) - (float)first;
            low = fmaf(next[j], fmaxf(0.0f, 1.0f - fabsf(away)), low);
            high = fmaf(next[j], fmaxf(0.0f, 1.0f - fabsf(away - 1.0f)), high);
        }
    }
    *lower = low;
    *upper = high;
}

// Mass of this lane's six atoms of the next distribution that lands outside the span.
static __device__ __forceinline__ float landed_outside(const float* next, Landing at, int t) {
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < 6; ++k) {
        const int j = atom_of(k, t);
        if (j >= C51_ATOMS) continue;
        sum += fabsf(fmaf(at.stretch, (float)j, at.base) - place_of(at, j)) > C51_EDGE_SLACK ? next[j] : 0.0f;
    }
    return sum;
}

// What a lane adds up over its rows.
struct UpdateSums {
    float weights[HALF_INPUTS / 16][3][4];  // gradient of the pair's weights: tiles of 16 inputs x 8 columns
    float bias[6];
    float top, low, clipped, bad;
};

// Fills a tile: encodings, next distributions with mass and mean index, and what a row brings. Ends with a barrier.
template <bool PATH>
static __device__ __forceinline__ void load_tile(UpdateTile* tile, NextTile next, const C51Batch& batch,
                                                 const float* isv, int r0, int pair0, int R, int P) {
    const int pairs = P * N_ACTIONS, width = P * C51_ATOMS;
    load_rows(tile->rows, batch.h, r0, UPDATE_ROWS, R);
    for (int i = threadIdx.x; i < UPDATE_ROWS * width; i += blockDim.x) {
        next.mass[i] = r0 + i / width < R ? batch.next_prob[(long long)r0 * width + i] : 0.0f;
    }
    for (int i = threadIdx.x; PATH && i < UPDATE_ROWS * UPDATE_PAIRS; i += blockDim.x) {
        const int r = r0 + i / UPDATE_PAIRS, pair = pair0 + i % UPDATE_PAIRS;
        tile->reward[0][i] = r < R && pair < pairs ? batch.reward[(long long)r * pairs + pair] : 0.0f;
    }
    if (threadIdx.x < UPDATE_ROWS) {
        const int row = threadIdx.x, r = r0 + row < R ? r0 + row : R - 1;
        const float learned = (float)R * (PATH ? pairs : 1);
        tile->keep[row] = batch.terminal[r] ? 0.0f : batch.discount[r];
        tile->scale[row] = r0 + row < R ? isv[ISV_LOSS_LAMBDA_Q] * batch.weight[r] / learned : 0.0f;
        const int middle = (P - 1) / 2;
        tile->executed[row] = (P == 1 ? 0 : batch.lots[r] + middle) * N_ACTIONS + batch.action[r];
        if (!PATH) {
            tile->to[row] = P == 1 ? 0 : batch.next_lots[r] + middle;
            for (int w = 0; w < UPDATE_PAIRS; ++w) tile->reward[row][w] = batch.reward[r];
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < UPDATE_ROWS * P; i += blockDim.x) {
        float mass = 0.0f, mean = 0.0f;
#pragma unroll
        for (int j = 0; j < C51_ATOMS; ++j) {
            const float own = next.mass[i * C51_ATOMS + j];
            mass += own;
            mean = fmaf((float)j, own, mean);
            next.below[i * C51_ATOMS + j] = mass;
        }
        next.moment[2 * i] = mass;
        next.moment[2 * i + 1] = mean;
    }
    __syncthreads();
}

// Loss and gradient of a pair in a warp's half of a tile: the gradient goes to tile->slope, losses to tile->loss, gaps of
// the rows that executed the pair to row_gap.
template <bool PATH>
static __device__ __forceinline__ void learn_pair(UpdateTile* tile, NextTile next, UpdateSums* sums,
                                                  const C51Batch& batch, const float* packed_w, const float* packed_b,
                                                  float v_min, float v_max, float* row_gap, int r0, int pair, int R,
                                                  int P) {
    const int warp = threadIdx.x / 32, own = warp % UPDATE_PAIRS, row0 = warp / UPDATE_PAIRS * HALF_ROWS;
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const float width = (v_max - v_min) / (C51_ATOMS - 1), inverse = v_max > v_min ? 1.0f / width : 0.0f;
    float bias[6], logits[1][1][3][4];
    load_bias(bias, packed_b, pair, t);
    pair_logits<1, 1>(logits, tile->rows + row0 * ROW_STRIDE, packed_w + (long long)pair * C51_STEPS * C51_STEP, 0, lane);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = row0 + 8 * half + g;
        const bool executed = tile->executed[row] == pair, learns = r0 + row < R && (PATH || executed);
        const QuadRow x = quad_softmax(logits[0][0], bias, half, t);
        const int to = row * P + (PATH ? batch.next_class[pair] : tile->to[row]);
        const float keep = tile->keep[row], reward = tile->reward[row][own], mass = next.moment[2 * to];
        const float mean = fmaf(keep, fmaf(width, next.moment[2 * to + 1], v_min * mass), reward);
        const float stretch = v_max > v_min ? keep : 0.0f;
        const Landing at = {(fmaf(keep, v_min, reward) - v_min) * inverse, stretch, 1.0f / stretch};
        const float scale = learns ? tile->scale[row] : 0.0f, share = mass / x.sum;
        float dot = 0.0f;
#pragma unroll
        for (int n = 0; n < 3; ++n) {
            float target[2], slope[2];
            gather_two(next.mass + to * C51_ATOMS, next.below + to * C51_ATOMS, at, 8 * n + 2 * t, target, target + 1);
#pragma unroll
            for (int k = 0; k < 2; ++k) {
                dot = fmaf(target[k], x.x[2 * n + k], dot);
                slope[k] = scale * (x.weight[2 * n + k] * share - target[k]);
                sums->bias[2 * n + k] += slope[k];
            }
            *(float2*)(tile->slope[own] + row * C51_PLACES + 8 * n + 2 * t) = make_float2(slope[0], slope[1]);
        }
        // A mean that is not a number shows in the loss.
        const float loss = fmaf(0.0f, mean, fmaf(x.top + logf(x.sum), mass, -quad_sum(dot)));
        const bool beyond = at.base < -C51_EDGE_SLACK ||
                            fmaf(stretch, (float)(C51_ATOMS - 1), at.base) > C51_ATOMS - 1 + C51_EDGE_SLACK;
        float outside = 0.0f, expected = 0.0f;
        if (__any_sync(0xffffffffu, beyond)) outside = quad_sum(landed_outside(next.mass + to * C51_ATOMS, at, t));
        if (__any_sync(0xffffffffu, executed)) {
#pragma unroll
            for (int k = 0; k < 6; ++k) expected = fmaf((float)atom_of(k, t), x.weight[k], expected);
            expected = fmaf(width, quad_sum(expected) / x.sum, v_min);
        }
        if (t != 0) continue;
        tile->loss[row][own] = learns ? loss : 0.0f;
        if (!learns) continue;
        if (executed) row_gap[r0 + row] = expected - mean;
        sums->top = max_keep_nan(sums->top, mean);
        sums->low = min_keep_nan(sums->low, mean);
        sums->clipped += outside;
    }
}

// sums.weights += h^T slope, the inputs of a warp's half by its pair. Rows are taken in their order, eight at a time.
static __device__ __forceinline__ void add_weight_gradient(const UpdateTile& tile, UpdateSums* sums) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int input0 = warp / UPDATE_PAIRS * HALF_INPUTS;
#pragma unroll
    for (int r = 0; r < UPDATE_ROWS; r += 8) {
        const float* slope = tile.slope[warp % UPDATE_PAIRS] + (r + t) * C51_PLACES + g;
        unsigned int b[3][2];
#pragma unroll
        for (int n = 0; n < 3; ++n) {
            b[n][0] = to_tf32(slope[8 * n]);
            b[n][1] = to_tf32(slope[4 * C51_PLACES + 8 * n]);
        }
        const float* h = tile.rows + (r + t) * ROW_STRIDE + input0 + g;
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

#endif
