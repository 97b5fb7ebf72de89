// What the kernels in spectral.cu do, as functions that a fused kernel may call as well.
#pragma once
#include "generated/structure.cuh"
#include "include/math.cuh"
#include "include/reduce.cuh"

#define SPECTRAL_COLUMNS 32                             // columns of a block in W^T u
#define SPECTRAL_GROUPS 4                               // sums of a column: adjacent rows, then the groups in order
#define SPECTRAL_ROWS (HIDDEN_DIM / SPECTRAL_GROUPS)
#define SPECTRAL_LANES 128                              // sums of a row's product: column j goes to sum j mod 128

// Group `group` of column j of W^T u: w [HIDDEN_DIM, columns], u [HIDDEN_DIM].
static __device__ inline float spectral_right_group(const float* w, const float* u, int columns, int j, int group) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < SPECTRAL_ROWS; ++i) {
        const int r = group * SPECTRAL_ROWS + i;
        sum = fmaf(u[r], w[(long long)r * columns + j], sum);
    }
    return sum;
}

// |x|; all threads of a block of 128 call and get it. scratch: shared, 32 floats.
static __device__ inline float spectral_norm_block(const float* x, int n, float* scratch) {
    float sum = 0.0f;
#pragma unroll 16
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum = fmaf(x[i], x[i], sum);
    return sqrtf(block_sum(sum, scratch));
}

// Element i of x / |x|. A zero vector (the first time) becomes a unit vector of pseudo-random signs, so that no singular
// vector is left out by symmetry.
static __device__ inline float spectral_unit_item(float x, float norm, int i, int n) {
    const float start = 1.0f / sqrtf((float)n);
    const float sign = ((unsigned int)i * 2654435769u >> 31) != 0u ? -start : start;
    return norm == 0.0f ? sign : x / norm;
}
