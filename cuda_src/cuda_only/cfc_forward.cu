// The CfC cell over all snapshots in one launch (formulas: nets/cfc.cu): forward, with and without keeping.
//
// Thread mapping: cfc_sequence.cuh. A snapshot of a tile passes through the block twice. The backbone warps (four, a
// pair a tile) wait for h, multiply it by the recurrent half of the backbone, add `pre` and send u to all four blocks.
// The gate warps (eight, each four units with their gates) wait for u, multiply, and send h to all blocks.
// u and h go into the products as TF32, rounded once by their sender; what is stored is float32.
#include "cuda_only/cfc_sequence.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

struct CfcForward {
    const float *pre, *w_backbone, *b_backbone, *w_gates, *b_gates, *gap;
    float *u, *gates, *states, *h;
    int W, T, B;
    float* tiles;                           // of h, then of u, for each tile of the cluster
    unsigned long long *h_ready, *u_ready;  // a barrier a tile

    __device__ __forceinline__ float* h_tile(int i) const { return tiles + 2 * i * CFC_TILE; }
    __device__ __forceinline__ float* u_tile(int i) const { return tiles + (2 * i + 1) * CFC_TILE; }
};

// u of 16 units: half 0 or 1 of the block's own. Lane 4 g + t does units 2 g and 2 g + 1 of rows 2 t and 2 t + 1.
template <bool KEEP>
static __device__ __forceinline__ void backbone_warp(const CfcForward& p, const CfcCluster& c, int half, int stream) {
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const int unit = c.rank * CFC_OWN + half * 16 + 2 * g, width = 16 * HIDDEN_DIM;
    CfcWeights weights;
    weights.load(p.w_backbone + (HIDDEN_DIM + 4 * t) * HIDDEN_DIM + unit, HIDDEN_DIM, 1, width, 2 * width);
    const float bias[2] = {p.b_backbone[unit], p.b_backbone[unit + 1]};
    cluster_wait();
    float2 next[2];
    auto fetch = [&](int w, int i) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            const int row = c.first_row + i * CFC_ROWS + 2 * t + n;
            next[n] = read_pair(p.pre + ((long long)w * p.B + row) * HIDDEN_DIM + unit, row < p.B && w < p.W);
        }
    };
    if (stream < c.count) fetch(0, stream);
    for (int w = 0; w < p.W; ++w) {
        for (int i = stream; i < c.count; i += CFC_STREAMS) {
            const float2 pre[2] = {next[0], next[1]};
            if (i + CFC_STREAMS < c.count) fetch(w, i + CFC_STREAMS);
            else fetch(w + 1, stream);
            float v[4] = {};
            if (w > 0) {
                wait_tile(p.h_ready + i, w - 1, half == 0 && lane == 0);
                weights.times(p.h_tile(i), v);
            }
#pragma unroll
            for (int n = 0; n < 2; ++n) {
                const int row = c.first_row + i * CFC_ROWS + 2 * t + n;
                const float a = CFC_AMPLITUDE * lanes_tanh(CFC_SLOPE * (pre[n].x + v[n] + bias[0]));
                const float b = CFC_AMPLITUDE * lanes_tanh(CFC_SLOPE * (pre[n].y + v[2 + n] + bias[1]));
                c.broadcast(p.u_tile(i) + tile_place(unit / 16, g >> 1, 2 * t + n) + 2 * (g & 1), p.u_ready + i, a, b);
                if (KEEP && row < p.B) {
                    *(float2*)(p.u + ((long long)w * p.B + row) * HIDDEN_DIM + unit) = make_float2(a, b);
                }
            }
        }
    }
}

