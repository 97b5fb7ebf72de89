// The CfC recurrence forward by single warps (cfc_sequence.cuh), and what its other form shares with it: arguments,
// nonlinearities.
#pragma once
#include "cuda_only/cfc_sequence.cuh"

struct CfcForward {
    const float *pre, *w_backbone, *b_backbone, *w_gates, *b_gates, *gap;
    float *u, *gates, *states, *h;
    int W, T, B;
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// tanh and sigmoid to 2e-7 absolutely, in a quarter of the instructions of lanes_tanh: what goes on is rounded to halves.
// Of infinite arguments the limits; NaN stays NaN.
static __device__ __forceinline__ float quick_tanh(float x) {
    return fmaf(-2.0f, lanes_reciprocal(1.0f + lanes_exp2(2.0f * LANES_LOG2_E * x)), 1.0f);
}

static __device__ __forceinline__ float quick_sigmoid(float x) {
    return lanes_reciprocal(1.0f + lanes_exp2(-LANES_LOG2_E * x));
}

template <bool KEEP, int ROWS>
struct CfcForwardWarp {
    const CfcForward& p;
    const CfcLane<ROWS> lane;
    CfcWeights<1, 8> backbone;
    CfcWeights<4, 8> gate;  // f and g of the lane's first unit, rate and offset of it; the same of the second
    float b_backbone[2], b_gate[2][4];
    float2 next_pre[ROWS];  // of the next snapshot and tile: loaded ahead of their use
    float next_gap[ROWS];

    __device__ __forceinline__ CfcForwardWarp(const CfcForward& p, int tiles) : p(p), lane(tiles, p.B) {
        const int first = 8 * lane.t;
#pragma unroll
        for (int s = 0; s < 8; ++s) {
            float v[2][4];
            const int input = HIDDEN_DIM + first + backbone.input(s);
            read_inputs(p.w_backbone + input * HIDDEN_DIM + lane.unit, HIDDEN_DIM, v);
            backbone.set(0, s, v[0], v[1]);
            float gates[4][2][4];
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const float* w = p.w_gates + (first + gate.input(s)) * CFC_GATES + k * HIDDEN_DIM + lane.unit;
                read_inputs(w, CFC_GATES, gates[k]);
            }
#pragma unroll
            for (int unit = 0; unit < 2; ++unit) {
                gate.set(2 * unit, s, gates[0][unit], gates[1][unit]);
                gate.set(2 * unit + 1, s, gates[2][unit], gates[3][unit]);
            }
        }
#pragma unroll
        for (int unit = 0; unit < 2; ++unit) {
            b_backbone[unit] = p.b_backbone[lane.unit + unit];
#pragma unroll
            for (int k = 0; k < 4; ++k) b_gate[unit][k] = p.b_gates[k * HIDDEN_DIM + lane.unit + unit];
        }
        fetch_pre(0, 0);
        fetch_gap(0, 0);
    }

