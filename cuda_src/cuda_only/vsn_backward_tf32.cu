// The gradient of variable selection's inputs through the in-projection behind it, and of its logits, in one kernel.
//
// d(selected) = d(proj) W_in^T on tensor cores (TF32 operands, float32 sums) stays in registers; the rest is that of
// vsn_backward (nets/vsn.cu) in float32. Adds the logits' gradients of the block's tokens: a line of parts for
// encoder_sum_parts. Thread mapping: vsn_tf32.cuh; tokens go to the blocks first, then to their warps.
// Bytes a token: 1,632 read, 224 written. Shared memory: 68 kB, dynamic. Edge cases: NaN spoils its token and the sums.
#include "cuda_only/vsn_tf32.cuh"

#define VSN_AHEAD 4  // eights of d(proj) that are loaded before they are needed

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// w_in [56, 296], rounded to TF32: rows 8 banks apart. sums: of each warp.
struct VsnBackShared {
    alignas(16) float weights[ENCODER_INPUT_DIM * MAMBA_PROJ];
    float sums[VSN_THREADS / 32][ENCODER_INPUT_DIM];
};

// Columns 8 s + 2 t and the next of d(proj), tokens `first` and `first` + 8; zeros behind the end.
static __device__ __forceinline__ void load_eight(float (&to)[4], const float* grad_proj, int s, int first, int tokens,
                                                  int t) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float2 two = make_float2(0.0f, 0.0f);
        if (first + 8 * r < tokens) {
            two = *(const float2*)(grad_proj + (long long)(first + 8 * r) * MAMBA_PROJ + 8 * s + 2 * t);
        }
        to[r] = two.x, to[2 + r] = two.y;
    }
}

// d(selected) of 16 tokens.
static __device__ __forceinline__ void input_gradient(VsnPart& grad, const float* grad_proj, const float* weights,
                                                      int first, int tokens, int g, int t) {
    float ahead[VSN_AHEAD][4];
#pragma unroll
    for (int k = 0; k < 4 * VSN_EIGHTS; ++k) grad[k / 4][k % 4] = 0.0f;
#pragma unroll
    for (int s = 0; s < VSN_AHEAD; ++s) load_eight(ahead[s], grad_proj, s, first, tokens, t);
#pragma unroll
    for (int s = 0; s < VSN_IN_EIGHTS; ++s) {
        unsigned int a[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) a[k] = to_tf32(ahead[s % VSN_AHEAD][k]);
        if (s + VSN_AHEAD < VSN_IN_EIGHTS) {
            load_eight(ahead[s % VSN_AHEAD], grad_proj, s + VSN_AHEAD, first, tokens, t);
        }
#pragma unroll
        for (int j = 0; j < VSN_EIGHTS; ++j) {
            const float2 two = *(const float2*)(weights + (8 * j + g) * MAMBA_PROJ + 8 * s + 2 * t);
            const unsigned int b[2] = {__float_as_uint(two.x), __float_as_uint(two.y)};
            mma_tf32(grad[j], a, b);
        }
    }
}

// The logits' gradients from d(selected), in place of the gate; their sums over tokens g and g + 8 are added to sums.
static __device__ __forceinline__ void logit_gradients(VsnPart& grad, float (&sums)[VSN_EIGHTS][2],
                                                       const float* __restrict__ x, float* gate, int first, int tokens,
                                                       int t) {
    VsnPart g;
    load_part(g, x, first, tokens, t);
#pragma unroll
    for (int k = 0; k < 4 * VSN_EIGHTS; ++k) grad[k / 4][k % 4] *= VSN_SCALE * g[k / 4][k % 4];
    load_part(g, gate, first, tokens, t);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float mean = 0.0f;
#pragma unroll
        for (int k = 0; k < 2 * VSN_EIGHTS; ++k) {
            mean = fmaf(g[k / 2][2 * r + k % 2], grad[k / 2][2 * r + k % 2], mean);
        }
        mean = group_sum<4>(mean);
        float* to = gate + (long long)(first + 8 * r) * ENCODER_INPUT_DIM + 2 * t;
#pragma unroll
        for (int j = 0; j < VSN_EIGHTS; ++j) {
            const float a = g[j][2 * r] * (grad[j][2 * r] - mean), b = g[j][2 * r + 1] * (grad[j][2 * r + 1] - mean);
            sums[j][0] += a, sums[j][1] += b;
            if (first + 8 * r < tokens) *(float2*)(to + 8 * j) = make_float2(a, b);
        }
    }
}

// The block's line of parts from each lane's sums.
static __device__ __forceinline__ void write_sums(VsnBackShared* shared, float (&sums)[VSN_EIGHTS][2], float* parts,
                                                  int warp, int lane) {
#pragma unroll
    for (int k = 0; k < 2 * VSN_EIGHTS; ++k) {
        float v = sums[k / 2][k % 2];
#pragma unroll
        for (int step = 4; step < 32; step *= 2) v += __shfl_xor_sync(REDUCE_FULL_WARP, v, step);
        if (lane < 4) shared->sums[warp][k / 2 * 8 + 2 * lane + k % 2] = v;
    }
    __syncthreads();
    const int i = (int)threadIdx.x;
    if (i >= ENCODER_INPUT_DIM) return;
    float sum = 0.0f;
    for (int k = 0; k < VSN_THREADS / 32; ++k) sum += shared->sums[k][i];
    parts[(long long)blockIdx.x * ENCODER_INPUT_DIM + i] = sum;
}

#endif

// vsn_in_backward: gradient of the logits from that of the in-projection, in place of the gate, and its sums.
// launch: blocks tiles, block 256, shared 68096
// updates: gate
// fuses: vsn_backward
// x, gate [W, B, 56]; w_in [56, 296]; grad_proj [W, B, 296]; parts [tiles, 56]; tiles: blocks, as many as 16 tokens each
// need or fewer.
extern "C" __global__ void __launch_bounds__(VSN_THREADS, 2) vsn_in_backward(
    const float* __restrict__ x, const float* __restrict__ w_in, const float* __restrict__ grad_proj, float* gate,
    float* __restrict__ parts, int W, int B, int tiles) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    extern __shared__ __align__(16) float vsn_memory[];
    static_assert(sizeof(VsnBackShared) == 68096, "the launch line names the size");
    VsnBackShared* shared = (VsnBackShared*)vsn_memory;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4, tokens = W * B;
    float sums[VSN_EIGHTS][2] = {};
    load_weights<MAMBA_PROJ, MAMBA_PROJ>(shared->weights, w_in);
    __syncthreads();
    for (int tile = (int)blockIdx.x + tiles * warp; tile * VSN_TOKENS < tokens; tile += tiles * (VSN_THREADS / 32)) {
        VsnPart grad;
        input_gradient(grad, grad_proj, shared->weights, tile * VSN_TOKENS + g, tokens, g, t);
        logit_gradients(grad, sums, x, gate, tile * VSN_TOKENS + g, tokens, t);
    }
    write_sums(shared, sums, parts, warp, lane);
#endif
}
