// The C51 head's update on tensor cores: logits, targets, loss and gradients of some rows and eight pairs by a block.
//
// A block keeps eight pairs, a warp each, and goes through its slice of the batch in tiles of 32 rows. Logits and their
// gradient live in registers; the gradient of the weights is a second product of the same tile, whose sums stay in
// registers over all tiles. Order of every sum: by the sizes alone.
#pragma once
#include "cuda_only/c51_tf32.cuh"
#include "fused/critic_step.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

#define UPDATE_ROWS 32
#define UPDATE_WARPS 8
#define HUGE_GRADIENT 1.0e18f     // its square times a chunk of 32 is still a float32
#define C51_EDGE_SLACK 1e-4f      // atoms; mass this near beyond an end of the span is not called clipped
#define C51_STRETCH_LEAST 0.05f   // below it every atom is asked whether its mass reaches a place

// The batch; PATH: rewards [R, pairs] and next_class [pairs], else rewards [R] and next_lots [R].
struct C51Batch {
    const float *h, *next_prob, *reward, *discount, *weight;
    const signed char *next_class, *next_lots, *lots, *action;
    const unsigned char* terminal;
};

// Shared memory of a tile; `next` [32, P, 21] and `moment` [32, P, 2] follow it.
struct UpdateTile {
    float rows[UPDATE_ROWS * ROW_STRIDE];
    float slope[UPDATE_WARPS][UPDATE_ROWS * C51_PLACES];  // gradient of a warp's logits, row-major
    float reward[UPDATE_ROWS][UPDATE_WARPS], loss[UPDATE_ROWS][UPDATE_WARPS];
    float keep[UPDATE_ROWS], scale[UPDATE_ROWS];
    int executed[UPDATE_ROWS], to[UPDATE_ROWS];  // executed pair; class after n steps
};

// Where mass of a next state lands, in atoms: base + stretch j, kept on [0, 20].
struct Landing {
    float base, stretch, inverse;
};

static __device__ __forceinline__ float place_of(Landing at, int j) {
    return fminf(fmaxf(fmaf(at.stretch, (float)j, at.base), 0.0f), (float)(C51_ATOMS - 1));
}

// What atoms `first` and `first` + 1 gather of the next distribution: mass p that lands at x gives p max(0, 1 - |x - i|).
static __device__ __forceinline__ void gather_two(const float* next, Landing at, int first, float* lower, float* upper) {
    *lower = *upper = 0.0f;
    if (first >= C51_ATOMS) return;
    int j = 0;
    if (first > 0 && at.stretch > C51_STRETCH_LEAST) {
        j = (int)fminf(fmaxf(((float)(first - 1) - at.base) * at.inverse - 0.5f, 0.0f), (float)(C51_ATOMS - 1));
    }
    for (; j < C51_ATOMS; ++j) {
        const float place = place_of(at, j), away = place - (float)first;
        if (away >= 2.0f) break;
        *lower = fmaf(next[j], fmaxf(0.0f, 1.0f - fabsf(away)), *lower);
        *upper = fmaf(next[j], fmaxf(0.0f, 1.0f - fabsf(away - 1.0f)), *upper);
    }
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
    float weights[HIDDEN_DIM / 16][3][4];  // gradient of the pair's weights: tiles of 16 inputs x 8 columns
    float bias[6];
    float top, low, clipped, bad;
};

// Fills a tile: encodings, next distributions with mass and mean index, and what a row brings. Ends with a barrier.
template <bool PATH>
static __device__ __forceinline__ void load_tile(UpdateTile* tile, float* next, float* moment, const C51Batch& batch,
                                                 const float* isv, int r0, int pair0, int R, int P) {
    const int pairs = P * N_ACTIONS, width = P * C51_ATOMS;
    load_rows(tile->rows, batch.h, r0, UPDATE_ROWS, R);
    for (int i = threadIdx.x; i < UPDATE_ROWS * width; i += blockDim.x) {
        next[i] = r0 + i / width < R ? batch.next_prob[(long long)r0 * width + i] : 0.0f;
    }
    for (int i = threadIdx.x; PATH && i < UPDATE_ROWS * UPDATE_WARPS; i += blockDim.x) {
        const int r = r0 + i / UPDATE_WARPS, pair = pair0 + i % UPDATE_WARPS;
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
            for (int w = 0; w < UPDATE_WARPS; ++w) tile->reward[row][w] = batch.reward[r];
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < UPDATE_ROWS * P; i += blockDim.x) {
        float mass = 0.0f, mean = 0.0f;
#pragma unroll
        for (int j = 0; j < C51_ATOMS; ++j) {
            mass += next[i * C51_ATOMS + j];
            mean = fmaf((float)j, next[i * C51_ATOMS + j], mean);
        }
        moment[2 * i] = mass;
        moment[2 * i + 1] = mean;
    }
    __syncthreads();
}

// Loss and gradient of a warp's pair in a tile: the gradient goes to tile->slope, losses to tile->loss, gaps of the rows
// that executed the pair to row_gap.
template <bool PATH>
static __device__ __forceinline__ void learn_pair(UpdateTile* tile, const float* next, const float* moment,
                                                  UpdateSums* sums, const C51Batch& batch, const float* packed_w,
                                                  const float* packed_b, float v_min, float v_max, float* row_gap, int r0,
                                                  int pair, int R, int P) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const float width = (v_max - v_min) / (C51_ATOMS - 1), inverse = v_max > v_min ? 1.0f / width : 0.0f;
    float bias[6], logits[1][UPDATE_ROWS / 16][3][4];
    load_bias(bias, packed_b, pair, t);
    pair_logits<UPDATE_ROWS / 16, 1>(logits, tile->rows, packed_w + (long long)pair * C51_STEPS * C51_STEP, 0, lane);