    // Weights of four inputs, rows `width` apart, for the lane's two units.
    static __device__ __forceinline__ void read_inputs(const float* w, int width, float (&v)[2][4]) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const float2 pair = read_pair(w + k * width, true);
            v[0][k] = pair.x, v[1][k] = pair.y;
        }
    }

    __device__ __forceinline__ void fetch_pre(int w, int i) {
#pragma unroll
        for (int n = 0; n < ROWS; ++n) {
            next_pre[n] = read_pair(p.pre + lane.at(w, i, n, HIDDEN_DIM), w < p.W && lane.inside(i, n));
        }
    }

    __device__ __forceinline__ void fetch_gap(int w, int i) {
#pragma unroll
        for (int n = 0; n < ROWS; ++n) {
            next_gap[n] = w < p.W && lane.inside(i, n) ? p.gap[(long long)w * p.B + lane.row(i, n)] : 0.0f;
        }
    }

    // u of snapshot w, tile i.
    __device__ __forceinline__ void do_backbone(int w, int i, const unsigned int* h_tile, unsigned int* u_tile) {
        float2 pre[ROWS];
#pragma unroll
        for (int n = 0; n < ROWS; ++n) pre[n] = next_pre[n];
        const bool more = i + 1 < lane.count();
        fetch_pre(more ? w : w + 1, more ? i + 1 : 0);
        float v[1][4] = {};
        if (w > 0) backbone.template times<4>(h_tile + lane.read, v);
#pragma unroll
        for (int n = 0; n < ROWS; ++n) {
            const float a = CFC_AMPLITUDE * quick_tanh(CFC_SLOPE * (pre[n].x + v[0][n] + b_backbone[0]));
            const float b = CFC_AMPLITUDE * quick_tanh(CFC_SLOPE * (pre[n].y + v[0][2 + n] + b_backbone[1]));
            lane.put(u_tile, 0, n, a, b);
            if (KEEP && lane.inside(i, n)) write_pair(p.u + lane.at(w, i, n, HIDDEN_DIM), a, b);
        }
    }

    // Gates and h of snapshot w, tile i.
    __device__ __forceinline__ void do_gates(int w, int i, const unsigned int* u_tile, unsigned int* h_tile) {
        float gap[ROWS];
#pragma unroll
        for (int n = 0; n < ROWS; ++n) gap[n] = next_gap[n];
        const bool more = i + 1 < lane.count();
        fetch_gap(more ? w : w + 1, more ? i + 1 : 0);
        float d[4][4];
        gate.template times<1>(u_tile + lane.read, d);
        const int behind = w - (p.W - 1 - p.T);
#pragma unroll
        for (int n = 0; n < ROWS; ++n) {
            float f[2], g[2], blend[2], next[2];
#pragma unroll
            for (int unit = 0; unit < 2; ++unit) {
                f[unit] = quick_tanh(d[2 * unit][n] + b_gate[unit][0]);
                g[unit] = quick_tanh(d[2 * unit][2 + n] + b_gate[unit][1]);
                const float rate = d[2 * unit + 1][n] + b_gate[unit][2];
                blend[unit] = quick_sigmoid(fmaf(-rate, gap[n], d[2 * unit + 1][2 + n] + b_gate[unit][3]));
                next[unit] = fmaf(f[unit] - g[unit], blend[unit], g[unit]);
            }
            lane.put(h_tile, 0, n, next[0], next[1]);
            if (!lane.inside(i, n)) continue;
            if (KEEP) {
                float* gates = p.gates + lane.at(w, i, n, CFC_GATES);
                write_pair(gates + CFC_F, f[0], f[1]);
                write_pair(gates + CFC_G, g[0], g[1]);
                write_pair(gates + CFC_RATE, blend[0], blend[1]);
                if (w == 0) write_pair(p.states + lane.at(0, i, n, HIDDEN_DIM), 0.0f, 0.0f);
                write_pair(p.states + lane.at(w + 1, i, n, HIDDEN_DIM), next[0], next[1]);
            }
            if (behind >= 0) write_pair(p.h + lane.at(behind, i, n, HIDDEN_DIM), next[0], next[1]);
        }
    }
};

template <bool KEEP, int ROWS>
static __device__ __forceinline__ void sequence_forward(const CfcForward& p, int tiles, unsigned int* memory) {
    // memory: h, then u, of each tile
    clear_tiles(memory, 2 * CFC_TILE * tiles);
    CfcForwardWarp<KEEP, ROWS> warp(p, tiles);
    for (int w = 0; w < p.W; ++w) {
        for (int i = 0; i < warp.lane.count(); ++i) {
            warp.do_backbone(w, i, memory + 2 * i * CFC_TILE, memory + (2 * i + 1) * CFC_TILE);
        }
        __syncthreads();
        for (int i = 0; i < warp.lane.count(); ++i) {
            warp.do_gates(w, i, memory + (2 * i + 1) * CFC_TILE, memory + 2 * i * CFC_TILE);
        }
        __syncthreads();
    }
}

#endif
