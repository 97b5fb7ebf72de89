// Variable selection and the in-projection behind it, forward, with both products on tensor cores.
//
// x is read once; the logits are never stored, and the selected inputs only for the backward. The formulas are in
// nets/vsn.cu; the products x W_g and (selected) W_in have TF32 operands and float32 sums, the rest is float32.
// Thread mapping: vsn_tf32.cuh. Where there are few tokens several warps share the in-projection of 16.
// Bytes a token: 224 read, 1,184 written, and 448 more where the backward follows. Shared memory: 79 kB, dynamic.
// Edge cases: NaN in x or in a logit makes the token's whole output NaN.
#include "cuda_only/vsn_tf32.cuh"

#define VSN_IN_STRIDE (MAMBA_PROJ + 4)

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

struct VsnArrays {
    const float *x, *w, *bias, *w_in;
    float *gate, *out, *proj;
    int tokens, share;
};

// Weights, rounded to TF32.
struct VsnWeights {
    alignas(16) float select[ENCODER_INPUT_DIM * VSN_STRIDE], project[ENCODER_INPUT_DIM * VSN_IN_STRIDE];
};

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

// The selected inputs of tokens `first` and `first` + 8 in place of the inputs; gate and they go to memory where `keep`.
static __device__ __forceinline__ void select_inputs(VsnPart& in, const VsnArrays& a, const float* weights, bool keep,
                                                     int first, int g, int t) {
    VsnPart gate;
    unsigned int inputs[VSN_EIGHTS][4];
    round_part(inputs, in);
#pragma unroll
    for (int j = 0; j < VSN_EIGHTS; ++j) {
        gate[j][0] = gate[j][2] = a.bias[8 * j + 2 * t], gate[j][1] = gate[j][3] = a.bias[8 * j + 2 * t + 1];
#pragma unroll
        for (int s = 0; s < VSN_EIGHTS; ++s) {
            multiply_eight<VSN_STRIDE>(gate[j], inputs[s], weights + (8 * s + 2 * t) * VSN_STRIDE + 8 * j + g);
        }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        softmax_part(gate, r);
        const bool store = keep && first + 8 * r < a.tokens;
        const long long at = (long long)(first + 8 * r) * ENCODER_INPUT_DIM + 2 * t;
#pragma unroll
        for (int j = 0; j < VSN_EIGHTS; ++j) {
            float* two = &in[j][2 * r];
            two[0] = VSN_SCALE * gate[j][2 * r] * two[0], two[1] = VSN_SCALE * gate[j][2 * r + 1] * two[1];
            if (!store) continue;
            *(float2*)(a.gate + at + 8 * j) = make_float2(gate[j][2 * r], gate[j][2 * r + 1]);
            *(float2*)(a.out + at + 8 * j) = make_float2(two[0], two[1]);
        }
    }
}

// Eight columns of the in-projection of 16 tokens.
static __device__ __forceinline__ void project_eight(const VsnArrays& a, const unsigned int (&inputs)[VSN_EIGHTS][4],
                                                     const float* weights, int column, int first, int g, int t) {
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int s = 0; s < VSN_EIGHTS; ++s) {
        multiply_eight<VSN_IN_STRIDE>(sums, inputs[s], weights + (8 * s + 2 * t) * VSN_IN_STRIDE + column + g);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float* to = a.proj + (long long)(first + 8 * r) * MAMBA_PROJ + column + 2 * t;
        if (first + 8 * r < a.tokens) *(float2*)to = make_float2(sums[2 * r], sums[2 * r + 1]);
    }
}

// KEEP: gate and selected inputs are written for the backward.
template <bool KEEP>
static __device__ __forceinline__ void select_and_project(const VsnArrays& a, VsnWeights* weights) {
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4, warps = (int)gridDim.x * (VSN_THREADS / 32);
    const int warp = (int)blockIdx.x * (VSN_THREADS / 32) + (int)threadIdx.x / 32, part = warp % a.share;
    VsnPart in;
    int tile = warp / a.share;
    load_part(in, a.x, tile * VSN_TOKENS + g, a.tokens, t);
    load_weights<ENCODER_INPUT_DIM, VSN_STRIDE>(weights->select, a.w);
    load_weights<MAMBA_PROJ, VSN_IN_STRIDE>(weights->project, a.w_in);
    __syncthreads();
    while (tile * VSN_TOKENS < a.tokens) {
        const int first = tile * VSN_TOKENS + g;
        unsigned int selected[VSN_EIGHTS][4];
        select_inputs(in, a, weights->select, KEEP && part == 0, first, g, t);
        round_part(selected, in);
        tile += warps / a.share;
        load_part(in, a.x, tile * VSN_TOKENS + g, a.tokens, t);  // of the next tile, while this one is projected
        for (int j = part; j < VSN_IN_EIGHTS; j += a.share) {
            project_eight(a, selected, weights->project, 8 * j, first, g, t);
        }
    }
}

#endif

// vsn_in_forward: gate = softmax(x w + bias); out = 56 gate x; proj = out w_in.
// launch: blocks (264 if (W*B + 15)/16*share > 2112 else ((W*B + 15)/16*share + 7)/8), block 256, shared 80640
// chain: 7 us
// fuses: vsn_forward
// x, gate, out [W, B, 56]; w [56, 56]; bias [56]; w_in [56, 296]; proj [W, B, 296]; share: warps, 1 to 8, a power of 2,
// that share the in-projection of 16 tokens.
extern "C" __global__ void __launch_bounds__(VSN_THREADS, 2) vsn_in_forward(
    const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ bias,
    const float* __restrict__ w_in, float* __restrict__ gate, float* __restrict__ out, float* __restrict__ proj, int W,
    int B, int share) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    extern __shared__ __align__(16) float vsn_memory[];
    static_assert(sizeof(VsnWeights) == 80640, "the launch line names the size");
    select_and_project<true>({x, w, bias, w_in, gate, out, proj, W * B, share}, (VsnWeights*)vsn_memory);
#endif
}

// vsn_in_forward_only: vsn_in_forward where no backward follows.
// launch: blocks (264 if (W*B + 15)/16*share > 2112 else ((W*B + 15)/16*share + 7)/8), block 256, shared 80640
// chain: 7 us
// fuses: vsn_forward
// Parameters are those of vsn_in_forward.
extern "C" __global__ void __launch_bounds__(VSN_THREADS, 2) vsn_in_forward_only(
    const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ bias,
    const float* __restrict__ w_in, float* __restrict__ proj, int W, int B, int share) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    extern __shared__ __align__(16) float vsn_memory[];
    select_and_project<false>({x, w, bias, w_in, (float*)0, (float*)0, proj, W * B, share}, (VsnWeights*)vsn_memory);
#endif
}
