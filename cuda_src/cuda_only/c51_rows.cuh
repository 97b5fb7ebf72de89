// 16 M rows of encodings in a warp's registers, times the weights of one pair after another from shared memory: logits of
// the C51 head and their softmax, of which nothing is stored.
//
// Operands are halves, whose ten bits of mantissa are those of TF32 at half the space and twice the speed: encodings and
// weights are numbers of size one. With g = lane / 4 and t = lane % 4 a lane holds of rows 16 m + 8 half + g ("row" 2 m +
// half of its 2 M) the columns 8 n + 2t and + 1 of each tile n of eight: six atoms of a row; the four lanes of one g, a
// "quad", hold the row. A pair's 21 atoms are padded to 24 columns whose bias of -3e38 vanishes in the softmax. Logits are
// in powers of two.
#pragma once
#include "cuda_only/half.cuh"
#include "cuda_only/mma.cuh"
#include "fused/c51_packed.cuh"
#include "generated/isv_slots.cuh"

// Weights e^logit without the usual shift by the largest logit, which costs a third of the work: where their sum is in
// this range every atom that counts is a normal number. Elsewhere the rows' pair is done again with the shift.
#define SUM_LEAST 1e-30f
#define SUM_MOST 1e36f

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// sums += the warp's 16 M rows x TILES tiles of columns, from the first lane's place in the weights on.
template <int M, int TILES>
static __device__ __forceinline__ void multiply(const unsigned int (*a)[PAIR_STEPS][4], const unsigned int* weights,
                                                float (*sums)[TILES][4]) {
#pragma unroll
    for (int s = 0; s < PAIR_STEPS; ++s) {
        uint2 b[TILES];
#pragma unroll
        for (int j = 0; j < TILES; ++j) b[j] = *(const uint2*)(weights + (j * PAIR_STEPS + s) * 64);
#pragma unroll
        for (int i = 0; i < M * TILES; ++i) mma_half(sums[i % M][i / M], a[i % M][s], b[i / M].x, b[i / M].y);
    }
}

// Every column of a pair's tiles begins with its bias; bias [24].
template <int M>
static __device__ __forceinline__ void begin_pair(float (*sums)[PAIR_BLOCKS][4], const float* bias, int t) {
#pragma unroll
    for (int j = 0; j < PAIR_BLOCKS; ++j) {
        const float2 two = *(const float2*)(bias + 8 * j + 2 * t);
#pragma unroll
        for (int i = 0; i < 4 * M; ++i) sums[i / 4][j][i % 4] = i % 2 ? two.y : two.x;
    }
}

static __device__ __forceinline__ float quad_sum(float v) {
    v += __shfl_xor_sync(0xffffffffu, v, 1);
    return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

// Atom of element k of a lane's six.
static __device__ __forceinline__ int atom_of(int k, int t) { return k / 2 * 8 + 2 * t + k % 2; }

// This lane's six weights of row i of its four; SHIFTED: by the row's largest logit.
template <bool SHIFTED>
static __device__ __forceinline__ void row_weights(const float (*sums)[PAIR_BLOCKS][4], int i, float* weight) {
    float top = 0.0f;
#pragma unroll
    for (int k = 0; k < 2 * PAIR_BLOCKS; ++k) weight[k] = sums[i / 2][k / 2][2 * (i % 2) + k % 2];
    if (SHIFTED) {
        top = weight[0];
#pragma unroll
        for (int k = 1; k < 2 * PAIR_BLOCKS; ++k) top = weight[k] > top ? weight[k] : top;
        float other = __shfl_xor_sync(0xffffffffu, top, 1);
        top = other > top ? other : top;
        other = __shfl_xor_sync(0xffffffffu, top, 2);
        top = other > top ? other : top;
    }
#pragma unroll
    for (int k = 0; k < 2 * PAIR_BLOCKS; ++k) weight[k] = power_of_two(SHIFTED ? weight[k] - top : weight[k]);
}

// From four rows' numbers in every lane of a quad to the sum over the quad of row t in lane t.
static __device__ __forceinline__ float sum_of_own_row(const float* v, int t) {
    const bool odd = t & 1, high = t & 2;
    const float low = (odd ? v[1] : v[0]) + __shfl_xor_sync(0xffffffffu, odd ? v[0] : v[1], 1);
    const float up = (odd ? v[3] : v[2]) + __shfl_xor_sync(0xffffffffu, odd ? v[2] : v[3], 1);
    return (high ? up : low) + __shfl_xor_sync(0xffffffffu, high ? low : up, 2);
}

// Mean atom index of row t of the quad's four, in lane t: their logits lie in the quad's registers, six of a row a lane.
// Numbers that are not finite give NaN.
template <bool SHIFTED>
static __device__ __forceinline__ float mean_index(const float (*sums)[PAIR_BLOCKS][4], int t, bool* sound) {
    float total[4], weighted[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        float weight[2 * PAIR_BLOCKS];
        row_weights<SHIFTED>(sums, i, weight);
        total[i] = weighted[i] = 0.0f;
#pragma unroll
        for (int k = 0; k < 2 * PAIR_BLOCKS; ++k) {
            total[i] += weight[k];
            weighted[i] = fmaf((float)atom_of(k, t), weight[k], weighted[i]);
        }
    }
    const float sum = sum_of_own_row(total, t);
    *sound = sum > SUM_LEAST && sum < SUM_MOST;
    return __fdividef(sum_of_own_row(weighted, t), sum);
}

// The same, shifted where the plain weights do not carry one of the warp's rows.
static __device__ __forceinline__ float expected_index(const float (*sums)[PAIR_BLOCKS][4], int t) {
    bool sound;
    const float index = mean_index<false>(sums, t, &sound);
    return __any_sync(0xffffffffu, !sound) ? mean_index<true>(sums, t, &sound) : index;
}

#endif
