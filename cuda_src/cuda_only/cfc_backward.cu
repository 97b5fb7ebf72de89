// The CfC cell backward in time over all snapshots in one launch (formulas: nets/cfc.cu).
//
// Thread mapping: cfc_sequence.cuh; the gradient d of h after a snapshot stays with the warp that owns the units. A
// snapshot, from the last that carries gradient down to the first, is two products with a barrier behind each operand:
//   1. gradients of the four gates, from d; they are stored, and go into a tile of 512 inputs;
//   2. times the gates' weights: the gradient of u; through the backbone's tanh; stored, and into a tile of 128 inputs;
//   3. times the recurrent weights: d of the snapshot before, to which the heads' gradient is added.
// Gradients become halves after scaling by a power of two, one for each row and snapshot, that takes the largest of |d|
// of the snapshot behind and of the heads' gradient of this one to 1/8 .. 1/4. So a step may grow d by 2^18 before a
// half overflows (to infinity, which the update then refuses), and what is lost at the small end is below 2^-21 of the
// largest. A scale is exact, and taken out of the sums again. NaN and infinity pass through.
#include "cuda_only/cfc_sequence.cuh"

#define CFC_GATE_TILE (4 * CFC_TILE)             // words of a tile of 512 inputs
#define CFC_WARPS (CFC_THREADS / 32)
#define CFC_LARGEST (CFC_COLUMNS * CFC_WARPS)    // largest of each column by each warp
#define CFC_BACK_WORDS (CFC_GATE_TILE + CFC_TILE + 2 * CFC_LARGEST)  // of a tile

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

struct CfcBackward {
    const float *grad_h, *gap, *u, *w_backbone, *w_gates;
    float *gates, *pre;
    int W, T, B;
};

// A power of two and its reciprocal.
struct CfcScale {
    float up, down;
};

// Of the largest's exponent; one that is 0, denormal, infinite or NaN is treated as the nearest that is none of these.
static __device__ __forceinline__ CfcScale scale_of(unsigned int largest) {
    int exponent = (int)(largest >> 23);
    exponent = exponent < 1 ? 1 : (exponent > 250 ? 250 : exponent);
    return {__uint_as_float((unsigned int)(251 - exponent) << 23), __uint_as_float((unsigned int)(exponent + 3) << 23)};
}

// Bits of |a|: they order as the numbers do, NaN above all.
static __device__ __forceinline__ unsigned int magnitude(float a) { return __float_as_uint(a) & 0x7FFFFFFFu; }

static __device__ __forceinline__ unsigned int larger(unsigned int a, unsigned int b) { return a > b ? a : b; }

static __device__ __forceinline__ unsigned int largest_of(float2 v) { return larger(magnitude(v.x), magnitude(v.y)); }

// Gradients before the gates' nonlinearities, from the gradient d of h after the snapshot.
static __device__ __forceinline__ void gate_gradients(float d, float f, float g, float blend, float gap, float* out) {
    const float d_offset = d * (f - g) * sigmoid_slope(blend);
    out[0] = d * blend * tanh_slope(f);
    out[1] = d * (1.0f - blend) * tanh_slope(g);
    out[2] = -gap * d_offset;
    out[3] = d_offset;
}

// du / dv of the scaled tanh as a function of u: 2/3 1.7159 (1 - (u / 1.7159)^2).
static __device__ __forceinline__ float backbone_slope(float u) {
    return fmaf(-u * (CFC_SLOPE / CFC_AMPLITUDE), u, CFC_SLOPE * CFC_AMPLITUDE);
}

// What step 1 reads of a snapshot, ahead of its use: the lane's two units of its rows. before: grad one earlier.
template <int ROWS>
struct CfcKept {
    float2 f[ROWS], g[ROWS], blend[ROWS], grad[ROWS], before[ROWS];
    float gap[ROWS];
};

template <int ROWS>
struct CfcBackwardWarp {
    const CfcBackward& p;
    const CfcLane<ROWS> lane;
    unsigned int* const memory;
    CfcWeights<1, 32> gate;
    CfcWeights<1, 8> backbone;
    CfcKept<ROWS> next;
    float2 next_u[ROWS];

