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

// Elements of x that a thread asks for together: index i, or, behind the last one, 0, so that no load stands behind a
// branch and waits for the one before.
#define SPECTRAL_AHEAD 17
static __device__ inline void spectral_load(const float* x, int first, int step, int n, float* held) {
#pragma unroll
    for (int k = 0; k < SPECTRAL_AHEAD; ++k) held[k] = x[first + k * step < n ? first + k * step : 0];
}

// |x|; all threads of a block of 128 call and get it. scratch: shared, 32 floats.
static __device__ inline float spectral_norm_block(const float* x, int n, float* scratch) {
    const int step = (int)blockDim.x;
    float sum = 0.0f;
    for (int first = threadIdx.x; first < n; first += SPECTRAL_AHEAD * step) {
        float held[SPECTRAL_AHEAD];
        spectral_load(x, first, step, n, held);
#pragma unroll
        for (int k = 0; k < SPECTRAL_AHEAD; ++k) sum = first + k * step < n ? fmaf(held[k], held[k], sum) : sum;
    }
    return sqrtf(block_sum(sum, scratch));
}

// Element i of x / |x|. A zero vector (the first time) becomes a unit vector of pseudo-random signs, so that no singular
// vector is left out by symmetry.
static __device__ inline float spectral_unit_item(float x, float norm, int i, int n) {
    const float start = 1.0f / sqrtf((float)n);
    const float sign = ((unsigned int)i * 2654435769u >> 31) != 0u ? -start : start;
    return norm == 0.0f ? sign : x / norm;
}
