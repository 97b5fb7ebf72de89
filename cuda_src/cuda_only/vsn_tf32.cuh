// Variable selection with the products beside it on tensor cores: what forward and backward share.
//
// A warp takes 16 tokens at a time. With g = lane / 4 and t = lane % 4 a lane has tokens g and g + 8 and two columns of each
// eight. An operand of a product and its sums lie alike (the order along k and the order of columns are free), so that every
// value of an element meets in one lane, and the result of one product is the operand of the next as it is. A sum over the
// inputs of a token is over four lanes.
#pragma once
#include "cuda_only/chunk_tile.cuh"
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

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// [j][2 r + e]: token g + 8 r, the lane's inputs e = 0, 1 of the eight j.
typedef float VsnPart[VSN_EIGHTS][4];

// 56 rows of weights to shared memory, rounded to TF32.
template <int COLUMNS, int STRIDE>
static __device__ __forceinline__ void load_weights(float* to, const float* w) {
    for (int i = (int)threadIdx.x; i < ENCODER_INPUT_DIM * COLUMNS / 4; i += VSN_THREADS) {
        const float4 four = ((const float4*)w)[i];
        float* at = to + i / (COLUMNS / 4) * STRIDE + i % (COLUMNS / 4) * 4;
        *(float4*)at = make_float4(__uint_as_float(to_tf32(four.x)), __uint_as_float(to_tf32(four.y)),
                                   __uint_as_float(to_tf32(four.z)), __uint_as_float(to_tf32(four.w)));
    }
}

// sums += (16 tokens x eight inputs) times eight columns of weights; row: of this lane's first input and column.
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

#endif
