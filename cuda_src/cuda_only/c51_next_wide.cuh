// The C51 head at h_n for large batches: a block keeps both heads' weights of one class, a warp takes 16 rows through them.
//
// The online head's eleven actions come first; each lane keeps the best action of its two rows. Then the target head's
// actions that some row of the warp has chosen.
#pragma once
#include "cuda_only/c51_rows.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

struct ClassWeights {
    unsigned int* tiles;  // [2 heads, 11 PAIR_WORDS]
    float* bias;          // [2 heads, 11, 24]

    // Both heads' stretch of packed numbers; ends the group of copies.
    __device__ __forceinline__ void fetch(const unsigned int* packed_w, const float* packed_b, int p, int P) const {
        const int words = N_ACTIONS * PAIR_WORDS, biases = N_ACTIONS * C51_PLACES;
        for (int head = 0; head < 2; ++head) {
            const long long pair = (long long)(head * P + p) * N_ACTIONS;
            for (int i = 4 * threadIdx.x; i < words; i += 4 * blockDim.x) {
                copy16_async((float*)(tiles + head * words + i), (const float*)(packed_w + pair * PAIR_WORDS + i), 16);
            }
            for (int i = 4 * threadIdx.x; i < biases; i += 4 * blockDim.x) {
                copy16_async(bias + head * biases + i, packed_b + pair * C51_PLACES + i, 16);
            }
        }
        copy_commit();
    }
};

#define CLASS_ROWS 16  // of a warp

// Rows r0 + 8 half + g; inputs 16 s + 2 t, + 1 and 16 s + 8 + 2 t, + 1: the order of the packed weights.
static __device__ __forceinline__ void load_next_rows(const float* next_h, int r0, int R, int g, int t,
                                                      unsigned int (*a)[PAIR_STEPS][4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = r0 + 8 * half + g;
        const float* from = next_h + (long long)(row < R ? row : R - 1) * HIDDEN_DIM + 2 * t;
#pragma unroll
        for (int s = 0; s < PAIR_STEPS; ++s) {
            const float2 low = *(const float2*)(from + 16 * s), high = *(const float2*)(from + 16 * s + 8);
            a[0][s][half] = to_halves(low.x, low.y);
            a[0][s][2 + half] = to_halves(high.x, high.y);
        }
    }
}

// Mean atom index of both rows, in every lane of the quad.
template <bool SHIFTED>
static __device__ __forceinline__ bool row_means(const float (*sums)[PAIR_BLOCKS][4], int t, float* mean) {
    bool sound = true;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float weight[2 * PAIR_BLOCKS], total = 0.0f, weighted = 0.0f;
        row_weights<SHIFTED>(sums, half, weight);
#pragma unroll
        for (int k = 0; k < 2 * PAIR_BLOCKS; ++k) {
            total += weight[k];
            weighted = fmaf((float)atom_of(k, t), weight[k], weighted);
        }
        total = quad_sum(total);
        mean[half] = __fdividef(quad_sum(weighted), total);
        sound = sound && total > SUM_LEAST && total < SUM_MOST;
    }
    return sound;
}

// Distributions of the rows whose choice is this action; choice: of the lane's two rows, none where a row does not exist.
static __device__ __forceinline__ void store_chosen(const float (*sums)[PAIR_BLOCKS][4], const int* choice, int action,
                                                    float* next_prob, int p, int r0, int P, int g, int t) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const bool chosen = choice[half] == action;
        if (!__any_sync(0xffffffffu, chosen)) continue;
        float weight[2 * PAIR_BLOCKS], sum = 0.0f;
        row_weights<true>(sums, half, weight);
#pragma unroll
        for (int k = 0; k < 2 * PAIR_BLOCKS; ++k) sum += weight[k];
        const float inverse = 1.0f / quad_sum(sum);
        float* to = next_prob + ((long long)(r0 + 8 * half + g) * P + p) * C51_ATOMS;
#pragma unroll
        for (int k = 0; k < 2 * PAIR_BLOCKS; ++k) {
            if (chosen && atom_of(k, t) < C51_ATOMS) to[atom_of(k, t)] = weight[k] * inverse;
        }
    }
}

static __device__ __forceinline__ void class_of_rows(const ClassWeights& weights, const unsigned int (*a)[PAIR_STEPS][4],
                                                     float* next_prob, int p, int r0, int R, int P) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    float most[2] = {0.0f, 0.0f};
    int choice[2] = {0, 0};
#pragma unroll 2
    for (int action = 0; action < N_ACTIONS; ++action) {
        float sums[1][PAIR_BLOCKS][4], mean[2];
        begin_pair<1>(sums, weights.bias + action * C51_PLACES, t);
        multiply<1, PAIR_BLOCKS>(a, weights.tiles + 2 * lane + action * PAIR_WORDS, sums);
        const bool sound = row_means<false>(sums, t, mean);
        if (__any_sync(0xffffffffu, !sound)) row_means<true>(sums, t, mean);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            if (action == 0 || mean[half] > most[half]) most[half] = mean[half], choice[half] = action;
        }
    }
    unsigned int wanted = 0u;  // the warp's actions
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        if (r0 + 8 * half + g >= R) choice[half] = -1;
        else wanted |= 1u << choice[half];
    }
    for (int step = 4; step < 32; step <<= 1) wanted |= __shfl_xor_sync(0xffffffffu, wanted, step);
#pragma unroll 1
    for (int action = 0; action < N_ACTIONS; ++action) {
        if (!(wanted >> action & 1u)) continue;
        const int own = N_ACTIONS + action;
        float sums[1][PAIR_BLOCKS][4];
        begin_pair<1>(sums, weights.bias + own * C51_PLACES, t);
        multiply<1, PAIR_BLOCKS>(a, weights.tiles + 2 * lane + own * PAIR_WORDS, sums);
        store_chosen(sums, choice, action, next_prob, p, r0, P, g, t);
    }
}

#endif