    __device__ __forceinline__ CfcBackwardWarp(const CfcBackward& p, int tiles, unsigned int* memory)
        : p(p), lane(tiles, p.B), memory(memory) {
        read_rows(gate, p.w_gates + lane.unit * CFC_GATES + 8 * lane.t, CFC_GATES);
        read_rows(backbone, p.w_backbone + (HIDDEN_DIM + lane.unit) * HIDDEN_DIM + 8 * lane.t, HIDDEN_DIM);
    }

    // Rows of the lane's two units, `width` floats long: units are outputs here, inputs are neighbours.
    template <int STEPS>
    static __device__ __forceinline__ void read_rows(CfcWeights<1, STEPS>& weights, const float* w, int width) {
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            const float4 a = *(const float4*)(w + weights.input(s)), b = *(const float4*)(w + width + weights.input(s));
            weights.set(0, s, {a.x, a.y, a.z, a.w}, {b.x, b.y, b.z, b.w});
        }
    }

    __device__ __forceinline__ unsigned int* gate_tile(int i) const { return memory + i * CFC_BACK_WORDS; }
    __device__ __forceinline__ unsigned int* pre_tile(int i) const { return gate_tile(i) + CFC_GATE_TILE; }
    __device__ __forceinline__ unsigned int* largest(int w, int i) const {
        return pre_tile(i) + CFC_TILE + (w & 1) * CFC_LARGEST;
    }

    __device__ __forceinline__ float2 heads(int w, int i, int n) const {
        const int behind = w - (p.W - 1 - p.T);
        return read_pair(p.grad_h + lane.at(behind, i, n, HIDDEN_DIM), behind >= 0 && w >= 0 && lane.inside(i, n));
    }

    __device__ __forceinline__ void fetch(int w, int i, int n) {
        const bool in = w >= 0 && lane.inside(i, n);
        const float* gates = p.gates + lane.at(w, i, n, CFC_GATES);
        next.f[n] = read_pair(gates + CFC_F, in);
        next.g[n] = read_pair(gates + CFC_G, in);
        next.blend[n] = read_pair(gates + CFC_RATE, in);
        next.grad[n] = heads(w, i, n);
        next.before[n] = heads(w - 1, i, n);
        next.gap[n] = in ? p.gap[(long long)w * p.B + lane.row(i, n)] : 0.0f;
    }

    __device__ __forceinline__ void fetch_u(int w, int i) {
#pragma unroll
        for (int n = 0; n < ROWS; ++n) {
            next_u[n] = read_pair(p.u + lane.at(w, i, n, HIDDEN_DIM), w >= 0 && lane.inside(i, n));
        }
    }

    // Leaves the warp's largest for the scale of snapshot w: a lane gives those of its own rows.
    __device__ __forceinline__ void leave_largest(int w, int i, const unsigned int (&own)[ROWS]) const {
#pragma unroll
        for (int n = 0; n < ROWS; ++n) {
            unsigned int most = own[n];
#pragma unroll
            for (int other = 4; other < 32; other *= 2) most = larger(most, __shfl_xor_sync(~0u, most, other));
            if (lane.g == 0) largest(w, i)[(2 * lane.t + n) * CFC_WARPS + lane.warp] = most;
        }
    }

    __device__ __forceinline__ CfcScale scale(int w, int i, int n) const {
        const uint4* row = (const uint4*)(largest(w, i) + (2 * lane.t + n) * CFC_WARPS);
        const uint4 a = row[0], b = row[1];
        return scale_of(larger(larger(larger(a.x, a.y), larger(a.z, a.w)), larger(larger(b.x, b.y), larger(b.z, b.w))));
    }

    // 3. of the snapshot behind, then 1., for tile i.
    __device__ __forceinline__ void do_gates(int w, int i) {
        const bool more = i + 1 < lane.count();
        float carry[1][4] = {};
        if (w < p.W - 2) backbone.template times<4>(pre_tile(i) + lane.read, carry);
        unsigned int most[ROWS];
#pragma unroll
        for (int n = 0; n < ROWS; ++n) {
            const CfcScale by = scale(w, i, n);
            const float2 f = next.f[n], g = next.g[n], blend = next.blend[n];
            const float d0 = carry[0][n] * by.down + next.grad[n].x, d1 = carry[0][2 + n] * by.down + next.grad[n].y;
            most[n] = larger(larger(magnitude(d0), magnitude(d1)), largest_of(next.before[n]));
            float a[4], b[4];
            gate_gradients(d0, f.x, g.x, blend.x, next.gap[n], a);
            gate_gradients(d1, f.y, g.y, blend.y, next.gap[n], b);
            fetch(more ? w : w - 1, more ? i + 1 : 0, n);
#pragma unroll
            for (int k = 0; k < 4; ++k) lane.put(gate_tile(i), k * (HIDDEN_DIM / 32), n, a[k] * by.up, b[k] * by.up);
            if (!lane.inside(i, n)) continue;
#pragma unroll
            for (int k = 0; k < 4; ++k) write_pair(p.gates + lane.at(w, i, n, CFC_GATES) + k * HIDDEN_DIM, a[k], b[k]);
        }
        leave_largest(w - 1, i, most);
    }

    // 2. for tile i. The operand of 3. is scaled for the snapshot before.
    __device__ __forceinline__ void do_backbone(int w, int i) {
        float2 u[ROWS];
#pragma unroll
        for (int n = 0; n < ROWS; ++n) u[n] = next_u[n];
        const bool more = i + 1 < lane.count();
        fetch_u(more ? w : w - 1, more ? i + 1 : 0);
        float d[1][4];
        gate.template times<4>(gate_tile(i) + lane.read, d);
#pragma unroll
        for (int n = 0; n < ROWS; ++n) {
            const float down = scale(w, i, n).down, up = scale(w - 1, i, n).up;
            const float a = d[0][n] * down * backbone_slope(u[n].x);
            const float b = d[0][2 + n] * down * backbone_slope(u[n].y);
            lane.put(pre_tile(i), 0, n, a * up, b * up);
            if (lane.inside(i, n)) write_pair(p.pre + lane.at(w, i, n, HIDDEN_DIM), a, b);
        }
    }

    __device__ __forceinline__ void run() {
        const int last = p.W - 2;
        for (int i = 0; i < lane.count(); ++i) {
            unsigned int most[ROWS];
#pragma unroll
            for (int n = 0; n < ROWS; ++n) most[n] = largest_of(heads(last, i, n));
            leave_largest(last, i, most);
        }
#pragma unroll
        for (int n = 0; n < ROWS; ++n) fetch(last, 0, n);
        fetch_u(last, 0);
        __syncthreads();
        for (int w = last; w >= 0; --w) {
            for (int i = 0; i < lane.count(); ++i) do_gates(w, i);
            __syncthreads();
            for (int i = 0; i < lane.count(); ++i) do_backbone(w, i);
            __syncthreads();
        }
    }
};

