// Variable selection, a tile of 64 snapshots at a time through shared memory, forward and backward.
//
// The same arithmetic in the same order as nets/vsn.cu (one thread a token), bit for bit; there a warp reads 32 rows at
// once, here adjacent threads read adjacent floats. The backward also sums the logits' gradients of its tile: a line of
// parts for encoder_sum_parts. Shared memory: 15 kB forward, 29 kB backward, static.
// Edge cases: NaN in x or in a logit makes the token's whole output NaN.
#include "generated/structure.cuh"
#include "include/math.cuh"
#include "include/reduce.cuh"
#include "nets/lanes.cuh"

#define VSN_SCALE ((float)ENCODER_INPUT_DIM)
#define VSN_TILE 64                            // tokens of a block, one thread each
#define VSN_STRIDE (ENCODER_INPUT_DIM + 1)     // odd: a thread a token meets no bank twice
#define VSN_QUADS (ENCODER_INPUT_DIM / 4)      // 16-byte pieces of a token

typedef float VsnTile[VSN_TILE][VSN_STRIDE];

// The block's piece q: 16 bytes of one token, adjacent threads adjacent pieces.
struct VsnPiece {
    int token, column;
    bool inside;
    long long at;
};

static __device__ inline VsnPiece vsn_piece(int q, int tokens) {
    const int token = q / VSN_QUADS, column = q % VSN_QUADS * 4;
    const long long first = (long long)blockIdx.x * VSN_TILE;
    return {token, column, first + token < tokens, first * ENCODER_INPUT_DIM + 4 * q};
}

static __device__ inline void vsn_unpack(const float* from, float* v) {
    const float4 four = *(const float4*)from;
    v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
}

static __device__ inline void vsn_pack(float* to, const float* v) { *(float4*)to = make_float4(v[0], v[1], v[2], v[3]); }

// Softmax numerators of the thread's token, in place; returns the reciprocal of their sum.
static __device__ inline float vsn_numerators(float* logits) {
    float top = -MATH_FLOAT_MAX, sum = 0.0f;
    for (int i = 0; i < ENCODER_INPUT_DIM; ++i) top = max_keep_nan(top, logits[i]);
#pragma unroll 8
    for (int i = 0; i < ENCODER_INPUT_DIM; ++i) {
        const float e = lanes_exp(logits[i] - top);
        logits[i] = e;
        sum += e;
    }
    return 1.0f / sum;
}

// KEEP: the gate is written for the backward, in place of the logits.
template <bool KEEP>
static __device__ __forceinline__ void forward_tile(const float* __restrict__ x, const float* __restrict__ bias,
                                                    const float* logits, float* gate, float* __restrict__ out,
                                                    int tokens) {
    __shared__ VsnTile tile;
    __shared__ float scale[VSN_TILE];
    const int t = (int)threadIdx.x;
#pragma unroll 7
    for (int m = 0; m < VSN_QUADS; ++m) {
        const VsnPiece piece = vsn_piece(m * VSN_TILE + t, tokens);
        float v[4] = {0.0f, 0.0f, 0.0f, 0.0f}, shift[4];
        if (piece.inside) vsn_unpack(logits + piece.at, v);
        vsn_unpack(bias + piece.column, shift);
        for (int k = 0; k < 4; ++k) tile[piece.token][piece.column + k] = v[k] + shift[k];
    }
    __syncthreads();
    scale[t] = vsn_numerators(tile[t]);
    __syncthreads();
#pragma unroll 7
    for (int m = 0; m < VSN_QUADS; ++m) {
        const VsnPiece piece = vsn_piece(m * VSN_TILE + t, tokens);
        if (!piece.inside) continue;
        float in[4], g[4];
        vsn_unpack(x + piece.at, in);
        for (int k = 0; k < 4; ++k) {
            g[k] = tile[piece.token][piece.column + k] * scale[piece.token];
            in[k] = VSN_SCALE * g[k] * in[k];
        }
        if (KEEP) vsn_pack(gate + piece.at, g);
        vsn_pack(out + piece.at, in);
    }
}

// vsn_tile_forward: gate = softmax(logits + bias), in place of the logits; out = 56 gate x.
// launch: threads W*B, block 64
// updates: gate
// fuses: vsn_forward
// x, gate, out [W, B, 56]; bias [56].
extern "C" __global__ void __launch_bounds__(VSN_TILE) vsn_tile_forward(const float* __restrict__ x,
                                                                        const float* __restrict__ bias, float* gate,
                                                                        float* __restrict__ out, int W, int B) {
    forward_tile<true>(x, bias, gate, gate, out, W * B);
}

// vsn_tile_forward_only: vsn_tile_forward where no backward follows.
// launch: threads W*B, block 64
// fuses: vsn_forward
// x, logits, out [W, B, 56]; bias [56].
extern "C" __global__ void __launch_bounds__(VSN_TILE) vsn_tile_forward_only(
    const float* __restrict__ x, const float* __restrict__ bias, const float* __restrict__ logits,
    float* __restrict__ out, int W, int B) {
    forward_tile<false>(x, bias, logits, (float*)0, out, W * B);
}

// vsn_tile_backward: gradient of the logits, in place of the gate, and its sums over the tile.
// launch: threads W*B, block 64
// updates: gate
// fuses: vsn_backward
// x, grad_out, gate [W, B, 56]; parts [(W B + 63) / 64, 56].
extern "C" __global__ void __launch_bounds__(VSN_TILE) vsn_tile_backward(const float* __restrict__ x,
                                                                         const float* __restrict__ grad_out,
                                                                         float* gate, float* __restrict__ parts,
                                                                         int W, int B) {
    __shared__ VsnTile gates, upstream;
    __shared__ float mean[VSN_TILE];
    const int t = (int)threadIdx.x, tokens = W * B;
#pragma unroll 7
    for (int m = 0; m < VSN_QUADS; ++m) {
        const VsnPiece piece = vsn_piece(m * VSN_TILE + t, tokens);
        float g[4] = {0.0f, 0.0f, 0.0f, 0.0f}, in[4] = {0.0f, 0.0f, 0.0f, 0.0f}, d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (piece.inside) {
            vsn_unpack(gate + piece.at, g);
            vsn_unpack(x + piece.at, in);
            vsn_unpack(grad_out + piece.at, d);
        }
        for (int k = 0; k < 4; ++k) {
            gates[piece.token][piece.column + k] = g[k];
            upstream[piece.token][piece.column + k] = VSN_SCALE * in[k] * d[k];
        }
    }
    __syncthreads();
    float sum = 0.0f;
#pragma unroll 8
    for (int i = 0; i < ENCODER_INPUT_DIM; ++i) sum = fmaf(gates[t][i], upstream[t][i], sum);
    mean[t] = sum;
    __syncthreads();
#pragma unroll 7
    for (int m = 0; m < VSN_QUADS; ++m) {
        const VsnPiece piece = vsn_piece(m * VSN_TILE + t, tokens);
        float d[4];
        for (int k = 0; k < 4; ++k) {
            float* g = &gates[piece.token][piece.column + k];
            *g *= upstream[piece.token][piece.column + k] - mean[piece.token];
            d[k] = *g;
        }
        if (piece.inside) vsn_pack(gate + piece.at, d);
    }
    __syncthreads();
    if (t < ENCODER_INPUT_DIM) {
        float column = 0.0f;
#pragma unroll 8
        for (int i = 0; i < VSN_TILE; ++i) column += gates[i][t];
        parts[(long long)blockIdx.x * ENCODER_INPUT_DIM + t] = column;
    }
}
