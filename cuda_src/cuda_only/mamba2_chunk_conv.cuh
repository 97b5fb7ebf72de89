// The backward of a Mamba-2 block in chunks (mamba2_backward_tf32.cu): through SiLU and convolution to the in-projection and
// to the taps.
#pragma once
#include "cuda_only/mamba2_chunk_gate.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// A column's convolution backward at two snapshots; out: gradients of the in-projection there.
static __device__ __forceinline__ void convolve_back(TapSums* sums, float* out, const RowTaps& taps,
                                                     const float (&in)[MAMBA_TAPS + 1], const PairGradient& grad) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
        out[e] = 0.0f;
        sums->bias += grad.v[e];
#pragma unroll
        for (int k = 0; k < MAMBA_TAPS; ++k) {
            sums->tap[k] = fmaf(grad.v[e], in[e + k], sums->tap[k]);
            out[e] = fmaf(taps.tap[MAMBA_TAPS - 1 - k], grad.v[e + k], out[e]);
        }
    }
}

// The pair's gradients and the three behind them, which the lanes `next` and `after` hold; what lies behind the last
// pair comes from `behind`, of the first lanes. first: this lane has the first pair; second: or the second.
static __device__ __forceinline__ PairGradient pair_gradient(const float (&own)[2], const float (&behind)[2], bool first,
                                                             bool second, int next, int after) {
    PairGradient grad;
    grad.v[0] = own[0], grad.v[1] = own[1];
    grad.v[2] = warp_broadcast(first ? behind[0] : own[0], next);
    grad.v[3] = warp_broadcast(first ? behind[1] : own[1], next);
    grad.v[4] = warp_broadcast(first || second ? behind[0] : own[0], after);
    return grad;
}

// The head's channels: dx through SiLU and convolution to memory.
static __device__ __forceinline__ void x_backward(BackCarry* carry, const BackShared& row, const BackArrays& a,
                                                  const BackInputs& in, const ChunkSums& dx, const float (&slope)[2][4],
                                                  int q, int n, int head, int lane) {
    const int g = lane / 4, t = lane % 4, quad = lane & ~3;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int channel = head * MAMBA_HEAD_DIM + g + 8 * r;
        const RowTaps taps = row.weights.taps(channel);
        float own[2][2];
#pragma unroll
        for (int s = 0; s < 2; ++s) {
#pragma unroll
            for (int e = 0; e < 2; ++e) own[s][e] = dx.v[s][2 * r + e] * slope[s][r + 2 * e];
        }
#pragma unroll
        for (int s = 0; s < 2; ++s) {
            const PairGradient grad = pair_gradient(own[s], s == 0 ? own[1] : carry->ahead[r], t == 0, t == 1,
                                                    quad | ((t + 1) & 3), quad | ((t + 2) & 3));
            float inputs[MAMBA_TAPS + 1], out[2];
            read_pair_inputs(inputs, in.proj, 8 * s + 2 * t, MAMBA_XBC_COLUMN + channel);
            convolve_back(&carry->taps[r], out, taps, inputs, grad);
            const int i = 8 * s + 2 * t;
            float* to = a.grad_proj + row_at(q * CHUNK, a.B, MAMBA_PROJ) + MAMBA_XBC_COLUMN;
            if (i < n) to[i * a.B * MAMBA_PROJ + channel] = out[0];
            if (i + 1 < n) to[(i + 1) * a.B * MAMBA_PROJ + channel] = out[1];
        }
        carry->ahead[r][0] = own[0][0], carry->ahead[r][1] = own[0][1];
    }
}

// The warp's four columns of B and C: the heads' parts added, through SiLU and convolution to memory.
static __device__ __forceinline__ void bc_backward(BackCarry* carry, const BackShared& row, const BackArrays& a,
                                                   const BackInputs& in, int q, int n, int warp, int lane) {
    const int c = 4 * warp + lane % 4, pair = lane / 4, i = 2 * pair;
    const RowTaps taps = row.weights.taps(MAMBA_INNER + c);
    float inputs[MAMBA_TAPS + 1], pre[2], own[2] = {0.0f, 0.0f}, out[2];
    read_pair_inputs(inputs, in.proj, i, CHUNK_BC_COLUMN + c);
    convolve_pair(taps, inputs, pre);
#pragma unroll
    for (int e = 0; e < 2; ++e) {
#pragma unroll
        for (int head = 0; head < MAMBA_HEADS; ++head) own[e] += row.head[head].v[ChunkTile::at(i + e, c)];
        const float gate = chunk_sigmoid(pre[e]);
        own[e] *= gate * fmaf(pre[e], 1.0f - gate, 1.0f);
    }
    const PairGradient grad =
        pair_gradient(own, carry->bc_ahead, pair == 0, pair == 1, (lane + 4) & 31, (lane + 8) & 31);
    convolve_back(&carry->bc_taps, out, taps, inputs, grad);
    float* to = a.grad_proj + row_at(q * CHUNK, a.B, MAMBA_PROJ) + CHUNK_BC_COLUMN;
    if (i < n) to[i * a.B * MAMBA_PROJ + c] = out[0];
    if (i + 1 < n) to[(i + 1) * a.B * MAMBA_PROJ + c] = out[1];
    carry->bc_ahead[0] = own[0], carry->bc_ahead[1] = own[1];
}

#endif
