// The C51 head on tensor cores: logits of some rows and one pair by a warp, in registers.
//
// A warp owns a pair's 24 columns (21 atoms, c51_packed.cuh) of 16 M rows. With g = lane / 4 and t = lane % 4 a lane holds
// of rows 16 m + g (half 0) and 16 m + 8 + g (half 1) the columns 8 n + 2t and 8 n + 2t + 1 of each block n of eight: six
// atoms of a row; the four lanes of one g, a "quad", hold the row. Inputs of eight are taken in the order that puts
// inputs 2t and 2t + 1 beside each other, which changes nothing but the order of addition.
#pragma once
#include "cuda_only/mma.cuh"
#include "fused/c51_packed.cuh"
#include "generated/isv_slots.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

#define ROW_STRIDE 136      // floats of a row of encodings in shared memory: 8 mod 32, so that no access meets another
#define MASKED -1.0e30f     // logit of a place without an atom

static __device__ __forceinline__ float quad_sum(float v) {
    v += __shfl_xor_sync(0xffffffffu, v, 1);
    return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

static __device__ __forceinline__ float quad_max(float v) {
    v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
    return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}

// Rows r0 to r0 + count - 1 of h [rows, 128] as TF32 numbers, rows that do not exist as zeros. All threads of the block.
static __device__ __forceinline__ void load_rows(float* shared, const float* h, int r0, int count, int rows) {
    for (int i = threadIdx.x; i < count * (HIDDEN_DIM / 4); i += blockDim.x) {
        const int row = i / (HIDDEN_DIM / 4), k = i % (HIDDEN_DIM / 4) * 4;
        float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (r0 + row < rows) v = *(const float4*)(h + (long long)(r0 + row) * HIDDEN_DIM + k);
        *(float4*)(shared + row * ROW_STRIDE + k) =
            make_float4(__uint_as_float(to_tf32(v.x)), __uint_as_float(to_tf32(v.y)), __uint_as_float(to_tf32(v.z)),
                        __uint_as_float(to_tf32(v.w)));
    }
}

// sums = rows of shared memory times the packed weights [16, 192] of a pair, in HEADS heads that stand head_size apart.
template <int M, int HEADS>
static __device__ __forceinline__ void pair_logits(float (*sums)[M][3][4], const float* rows, const float* packed,
                                                   long long head_size, int lane) {
    const int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < HEADS * M * 12; ++i) (&sums[0][0][0][0])[i] = 0.0f;
#pragma unroll (HEADS > 1 ? 2 : 4)
    for (int step = 0; step < C51_STEPS; ++step) {
        unsigned int b[HEADS][3][2];
#pragma unroll
        for (int head = 0; head < HEADS; ++head) {
            const float* at = packed + head * head_size + step * C51_STEP;
            const float4 early = __ldg((const float4*)at + lane);
            const float2 late = __ldg((const float2*)(at + 128) + lane);
            b[head][0][0] = to_tf32(early.x), b[head][0][1] = to_tf32(early.y);
            b[head][1][0] = to_tf32(early.z), b[head][1][1] = to_tf32(early.w);
            b[head][2][0] = to_tf32(late.x), b[head][2][1] = to_tf32(late.y);
        }
#pragma unroll
        for (int m = 0; m < M; ++m) {
            const float* at = rows + (16 * m + g) * ROW_STRIDE + 8 * step + 2 * t;
            const float2 upper = *(const float2*)at, lower = *(const float2*)(at + 8 * ROW_STRIDE);
            const unsigned int a[4] = {__float_as_uint(upper.x), __float_as_uint(lower.x), __float_as_uint(upper.y),
                                       __float_as_uint(lower.y)};
#pragma unroll
            for (int i = 0; i < HEADS * 3; ++i) mma_tf32(sums[i / 3][m][i % 3], a, b[i / 3][i % 3]);
        }
    }
}

// A quad's row: what this lane holds of it, and the softmax over the quad.
struct QuadRow {
    float x[6], weight[6];  // logits; e^(x - top)
    float top, sum;         // of the weights
};

// Atom that element i of a lane's six belongs to.
static __device__ __forceinline__ int atom_of(int i, int t) { return i / 2 * 8 + 2 * t + i % 2; }

static __device__ __forceinline__ QuadRow quad_softmax(const float (*sums)[4], const float* bias, int half, int t) {
    QuadRow row;
#pragma unroll
    for (int i = 0; i < 6; ++i) {
        row.x[i] = atom_of(i, t) < C51_ATOMS ? sums[i / 2][2 * half + i % 2] + bias[i] : MASKED;
    }
    row.top = quad_max(fmaxf(fmaxf(fmaxf(row.x[0], row.x[1]), fmaxf(row.x[2], row.x[3])), fmaxf(row.x[4], row.x[5])));
    row.sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 6; ++i) {
        row.weight[i] = __expf(row.x[i] - row.top);
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