// Gates and h of four units. Lane 4 g + t multiplies for unit g / 2 of rows 2 t and 2 t + 1: f and rate where g is
// even, g and offset where it is odd. The two lanes then swap, and each finishes one of the rows.
template <bool KEEP>
static __device__ __forceinline__ void gate_warp(const CfcForward& p, const CfcCluster& c, int warp) {
    const int lane = threadIdx.x & 31, t = lane & 3, odd = (lane >> 2) & 1;
    const int unit = c.rank * CFC_OWN + warp * 4 + (lane >> 3), column = 2 * t + odd, width = 16 * CFC_GATES;
    CfcWeights weights;
    weights.load(p.w_gates + 4 * t * CFC_GATES + (odd ? CFC_G : CFC_F) + unit, CFC_GATES, CFC_RATE, width, 2 * width);
    const float* bias = p.b_gates + unit;
    const float b_f = bias[CFC_F], b_g = bias[CFC_G], b_rate = bias[CFC_RATE], b_offset = bias[CFC_OFFSET];
    cluster_wait();
    for (int w = 0; w < p.W; ++w) {
        const int behind = w - (p.W - 1 - p.T);
        for (int i = 0; i < c.count; ++i) {
            const int row = c.first_row + i * CFC_ROWS + column;
            const long long token = (long long)w * p.B + row;
            const float gap = row < p.B ? p.gap[token] : 0.0f;
            wait_tile(p.u_ready + i, w, warp == 0 && lane == 0);
            float d[4];
            weights.times(p.u_tile(i), d);
            const float near = __shfl_xor_sync(~0u, odd ? d[0] : d[1], 4), far = __shfl_xor_sync(~0u, odd ? d[2] : d[3], 4);
            const float f = lanes_tanh((odd ? near : d[0]) + b_f), g = lanes_tanh((odd ? d[1] : near) + b_g);
            const float rate = (odd ? far : d[2]) + b_rate, offset = (odd ? d[3] : far) + b_offset;
            const float blend = lanes_sigmoid(fmaf(-rate, gap, offset));
            const float next = fmaf(f - g, blend, g);
            if (w + 1 < p.W) {
                c.broadcast(p.h_tile(i) + tile_place(unit / 16, warp & 3, column) + (lane >> 3), p.h_ready + i, next);
            }
            if (row >= p.B) continue;
            if (KEEP) {
                float* gate = p.gates + token * CFC_GATES + unit;
                gate[CFC_F] = f, gate[CFC_G] = g, gate[CFC_RATE] = blend;
                if (w == 0) p.states[(long long)row * HIDDEN_DIM + unit] = 0.0f;
                p.states[(token + p.B) * HIDDEN_DIM + unit] = next;
            }
            if (behind >= 0) p.h[((long long)behind * p.B + row) * HIDDEN_DIM + unit] = next;
        }
    }
}

template <bool KEEP>
static __device__ __forceinline__ void sequence_forward(CfcForward p, int tiles) {
    extern __shared__ __align__(16) float memory[];
    __shared__ unsigned long long ready[2][CFC_TILES];
    p.tiles = memory, p.h_ready = ready[0], p.u_ready = ready[1];
    if (threadIdx.x < 2 * CFC_TILES) {
        unsigned long long* barrier = ready[0] + threadIdx.x;
        barrier_init(barrier, 1);
        barrier_expect(barrier, CFC_TILE_BYTES);
        barrier_publish();
    }
    cluster_arrive();  // the roles wait for it, behind the loading of their weights
    const CfcCluster c(memory, tiles, p.B);
    const int warp = threadIdx.x / 32, other = warp - CFC_WIDE_WARPS;
    if (other < 0) gate_warp<KEEP>(p, c, warp);
    else backbone_warp<KEEP>(p, c, other & 1, other >> 1);
}

#endif

// cfc_sequence_forward: all snapshots; u, gates and states stay for the backward.
// launch: blocks 4*((B + 8*tiles - 1)/(8*tiles)), block 384, shared 8192*tiles
// fuses: cfc_backbone_forward, cfc_gates_forward
// pre [W, B, 128] = x W_b (upper half); w_cfc_backbone [256, 128], its lower half is used; b_cfc_backbone [128];
// w_cfc_gates [128, 512]; b_cfc_gates [512]; gap [W, B]; u [W, B, 128]; gates [W, B, 512]: f, g, blend, the fourth part
// is left; states [W+1, B, 128]: h before each snapshot, zero at first; h [T+1, B, 128]: the last T + 1 of them.
// tiles: 1 to 16 tiles of eight rows a cluster.
extern "C" __global__ void __cluster_dims__(4, 1, 1) __launch_bounds__(384, 1) cfc_sequence_forward(
    const float* __restrict__ pre, const float* __restrict__ w_cfc_backbone, const float* __restrict__ b_cfc_backbone,
    const float* __restrict__ w_cfc_gates, const float* __restrict__ b_cfc_gates, const float* __restrict__ gap,
    float* __restrict__ u, float* __restrict__ gates, float* __restrict__ states, float* __restrict__ h, int W, int T,
    int B, int tiles) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    sequence_forward<true>(
        {pre, w_cfc_backbone, b_cfc_backbone, w_cfc_gates, b_cfc_gates, gap, u, gates, states, h, W, T, B}, tiles);
#endif
}

// cfc_sequence_encode: the same without a backward behind it: h alone.
// launch: blocks 4*((B + 8*tiles - 1)/(8*tiles)), block 384, shared 8192*tiles
// fuses: cfc_backbone_forward, cfc_gates_forward
extern "C" __global__ void __cluster_dims__(4, 1, 1) __launch_bounds__(384, 1) cfc_sequence_encode(
    const float* __restrict__ pre, const float* __restrict__ w_cfc_backbone, const float* __restrict__ b_cfc_backbone,
    const float* __restrict__ w_cfc_gates, const float* __restrict__ b_cfc_gates, const float* __restrict__ gap,
    float* __restrict__ h, int W, int T, int B, int tiles) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    sequence_forward<false>(
        {pre, w_cfc_backbone, b_cfc_backbone, w_cfc_gates, b_cfc_gates, gap, nullptr, nullptr, nullptr, h, W, T, B}, tiles);
#endif
}
