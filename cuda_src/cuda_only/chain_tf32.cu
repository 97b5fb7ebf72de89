// Two linear layers of the encoder that follow one another, 128 to 128 to 128, in one pass over the rows: TF32 operands,
// float32 sums. What lies between them leaves for memory where somebody reads it, and is not read again.
//
// A block keeps both layers' weights in shared memory, in the order in which tensor cores want them. A warp takes tiles
// of 16 rows, blocks first; nobody waits at a barrier. Fragments (mma.cuh): a lane's four adjacent inputs 16 s + 4 t to + 3
// of the first layer are depths t, t + 4 of two steps. The first layer's sums are the second's operand where they are:
// columns 8 j + 2 t and + 1 of a lane are depths t and t + 4 of step j, and the weights are laid out to match.
// Order of addition: fixed.
#include "cuda_only/mma.cuh"
#include "generated/structure.cuh"

#define CHAIN_WARPS 12
#define CHAIN_TILES (HIDDEN_DIM / 8)     // of columns
#define CHAIN_STEPS (HIDDEN_DIM / 16)    // pairs of steps
#define CHAIN_WEIGHTS (HIDDEN_DIM * HIDDEN_DIM)

static_assert(HIDDEN_DIM == 128, "the launch rules count 64 kB a layer");

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

struct Chain {
    const float *input, *first, *second;  // [rows, 128]; [128, 128] each
    const float* addend;                  // null, or [rows, 128], added to the first layer's output
    float *middle, *out;                  // [rows, 128]; middle may be null
    int rows;
};

// Weights as [pair of steps][tile of columns][lane][4]. TRANSPOSED: the layer multiplies by the transposed matrix.
// SECOND: depths as the first layer's sums give them.
template <bool TRANSPOSED, bool SECOND>
static __device__ __forceinline__ void load_layer(float* to, const float* w) {
#pragma unroll 4
    for (int i = threadIdx.x; i < CHAIN_WEIGHTS / 4; i += 32 * CHAIN_WARPS) {
        const int lane = i % 32, col = i / 32 % CHAIN_TILES * 8 + lane / 4, step = i / (32 * CHAIN_TILES), t = lane % 4;
        float v[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int k = 16 * step + (SECOND ? 8 * (e / 2) + 2 * t + e % 2 : 4 * t + e);
            v[e] = __uint_as_float(to_tf32(TRANSPOSED ? w[col * HIDDEN_DIM + k] : w[k * HIDDEN_DIM + col]));
        }
        *(float4*)(to + 4 * i) = make_float4(v[0], v[1], v[2], v[3]);
    }
}

// sums += a pair of steps: low and high, operands of the first and of the second.
static __device__ __forceinline__ void multiply_pair(
    const unsigned int* low, const unsigned int* high, const float* weights, float (*sums)[4]) {
#pragma unroll
    for (int j = 0; j < CHAIN_TILES; ++j) {
        const float4 b = *(const float4*)(weights + j * 128);
        const unsigned int first[2] = {__float_as_uint(b.x), __float_as_uint(b.y)};
        const unsigned int second[2] = {__float_as_uint(b.z), __float_as_uint(b.w)};
        mma_tf32(sums[j], low, first);
        mma_tf32(sums[j], high, second);
    }
}

// The first layer of a tile: sums = input * weights + addend.
static __device__ __forceinline__ void first_layer(
    const Chain& c, const float* weights, int upper, int lower, int t, float (*sums)[4]) {
    float4 a[CHAIN_STEPS][2];
    const float* from[2] = {c.input + (long long)upper * HIDDEN_DIM + 4 * t, c.input + (long long)lower * HIDDEN_DIM + 4 * t};
#pragma unroll
    for (int s = 0; s < CHAIN_STEPS; ++s) {
#pragma unroll
        for (int half = 0; half < 2; ++half) a[s][half] = *(const float4*)(from[half] + 16 * s);
    }
#pragma unroll
    for (int j = 0; j < CHAIN_TILES; ++j) {
        const int col = 8 * j + 2 * t;
        float2 x = make_float2(0.0f, 0.0f), y = x;
        if (c.addend) {
            x = *(const float2*)(c.addend + (long long)upper * HIDDEN_DIM + col);
            y = *(const float2*)(c.addend + (long long)lower * HIDDEN_DIM + col);
        }
        sums[j][0] = x.x, sums[j][1] = x.y, sums[j][2] = y.x, sums[j][3] = y.y;
    }
#pragma unroll
    for (int s = 0; s < CHAIN_STEPS; ++s) {
        const float4 x = a[s][0], y = a[s][1];
        const unsigned int low[4] = {to_tf32(x.x), to_tf32(y.x), to_tf32(x.y), to_tf32(y.y)};
        const unsigned int high[4] = {to_tf32(x.z), to_tf32(y.z), to_tf32(x.w), to_tf32(y.w)};
        multiply_pair(low, high, weights + s * CHAIN_TILES * 128, sums);
    }
}

