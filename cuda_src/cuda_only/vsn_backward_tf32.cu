// The gradient of variable selection's inputs through the in-projection behind it, and of its logits, in one kernel.
//
// d(selected) = d(proj) W_in^T on tensor cores (TF32 operands, float32 sums) stays in registers; the rest is that of
// vsn_backward (nets/vsn.cu) in float32. Adds the logits' gradients of the block's tokens: a line of parts for
// encoder_sum_parts. Thread mapping: vsn_tf32.cuh; tokens go to the blocks first, then to their warps. Of sixteen columns a
// lane has 4t to 4t + 3, which travel as 16 bytes: step or tile 2 p has the first two of each four, the next one the others;
// of eight that are left over 2t and 2t + 1.
// Bytes a token: 1,632 read, 224 written. Shared memory: 68 kB, dynamic. Edge cases: NaN spoils its token and the sums.
#include "cuda_only/vsn_tf32.cuh"

#define VSN_AHEAD 4                    // sixteens of d(proj) that are loaded before they are needed
#define VSN_BACK_STRIDE (MAMBA_PROJ + 8)  // floats between rows of weights in shared memory: 16 banks

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// The first of a lane's two inputs of step or tile j.
static __device__ __forceinline__ constexpr int vsn_column(int j, int t) {
    return j == VSN_EIGHTS - 1 ? 8 * j + 2 * t : j / 2 * 16 + 4 * t + j % 2 * 2;
}

// A lane's columns of steps 2 p and 2 p + 1 of a token, r: its place in the parts.
static __device__ __forceinline__ void load_columns(float (&first)[4], float (&second)[4], const float* row, int r, int p,
                                                    int t) {
    const float4 four = *(const float4*)(row + 16 * p + 4 * t);
    first[2 * r] = four.x, first[2 * r + 1] = four.y, second[2 * r] = four.z, second[2 * r + 1] = four.w;
}

// The same of a step that stands alone.
static __device__ __forceinline__ void load_last(float (&part)[4], const float* row, int r, int column) {
    const float2 two = *(const float2*)(row + column);
    part[2 * r] = two.x, part[2 * r + 1] = two.y;
}

// The inputs of tokens `first` and `first` + 8 of an array; zeros behind its end.
static __device__ __forceinline__ void load_part(VsnPart& to, const float* from, int first, int tokens, int t) {
#pragma unroll
    for (int k = 0; k < 4 * VSN_EIGHTS; ++k) to[k / 4][k % 4] = 0.0f;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        if (first + 8 * r >= tokens) continue;
        const float* row = from + (long long)(first + 8 * r) * ENCODER_INPUT_DIM;
#pragma unroll
        for (int p = 0; p < VSN_EIGHTS / 2; ++p) load_columns(to[2 * p], to[2 * p + 1], row, r, p, t);
        load_last(to[VSN_EIGHTS - 1], row, r, vsn_column(VSN_EIGHTS - 1, t));
    }
}

// Token g + 8 r of a part to its row.
static __device__ __forceinline__ void store_part(float* row, const VsnPart& part, int r, int t) {
#pragma unroll
    for (int p = 0; p < VSN_EIGHTS / 2; ++p) {
        const float *a = &part[2 * p][2 * r], *b = &part[2 * p + 1][2 * r];
        *(float4*)(row + 16 * p + 4 * t) = make_float4(a[0], a[1], b[0], b[1]);
    }
    const float* last = &part[VSN_EIGHTS - 1][2 * r];
    *(float2*)(row + vsn_column(VSN_EIGHTS - 1, t)) = make_float2(last[0], last[1]);
}

// w_in [56, 296], rounded to TF32. sums: of each warp.
struct VsnBackShared {
    alignas(16) float weights[ENCODER_INPUT_DIM * VSN_BACK_STRIDE];
    float sums[VSN_THREADS / 32][ENCODER_INPUT_DIM];
};

// Two steps of d(proj), [step][2 r + e], of two tokens.
struct VsnSteps {
    float v[2][4];

    __device__ __forceinline__ void load(const float* const (&rows)[2], int p, int t) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            if (p < VSN_IN_EIGHTS / 2) load_columns(v[0], v[1], rows[r], r, p, t);
            else load_last(v[0], rows[r], r, MAMBA_PROJ - 8 + 2 * t);
        }
    }
};

