// Variable selection with the products beside it on tensor cores: who holds what, and weights in shared memory.
//
// A warp takes 16 tokens at a time. With g = lane / 4 and t = lane % 4 a lane has tokens g and g + 8 and columns 2t and
// 2t + 1 of each eight. An operand of a product and its sums lie alike (the order along k is free), so that every value of
// an element meets in one lane, and the result of one product is the operand of the next as it is. A sum over the
// inputs of a token is over four lanes.
#pragma once
#include "cuda_only/mma.cuh"
#include "generated/structure.cuh"
#include "include/math.cuh"
#include "include/reduce.cuh"
#include "nets/mamba2.cuh"

#define VSN_SCALE ((float)ENCODER_INPUT_DIM)
#define VSN_THREADS 256
#define VSN_TOKENS 16                         // of a warp
#define VSN_EIGHTS (ENCODER_INPUT_DIM / 8)
#define VSN_STRIDE (ENCODER_INPUT_DIM + 4)    // of weights in shared memory: pairs of rows 24 banks apart
#define VSN_IN_EIGHTS (MAMBA_PROJ / 8)

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// [j][2 r + e]: token g + 8 r, input 8 j + 2 t + e.
typedef float VsnPart[VSN_EIGHTS][4];

template <int COLUMNS, int STRIDE>
static __device__ __forceinline__ void load_weights(float* to, const float* w) {
    for (int i = (int)threadIdx.x; i < ENCODER_INPUT_DIM * COLUMNS / 4; i += VSN_THREADS) {
        const float4 four = ((const float4*)w)[i];
        float* at = to + i / (COLUMNS / 4) * STRIDE + i % (COLUMNS / 4) * 4;
        *(float4*)at = make_float4(__uint_as_float(to_tf32(four.x)), __uint_as_float(to_tf32(four.y)),
                                   __uint_as_float(to_tf32(four.z)), __uint_as_float(to_tf32(four.w)));
    }
}

// sums += (16 tokens x inputs 8 s to 8 s + 7) times eight columns of weights; row: of this lane's first input and column.
template <int STRIDE>
static __device__ __forceinline__ void multiply_eight(float* sums, const unsigned int* inputs, const float* row) {
    const unsigned int b[2] = {__float_as_uint(row[0]), __float_as_uint(row[STRIDE])};
    mma_tf32(sums, inputs, b);
}

// A part as an operand.
static __device__ __forceinline__ void round_part(unsigned int (&to)[VSN_EIGHTS][4], const VsnPart& part) {
#pragma unroll
    for (int k = 0; k < 4 * VSN_EIGHTS; ++k) to[k / 4][k % 4] = to_tf32(part[k / 4][k % 2 * 2 + k % 4 / 2]);
}

// 56 columns of tokens `first` and `first` + 8 of an array; zeros behind its end.
static __device__ __forceinline__ void load_part(VsnPart& to, const float* from, int first, int tokens, int t) {
#pragma unroll
    for (int k = 0; k < 2 * VSN_EIGHTS; ++k) {
        const int j = k / 2, r = k % 2, token = first + 8 * r;
        float2 two = make_float2(0.0f, 0.0f);
        if (token < tokens) two = *(const float2*)(from + (long long)token * ENCODER_INPUT_DIM + 8 * j + 2 * t);
        to[j][2 * r] = two.x, to[j][2 * r + 1] = two.y;
    }
}

#endif
