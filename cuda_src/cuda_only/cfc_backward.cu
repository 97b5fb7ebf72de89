// The CfC cell backward in time over all snapshots in one launch (formulas: nets/cfc.cu).
//
// Thread mapping: cfc_sequence.cuh. The gradient warps (four, a pair a tile, a warp for 16 of the block's units) hold
// the gradient of h. A snapshot of a tile, from the last that carries gradient down to the first:
//   1. gradient warps: gradients of the four gates of their units, into the block's own tile and to device memory;
//   2. product warps (eight, 16 units of u each): the share that this block's 128 gate columns have in the gradient of
//      u, sent to the block that owns the units;
//   3. gradient warps: add the four shares in the order of the blocks, go through the backbone's tanh, send the result
//      to all four blocks, and store it;
//   4. gradient warps: wait for all 128 units, multiply by their rows of the recurrent weights: the gradient of h one
//      snapshot before.
// Operands are TF32, rounded once by their sender; shares, and everything stored, are float32.
#include "cuda_only/cfc_sequence.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

struct CfcBackward {
    const float *grad_h, *gap, *u, *w_backbone, *w_gates;
    float *gates, *pre;
    int W, T, B;
    float* tiles;  // of gate gradients, shares, gradients before the tanh, for each tile of the cluster
    unsigned long long *gates_ready, *shares_ready, *pre_ready;  // a barrier a tile

    __device__ __forceinline__ float* gates_tile(int i) const { return tiles + 3 * i * CFC_TILE; }
    __device__ __forceinline__ float* shares(int i) const { return tiles + (3 * i + 1) * CFC_TILE; }
    __device__ __forceinline__ float* pre_tile(int i) const { return tiles + (3 * i + 2) * CFC_TILE; }
};

// What a gradient warp reads of a snapshot ahead of its use: units 2 g and 2 g + 1 of rows 2 t and 2 t + 1.
struct CfcKept {
    float2 f[2], g[2], blend[2], grad[2];
    float gap[2];
};

// Gradients before the gates' nonlinearities, from the gradient d of h after the snapshot.
static __device__ __forceinline__ void gate_gradients(float d, float f, float g, float blend, float gap, float* out) {
    const float d_offset = d * (f - g) * sigmoid_slope(blend);
    out[0] = d * blend * tanh_slope(f);
    out[1] = d * (1.0f - blend) * tanh_slope(g);
    out[2] = -gap * d_offset;
    out[3] = d_offset;
}

// The gradient warps: of the half 0 or 1 of the block's units, tiles stream, stream + 2, ...
struct CfcGradientWarp {
    const CfcBackward& p;
    const CfcCluster& c;
    const int half, stream, g, t, unit;
    CfcWeights weights;

    __device__ __forceinline__ CfcGradientWarp(const CfcBackward& p, const CfcCluster& c, int half, int stream)
        : p(p), c(c), half(half), stream(stream), g((threadIdx.x & 31) >> 2), t(threadIdx.x & 3),
          unit(c.rank * CFC_OWN + half * 16 + 2 * g) {
        weights.load(p.w_backbone + (HIDDEN_DIM + unit) * HIDDEN_DIM + 4 * t, 1, HIDDEN_DIM, 16, 32);
    }

    __device__ __forceinline__ bool arms() const { return half == 0 && (threadIdx.x & 31) == 0; }
    __device__ __forceinline__ int row(int i, int n) const { return c.first_row + i * CFC_ROWS + 2 * t + n; }
    __device__ __forceinline__ long long token(int w, int i, int n) const { return (long long)w * p.B + row(i, n); }
    __device__ __forceinline__ bool inside(int w, int i, int n) const { return w >= 0 && row(i, n) < p.B; }