// grad += two steps of d(proj) times W_in^T; the last of the 37 steps stands alone.
static __device__ __forceinline__ void multiply_steps(VsnPart& grad, const VsnSteps& steps, const float* weights, int p,
                                                      int g, int t) {
    const bool whole = p < VSN_IN_EIGHTS / 2;
    unsigned int a[2][4];
#pragma unroll
    for (int k = 0; k < 8; ++k) a[k / 4][k % 4] = to_operand(steps.v[k / 4][k % 2 * 2 + k % 4 / 2]);
#pragma unroll
    for (int j = 0; j < VSN_EIGHTS; ++j) {
        const float* row = weights + (vsn_column(j, g / 2) + g % 2) * VSN_BACK_STRIDE + 16 * p + (whole ? 4 : 2) * t;
        if (whole) {
            const float4 four = *(const float4*)row;
            const unsigned int b[2] = {__float_as_uint(four.x), __float_as_uint(four.y)};
            const unsigned int c[2] = {__float_as_uint(four.z), __float_as_uint(four.w)};
            mma_tf32(grad[j], a[0], b);
            mma_tf32(grad[j], a[1], c);
        } else {
            const float2 two = *(const float2*)row;
            const unsigned int b[2] = {__float_as_uint(two.x), __float_as_uint(two.y)};
            mma_tf32(grad[j], a[0], b);
        }
    }
}

// d(selected) of 16 tokens; behind the end that of the last one.
static __device__ __forceinline__ void input_gradient(VsnPart& grad, const float* grad_proj, const float* weights,
                                                      int first, int tokens, int g, int t) {
    const int all = (VSN_IN_EIGHTS + 1) / 2;
    const float* const rows[2] = {grad_proj + (long long)(first < tokens ? first : tokens - 1) * MAMBA_PROJ,
                                  grad_proj + (long long)(first + 8 < tokens ? first + 8 : tokens - 1) * MAMBA_PROJ};
    VsnSteps ahead[VSN_AHEAD];
#pragma unroll
    for (int k = 0; k < 4 * VSN_EIGHTS; ++k) grad[k / 4][k % 4] = 0.0f;
#pragma unroll
    for (int p = 0; p < VSN_AHEAD; ++p) ahead[p].load(rows, p, t);
#pragma unroll VSN_AHEAD
    for (int p = 0; p < all; ++p) {
        multiply_steps(grad, ahead[p % VSN_AHEAD], weights, p, g, t);
        if (p + VSN_AHEAD < all) ahead[p % VSN_AHEAD].load(rows, p + VSN_AHEAD, t);
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
#pragma unroll
        for (int k = 0; k < 2 * VSN_EIGHTS; ++k) {
            float* at = &grad[k / 2][2 * r + k % 2];
            *at = g[k / 2][2 * r + k % 2] * (*at - mean);
            sums[k / 2][k % 2] += *at;
        }
        if (first + 8 * r < tokens) store_part(gate + (long long)(first + 8 * r) * ENCODER_INPUT_DIM, grad, r, t);
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
        if (lane < 4) shared->sums[warp][vsn_column(k / 2, lane) + k % 2] = v;
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
// launch: blocks tiles, block 256, shared 69888
// chain: 7 us
// updates: gate
// fuses: vsn_backward
// x, gate [W, B, 56]; w_in [56, 296]; grad_proj [W, B, 296]; parts [tiles, 56]; tiles: blocks, as many as 16 tokens each
// need or fewer.
extern "C" __global__ void __launch_bounds__(VSN_THREADS, 2) vsn_in_backward(
    const float* __restrict__ x, const float* __restrict__ w_in, const float* __restrict__ grad_proj, float* gate,
    float* __restrict__ parts, int W, int B, int tiles) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    extern __shared__ __align__(16) float vsn_memory[];
    static_assert(sizeof(VsnBackShared) == 69888, "the launch line names the size");
    VsnBackShared* shared = (VsnBackShared*)vsn_memory;
    const int warp = (int)threadIdx.x / 32, tokens = W * B;
    int lane = (int)threadIdx.x % 32;
    float sums[VSN_EIGHTS][2] = {};
    load_weights<MAMBA_PROJ, VSN_BACK_STRIDE>(shared->weights, w_in);
    __syncthreads();
    for (int tile = (int)blockIdx.x + tiles * warp; tile * VSN_TOKENS < tokens; tile += tiles * (VSN_THREADS / 32)) {
        lane = fresh(lane);  // or all weights would be read before the loop, to wait in memory
        const int g = lane / 4, t = lane % 4, first = tile * VSN_TOKENS + g;
        VsnPart grad;
        input_gradient(grad, grad_proj, shared->weights, first, tokens, g, t);
        logit_gradients(grad, sums, x, gate, first, tokens, t);
    }
    write_sums(shared, sums, parts, warp, lane);
#endif
}