static __device__ __forceinline__ void store_tile(float* to, int rows, int upper, int t, const float (*sums)[4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = upper + 8 * half;
        if (row >= rows) continue;
        float* line = to + (long long)row * HIDDEN_DIM + 2 * t;
#pragma unroll
        for (int j = 0; j < CHAIN_TILES; ++j) *(float2*)(line + 8 * j) = make_float2(sums[j][2 * half], sums[j][2 * half + 1]);
    }
}

template <bool TRANSPOSED>
static __device__ __forceinline__ void run_chain(float* shared, const Chain& c) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    load_layer<TRANSPOSED, false>(shared, c.first);
    load_layer<TRANSPOSED, true>(shared + CHAIN_WEIGHTS, c.second);
    __syncthreads();
    const float* weights = shared + 4 * lane;
    for (int row0 = 16 * (blockIdx.x + gridDim.x * warp); row0 < c.rows; row0 += 16 * CHAIN_WARPS * gridDim.x) {
        const int upper = row0 + g, last = c.rows - 1;  // rows behind the last are computed from it and not stored
        float sums[CHAIN_TILES][4], out[CHAIN_TILES][4];
        first_layer(c, weights, upper < last ? upper : last, upper + 8 < last ? upper + 8 : last, t, sums);
        if (c.middle) store_tile(c.middle, c.rows, upper, t, sums);
#pragma unroll
        for (int i = 0; i < CHAIN_TILES * 4; ++i) (&out[0][0])[i] = 0.0f;
#pragma unroll
        for (int j = 0; j < CHAIN_TILES; j += 2) {
            unsigned int a[2][4];
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const float* d = sums[j + e];
                a[e][0] = to_tf32(d[0]), a[e][1] = to_tf32(d[2]), a[e][2] = to_tf32(d[1]), a[e][3] = to_tf32(d[3]);
            }
            multiply_pair(a[0], a[1], weights + CHAIN_WEIGHTS + j / 2 * CHAIN_TILES * 128, out);
        }
        store_tile(c.out, c.rows, upper, t, out);
    }
}

#endif

// cfc_chain_forward: out-projection of the second block with its residual connection, input half of the CfC's backbone.
// launch: blocks (rows+15)/16 if rows < 2112 else 132, block 384, shared 131072
// norm, trunk, mixed, pre [rows, 128]: mixed = norm w_m2_out + trunk, pre = mixed w_cfc_backbone (upper half).
extern "C" __global__ void __launch_bounds__(32 * CHAIN_WARPS, 1) cfc_chain_forward(
    const float* __restrict__ norm, const float* __restrict__ w_m2_out, const float* __restrict__ trunk,
    const float* __restrict__ w_cfc_backbone, float* __restrict__ mixed, float* __restrict__ pre, int rows) {
    extern __shared__ __align__(16) float chain_memory[];
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    run_chain<false>(chain_memory, {norm, w_m2_out, w_cfc_backbone, trunk, mixed, pre, rows});
#endif
}

// cfc_chain_encode: cfc_chain_forward without a backward behind it: nobody asks for what lies between.
// launch: blocks (rows+15)/16 if rows < 2112 else 132, block 384, shared 131072
extern "C" __global__ void __launch_bounds__(32 * CHAIN_WARPS, 1) cfc_chain_encode(
    const float* __restrict__ norm, const float* __restrict__ w_m2_out, const float* __restrict__ trunk,
    const float* __restrict__ w_cfc_backbone, float* __restrict__ pre, int rows) {
    extern __shared__ __align__(16) float chain_memory[];
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    run_chain<false>(chain_memory, {norm, w_m2_out, w_cfc_backbone, trunk, nullptr, pre, rows});
#endif
}

// cfc_chain_backward: from before the backbone's tanh to the second block's output, and on to its normalised output.
// launch: blocks (rows+15)/16 if rows < 2112 else 132, block 384, shared 131072
// grad_pre, grad_out, grad_norm [rows, 128]: grad_out = grad_pre w_cfc_backbone^T (upper half), grad_norm = grad_out
// w_m2_out^T.
extern "C" __global__ void __launch_bounds__(32 * CHAIN_WARPS, 1) cfc_chain_backward(
    const float* __restrict__ grad_pre, const float* __restrict__ w_cfc_backbone, const float* __restrict__ w_m2_out,
    float* __restrict__ grad_out, float* __restrict__ grad_norm, int rows) {
    extern __shared__ __align__(16) float chain_memory[];
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    run_chain<true>(chain_memory, {grad_pre, w_cfc_backbone, w_m2_out, nullptr, grad_out, grad_norm, rows});
#endif
}