    __device__ __forceinline__ void fetch(CfcKept& kept, int w, int i) const {
        const int behind = w - (p.W - 1 - p.T);
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            const bool in = inside(w, i, n);
            const float* gate = p.gates + token(w, i, n) * CFC_GATES + unit;
            kept.f[n] = read_pair(gate + CFC_F, in);
            kept.g[n] = read_pair(gate + CFC_G, in);
            kept.blend[n] = read_pair(gate + CFC_RATE, in);
            kept.grad[n] = read_pair(p.grad_h + token(behind, i, n) * HIDDEN_DIM + unit, in && behind >= 0);
            kept.gap[n] = in ? p.gap[token(w, i, n)] : 0.0f;
        }
    }

    // 4. (of the snapshot behind) and 1. for one tile.
    __device__ __forceinline__ void gates(const CfcKept& kept, int w, int i) const {
        float carry[4] = {};
        if (w < p.W - 2) {
            wait_tile(p.pre_ready + i, p.W - 3 - w, arms());
            weights.times(p.pre_tile(i), carry);
        }
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            float a[4], b[4];
            gate_gradients(carry[n] + kept.grad[n].x, kept.f[n].x, kept.g[n].x, kept.blend[n].x, kept.gap[n], a);
            gate_gradients(carry[2 + n] + kept.grad[n].y, kept.f[n].y, kept.g[n].y, kept.blend[n].y, kept.gap[n], b);
#pragma unroll
            for (int gate = 0; gate < 4; ++gate) {
                float* to = p.gates_tile(i) + tile_place(2 * gate + half, g >> 1, 2 * t + n) + 2 * (g & 1);
                *(uint2*)to = make_uint2(to_tf32(a[gate]), to_tf32(b[gate]));
            }
            if (!inside(w, i, n)) continue;
#pragma unroll
            for (int gate = 0; gate < 4; ++gate) {
                *(float2*)(p.gates + token(w, i, n) * CFC_GATES + gate * HIDDEN_DIM + unit) = make_float2(a[gate], b[gate]);
            }
        }
        __syncwarp();
        if ((threadIdx.x & 31) == 0) barrier_arrive(p.gates_ready + i);
    }

    // 3. for one tile. u: of the snapshot, rows 2 t and 2 t + 1.
    __device__ __forceinline__ void backbone(const float2* u, int w, int i) const {
        wait_tile(p.shares_ready + i, p.W - 2 - w, arms());
        const float* from = p.shares(i) + half * CFC_GROUP + 4 * (threadIdx.x & 31);
        float4 sum = *(const float4*)from;
#pragma unroll
        for (int r = 1; r < CFC_BLOCKS; ++r) {
            const float4 share = *(const float4*)(from + 2 * r * CFC_GROUP);
            sum.x += share.x, sum.y += share.y, sum.z += share.z, sum.w += share.w;
        }
        const float first[2] = {sum.x, sum.y}, second[2] = {sum.z, sum.w};
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            const float a = first[n] * (CFC_SLOPE * CFC_AMPLITUDE * tanh_slope(u[n].x / CFC_AMPLITUDE));
            const float b = second[n] * (CFC_SLOPE * CFC_AMPLITUDE * tanh_slope(u[n].y / CFC_AMPLITUDE));
            if (w > 0) c.broadcast(p.pre_tile(i) + tile_place(unit / 16, g >> 1, 2 * t + n) + 2 * (g & 1), p.pre_ready + i, a, b);
            if (inside(w, i, n)) *(float2*)(p.pre + token(w, i, n) * HIDDEN_DIM + unit) = make_float2(a, b);
        }
    }

    __device__ __forceinline__ void run() const {
        CfcKept next;
        float2 next_u[2];
        auto fetch_u = [&](int w, int i) {
#pragma unroll
            for (int n = 0; n < 2; ++n) next_u[n] = read_pair(p.u + token(w, i, n) * HIDDEN_DIM + unit, inside(w, i, n));
        };
        if (stream >= c.count) return;
        fetch(next, p.W - 2, stream);
        fetch_u(p.W - 2, stream);
        for (int w = p.W - 2; w >= 0; --w) {
            for (int i = stream; i < c.count; i += CFC_STREAMS) {
                const CfcKept kept = next;
                const bool more = i + CFC_STREAMS < c.count;
                fetch(next, more ? w : w - 1, more ? i + CFC_STREAMS : stream);
                gates(kept, w, i);
            }
            for (int i = stream; i < c.count; i += CFC_STREAMS) {
                const float2 u[2] = {next_u[0], next_u[1]};
                const bool more = i + CFC_STREAMS < c.count;
                fetch_u(more ? w : w - 1, more ? i + CFC_STREAMS : stream);
                backbone(u, w, i);
            }
        }
    }
};

