// Variable selection forward with its product on tensor cores: x is read once, the logits are never stored.
//
// The formulas are in nets/vsn.cu; the product x W_g has TF32 operands and float32 sums, the rest is float32.
// Thread mapping: a warp 16 tokens; with g = lane / 4 and t = lane % 4 a lane has tokens g and g + 8 and inputs 2t and
// 2t + 1 of each eight. An operand of the product and its sums lie alike (the order along k is free), so that gate,
// input and output of an element meet in one lane; a token's softmax is over four lanes.
// Bytes a token: 224 read, 224 written, and 224 more where the backward follows. Shared memory: 13 kB, static.
// Edge cases: NaN in x or in a logit makes the token's whole output NaN.
#include "cuda_only/mma.cuh"
#include "generated/structure.cuh"
#include "include/math.cuh"
#include "include/reduce.cuh"
#include "nets/lanes.cuh"

#define VSN_SCALE ((float)ENCODER_INPUT_DIM)
#define VSN_THREADS 128                       // of a block: 64 tokens
#define VSN_EIGHTS (ENCODER_INPUT_DIM / 8)
#define VSN_STRIDE (ENCODER_INPUT_DIM + 4)    // of weights: pairs of rows 24 banks apart

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// [j][2 r + e]: token g + 8 r, input 8 j + 2 t + e.
typedef float VsnPart[VSN_EIGHTS][4];

static __device__ __forceinline__ void load_weights(float* to, const float* w) {
    for (int i = (int)threadIdx.x; i < ENCODER_INPUT_DIM * ENCODER_INPUT_DIM / 4; i += VSN_THREADS) {
        const float4 four = ((const float4*)w)[i];
        float* at = to + 4 * i / ENCODER_INPUT_DIM * VSN_STRIDE + 4 * i % ENCODER_INPUT_DIM;
        at[0] = __uint_as_float(to_tf32(four.x)), at[1] = __uint_as_float(to_tf32(four.y));
        at[2] = __uint_as_float(to_tf32(four.z)), at[3] = __uint_as_float(to_tf32(four.w));
    }
}

// sums += x W_g.
static __device__ __forceinline__ void multiply_inputs(VsnPart& sums, const VsnPart& x, const float* weights, int g,
                                                       int t) {
#pragma unroll
    for (int s = 0; s < VSN_EIGHTS; ++s) {
        const unsigned int a[4] = {to_tf32(x[s][0]), to_tf32(x[s][2]), to_tf32(x[s][1]), to_tf32(x[s][3])};
        const float* row = weights + (8 * s + 2 * t) * VSN_STRIDE + g;
#pragma unroll
        for (int j = 0; j < VSN_EIGHTS; ++j) {
            const unsigned int b[2] = {__float_as_uint(row[8 * j]), __float_as_uint(row[VSN_STRIDE + 8 * j])};
            mma_tf32(sums[j], a, b);
        }
    }
}

// Softmax over the inputs of token g + 8 r, in place.
static __device__ __forceinline__ void softmax_part(VsnPart& logits, int r) {
    float top = -MATH_FLOAT_MAX, sum = 0.0f;
#pragma unroll
    for (int k = 0; k < 2 * VSN_EIGHTS; ++k) top = max_keep_nan(top, logits[k / 2][2 * r + k % 2]);
    top = group_max<4>(top);
#pragma unroll
    for (int k = 0; k < 2 * VSN_EIGHTS; ++k) {
        float* at = &logits[k / 2][2 * r + k % 2];
        *at = lanes_exp(*at - top);
        sum += *at;
    }
    const float scale = 1.0f / group_sum<4>(sum);
#pragma unroll
    for (int k = 0; k < 2 * VSN_EIGHTS; ++k) logits[k / 2][2 * r + k % 2] *= scale;
}

// KEEP: the gate is written for the backward.
template <bool KEEP>
static __device__ __forceinline__ void select_inputs(const float* __restrict__ x, const float* __restrict__ w,
                                                     const float* __restrict__ bias, float* __restrict__ gate,
                                                     float* __restrict__ out, long long tokens) {
    __align__(16) __shared__ float weights[ENCODER_INPUT_DIM * VSN_STRIDE];
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const long long first = (long long)blockIdx.x * (VSN_THREADS / 2) + (int)threadIdx.x / 32 * 16 + g;
    const long long at = first * ENCODER_INPUT_DIM + 2 * t, below = 8 * ENCODER_INPUT_DIM;
    VsnPart in, sums;
#pragma unroll
    for (int k = 0; k < 2 * VSN_EIGHTS; ++k) {
        const int j = k / 2, r = k % 2;
        float2 two = make_float2(0.0f, 0.0f);
        if (first + 8 * r < tokens) two = *(const float2*)(x + at + r * below + 8 * j);
        in[j][2 * r] = two.x, in[j][2 * r + 1] = two.y;
        sums[j][2 * r] = bias[8 * j + 2 * t], sums[j][2 * r + 1] = bias[8 * j + 2 * t + 1];
    }
    load_weights(weights, w);
    __syncthreads();
    multiply_inputs(sums, in, weights, g, t);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        softmax_part(sums, r);
        if (first + 8 * r >= tokens) continue;
#pragma unroll
        for (int j = 0; j < VSN_EIGHTS; ++j) {
            const float2 two = make_float2(sums[j][2 * r], sums[j][2 * r + 1]);
            const long long to = at + r * below + 8 * j;
            if (KEEP) *(float2*)(gate + to) = two;
            *(float2*)(out + to) = make_float2(VSN_SCALE * two.x * in[j][2 * r], VSN_SCALE * two.y * in[j][2 * r + 1]);
        }
    }
}

#endif

// vsn_product_forward: gate = softmax(x w + bias); out = 56 gate x.
// launch: blocks (W*B + 63)/64, block 128
// fuses: vsn_forward
// x, gate, out [W, B, 56]; w [56, 56]; bias [56].
extern "C" __global__ void __launch_bounds__(VSN_THREADS) vsn_product_forward(
    const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ bias, float* __restrict__ gate,
    float* __restrict__ out, int W, int B) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    select_inputs<true>(x, w, bias, gate, out, (long long)W * B);
#endif
}

// vsn_product_forward_only: the same where no backward follows.
// launch: blocks (W*B + 63)/64, block 128
// fuses: vsn_forward
// Parameters as above.
extern "C" __global__ void __launch_bounds__(VSN_THREADS) vsn_product_forward_only(
    const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ bias, float* __restrict__ out,
    int W, int B) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    select_inputs<false>(x, w, bias, (float*)0, out, (long long)W * B);
#endif
}