template <int ROWS>
static __device__ __forceinline__ void sequence_backward(const CfcBackward& p, int tiles) {
    extern __shared__ __align__(16) unsigned int memory[];
    clear_tiles(memory, CFC_BACK_WORDS * tiles);
    CfcBackwardWarp<ROWS>(p, tiles, memory).run();
}

#endif

// cfc_sequence_backward: all snapshots that carry gradient, from the last to the first.
// launch: blocks (B + rows*tiles - 1)/(rows*tiles), block 256, shared 10752*tiles
// chain: 1.35*W us
// updates: gates
// fuses: cfc_gates_backward, cfc_backbone_backward
// grad_h [T+1, B, 128]: from the heads, slices 0..T-1 are read; gap [W, B]; u [W, B, 128]; w_cfc_backbone [256, 128],
// its lower half is used; w_cfc_gates [128, 512]; gates [W, B, 512]: f, g, blend; becomes the gradient of the gate
// product, its four parts; pre [W, B, 128]: the gradient before the backbone's tanh. Of gates and pre snapshots
// 0..W-2 are written. rows: of a tile, 4 (then tiles = 1) or 8; tiles: of a block.
extern "C" __global__ void __launch_bounds__(256, 1) cfc_sequence_backward(
    const float* __restrict__ grad_h, const float* __restrict__ gap, const float* __restrict__ u,
    const float* __restrict__ w_cfc_backbone, const float* __restrict__ w_cfc_gates, float* __restrict__ gates,
    float* __restrict__ pre, int W, int T, int B, int rows, int tiles) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    const CfcBackward p = {grad_h, gap, u, w_cfc_backbone, w_cfc_gates, gates, pre, W, T, B};
    if (rows == 4) sequence_backward<1>(p, tiles);
    else sequence_backward<2>(p, tiles);
#endif
}