// 2.: units [16 warp, 16 warp + 16) of u, from the block's own gate columns; block warp / 2 owns them.
static __device__ __forceinline__ void product_warp(const CfcBackward& p, const CfcCluster& c, int warp) {
    const int lane = threadIdx.x & 31, unit = 16 * warp + 2 * (lane >> 2);
    CfcWeights weights;
    weights.load(p.w_gates + unit * CFC_GATES + c.rank * CFC_OWN + 4 * (lane & 3), 1, CFC_GATES, 16, HIDDEN_DIM);
    cluster_wait();
    const unsigned int owner = cluster_window(p.tiles, warp / 2);
    for (int step = 0; step < p.W - 1; ++step) {
        for (int i = 0; i < c.count; ++i) {
            barrier_wait(p.gates_ready + i, step & 1);
            float share[4];
            weights.times(p.gates_tile(i), share);
            const float* to = p.shares(i) + (2 * c.rank + (warp & 1)) * CFC_GROUP + 4 * lane;
            send(shared_address(to) + owner, shared_address(p.shares_ready + i) + owner, share);
        }
    }
}

static __device__ __forceinline__ void sequence_backward(CfcBackward p, int tiles) {
    extern __shared__ __align__(16) float memory[];
    __shared__ unsigned long long ready[3][CFC_TILES];
    p.tiles = memory, p.gates_ready = ready[0], p.shares_ready = ready[1], p.pre_ready = ready[2];
    if (threadIdx.x < 3 * CFC_TILES) {
        const bool own = threadIdx.x < CFC_TILES;  // both gradient warps of a tile arrive; the others count messages
        unsigned long long* barrier = ready[0] + threadIdx.x;
        barrier_init(barrier, own ? 2 : 1);
        if (!own) barrier_expect(barrier, CFC_TILE_BYTES);
        barrier_publish();
    }
    cluster_arrive();  // the roles wait for it, behind the loading of their weights
    const CfcCluster c(memory, tiles, p.B);
    const int warp = threadIdx.x / 32, other = warp - CFC_WIDE_WARPS;
    if (other < 0) {
        product_warp(p, c, warp);
    } else {
        const CfcGradientWarp role(p, c, other & 1, other >> 1);
        cluster_wait();
        role.run();
    }
}

#endif

// cfc_sequence_backward: all snapshots that carry gradient, from the last to the first.
// launch: blocks 4*((B + 8*tiles - 1)/(8*tiles)), block 384, shared 12288*tiles
// updates: gates
// fuses: cfc_gates_backward, cfc_backbone_backward
// grad_h [T+1, B, 128]: from the heads, slices 0..T-1 are read; gap [W, B]; u [W, B, 128]; w_cfc_backbone [256, 128],
// its lower half is used; w_cfc_gates [128, 512]; gates [W, B, 512]: f, g, blend; becomes the gradient of the gate
// product, its four parts; pre [W, B, 128]: the gradient before the backbone's tanh. Of gates and pre snapshots
// 0..W-2 are written. tiles: 1 to 16 tiles of eight rows a cluster.
extern "C" __global__ void __cluster_dims__(4, 1, 1) __launch_bounds__(384, 1) cfc_sequence_backward(
    const float* __restrict__ grad_h, const float* __restrict__ gap, const float* __restrict__ u,
    const float* __restrict__ w_cfc_backbone, const float* __restrict__ w_cfc_gates, float* __restrict__ gates,
    float* __restrict__ pre, int W, int T, int B, int tiles) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    sequence_backward({grad_h, gap, u, w_cfc_backbone, w_cfc_gates, gates, pre, W, T, B}, tiles);
#endif
}
