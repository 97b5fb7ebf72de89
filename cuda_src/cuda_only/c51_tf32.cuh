// The C51 head on tensor cores: logits of some rows and one pair by a warp, in registers.
//
// A warp owns a pair's 24 columns (21 atoms, c51_packed.cuh) of 16 M rows. With g = lane / 4 and t = lane % 4 a lane holds
// of rows 16 m + g (half 0) and 16 m + 8 + g (half 1) the columns 8 n + 2t and 8 n + 2t + 1 of each block n of eight: six
// atoms of a row; the four lanes of one g, a "quad", hold the row. Operands are halves, sums float32.
#pragma once
#include "cuda_only/c51_rows.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

#define ROW_WORDS 68        // of a row of encodings in shared memory, two halves each: 4 mod 32, so that no access meets another

static __device__ __forceinline__ float quad_max(float v) {
    v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
    return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}

// Rows r0 to r0 + count - 1 of h [rows, 128] as halves, rows that do not exist as zeros. All threads of the block.
static __device__ __forceinline__ void load_rows(unsigned int* shared, const float* h, int r0, int count, int rows) {
    for (int i = threadIdx.x; i < count * (HIDDEN_DIM / 4); i += blockDim.x) {
        const int row = i / (HIDDEN_DIM / 4), k = i % (HIDDEN_DIM / 4) * 4;
        float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (r0 + row < rows) v = *(const float4*)(h + (long long)(r0 + row) * HIDDEN_DIM + k);
        *(uint2*)(shared + row * ROW_WORDS + k / 2) = make_uint2(to_halves(v.x, v.y), to_halves(v.z, v.w));
    }
}

// sums = rows of shared memory times the packed weights of a pair.
template <int M>
static __device__ __forceinline__ void pair_logits(float (*sums)[3][4], const unsigned int* rows,
                                                   const unsigned int* packed, int lane) {
    const unsigned int* own = rows + lane / 4 * ROW_WORDS + lane % 4;
#pragma unroll
    for (int i = 0; i < M * 12; ++i) (&sums[0][0][0])[i] = 0.0f;
#pragma unroll
    for (int step = 0; step < PAIR_STEPS; ++step) {
        uint2 b[3];
#pragma unroll
        for (int n = 0; n < 3; ++n) b[n] = __ldg((const uint2*)(packed + (n * PAIR_STEPS + step) * 64) + lane);
#pragma unroll
        for (int m = 0; m < M; ++m) {
            const unsigned int* at = own + 16 * m * ROW_WORDS + 8 * step;
            const unsigned int a[4] = {at[0], at[8 * ROW_WORDS], at[4], at[8 * ROW_WORDS + 4]};
#pragma unroll
            for (int n = 0; n < 3; ++n) mma_half(sums[m][n], a, b[n].x, b[n].y);
        }
    }
}

// A quad's row: what this lane holds of it, and the softmax over the quad.
struct QuadRow {
    float x[6], weight[6];  // logits in powers of two; 2^(x - top)
    float top, sum;         // of the weights
};

static __device__ __forceinline__ QuadRow quad_softmax(const float (*sums)[4], const float* bias, int half, int t) {
    QuadRow row;
#pragma unroll
    for (int i = 0; i < 6; ++i) {
        row.x[i] = sums[i / 2][2 * half + i % 2] + bias[i];
    }
    row.top = quad_max(fmaxf(fmaxf(fmaxf(row.x[0], row.x[1]), fmaxf(row.x[2], row.x[3])), fmaxf(row.x[4], row.x[5])));
    row.sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 6; ++i) {
        row.weight[i] = power_of_two(row.x[i] - row.top);
        row.sum += row.weight[i];
    }
    row.sum = quad_sum(row.sum);
    return row;
}

// This lane's six biases of a pair.
static __device__ __forceinline__ void load_bias(float* bias, const float* packed_b, int pair, int t) {
#pragma unroll
    for (int n = 0; n < 3; ++n) {
        const float2 two = __ldg((const float2*)(packed_b + (long long)pair * C51_PLACES + 8 * n + 2 * t));
        bias[2 * n] = two.x;
        bias[2 * n + 1] = two.y;
    }
}

#endif