#pragma unroll
    for (int i = 0; i < UPDATE_ROWS / 8; ++i) {
        const int row = 8 * i + g;
        const bool executed = tile->executed[row] == pair, learns = r0 + row < R && (PATH || executed);
        const QuadRow x = quad_softmax(logits[0][i / 2], bias, i % 2, t);
        const int to = row * P + (PATH ? batch.next_class[pair] : tile->to[row]);
        const float keep = tile->keep[row], reward = tile->reward[row][warp], mass = moment[2 * to];
        const float mean = fmaf(keep, fmaf(width, moment[2 * to + 1], v_min * mass), reward);
        const float stretch = v_max > v_min ? keep : 0.0f;
        const Landing at = {(fmaf(keep, v_min, reward) - v_min) * inverse, stretch, 1.0f / stretch};
        const float scale = learns ? tile->scale[row] : 0.0f, share = mass / x.sum;
        float dot = 0.0f;
#pragma unroll
        for (int n = 0; n < 3; ++n) {
            float target[2], slope[2];
            gather_two(next + to * C51_ATOMS, at, 8 * n + 2 * t, target, target + 1);
#pragma unroll
            for (int k = 0; k < 2; ++k) {
                dot = fmaf(target[k], x.x[2 * n + k], dot);
                slope[k] = scale * (x.weight[2 * n + k] * share - target[k]);
                sums->bias[2 * n + k] += slope[k];
            }
            *(float2*)(tile->slope[warp] + row * C51_PLACES + 8 * n + 2 * t) = make_float2(slope[0], slope[1]);
        }
        // A mean that is not a number shows in the loss.
        const float loss = fmaf(0.0f, mean, fmaf(x.top + logf(x.sum), mass, -quad_sum(dot)));
        const bool beyond = at.base < -C51_EDGE_SLACK ||
                            fmaf(stretch, (float)(C51_ATOMS - 1), at.base) > C51_ATOMS - 1 + C51_EDGE_SLACK;
        float outside = 0.0f, expected = 0.0f;
        if (__any_sync(0xffffffffu, beyond)) outside = quad_sum(landed_outside(next + to * C51_ATOMS, at, t));
        if (__any_sync(0xffffffffu, executed)) {
#pragma unroll
            for (int k = 0; k < 6; ++k) expected = fmaf((float)atom_of(k, t), x.weight[k], expected);
            expected = fmaf(width, quad_sum(expected) / x.sum, v_min);
        }
        if (t != 0) continue;
        tile->loss[row][warp] = learns ? loss : 0.0f;
        if (!learns) continue;
        if (executed) row_gap[r0 + row] = expected - mean;
        sums->top = max_keep_nan(sums->top, mean);
        sums->low = min_keep_nan(sums->low, mean);
        sums->clipped += outside;
    }
}

// sums.weights += h^T slope: the product of a warp's tile. Rows are taken in their order, eight at a time.
static __device__ __forceinline__ void add_weight_gradient(const UpdateTile& tile, UpdateSums* sums) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int r = 0; r < UPDATE_ROWS; r += 8) {
        const float* slope = tile.slope[warp] + (r + t) * C51_PLACES + g;
        unsigned int b[3][2];
#pragma unroll
        for (int n = 0; n < 3; ++n) {
            b[n][0] = to_tf32(slope[8 * n]);
            b[n][1] = to_tf32(slope[4 * C51_PLACES + 8 * n]);
        }
        const float* h = tile.rows + (r + t) * ROW_STRIDE + g;
#pragma unroll
        for (int m = 0; m < HIDDEN_DIM / 16; ++m) {
            const unsigned int a[4] = {__float_as_uint(h[16 * m]), __float_as_uint(h[16 * m + 8]),
                                       __float_as_uint(h[4 * ROW_STRIDE + 16 * m]),
                                       __float_as_uint(h[4 * ROW_STRIDE + 16 * m + 8])};
#pragma unroll
            for (int n = 0; n < 3; ++n) mma_tf32(sums->weights[m][n], a, b[n]);
        }
    }
}

// A warp's part of the gradient, [129, pairs, 24] of its slice; counts what is not finite or too large for its square.
static __device__ __forceinline__ void store_gradient(UpdateSums* sums, float* part, int pair, int pairs) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const long long input_size = (long long)pairs * C51_PLACES;
    float* to = part + (long long)pair * C51_PLACES + 2 * t;
#pragma unroll
    for (int i = 0; i < HIDDEN_DIM / 16 * 6; ++i) {
        const float* two = &sums->weights[0][0][0] + 2 * i;  // [m][n][half][2]
        const int m = i / 6, n = i % 6 / 2, half = i % 2;
        *(float2*)(to + (16 * m + 8 * half + g) * input_size + 8 * n) = make_float2(two[0], two[1]);
        if (!(fabsf(two[0]) < HUGE_GRADIENT && fabsf(two[1]) < HUGE_GRADIENT)) sums->bad += 1.0f;
    }
#pragma unroll
    for (int n = 0; n < 3; ++n) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            float v = sums->bias[2 * n + k];
            for (int step = 4; step < 32; step <<= 1) v += __shfl_xor_sync(0xffffffffu, v, step);
            if (!(fabsf(v) < HUGE_GRADIENT)) sums->bad += 1.0f;
            if (g == 0) to[HIDDEN_DIM * input_size + 8 * n + k] = v;
        }
    }
}

#endif
