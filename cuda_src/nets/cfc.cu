// The closed-form continuous-time (CfC) cell between its products: one snapshot a launch, forward and backward.
//
// Source: Hasani et al. 2022, the CfC cell with a scaled-tanh backbone.
//   v = [x, h] W_b + b_b,   u = 1.7159 tanh(2/3 v)
//   f = tanh(u W_f + b_f),  g = tanh(u W_g + b_g),  blend = sigmoid(-(u W_a + b_a) gap + (u W_t + b_t))
//   h <- f blend + g (1 - blend)
// gap is the time since the row's previous snapshot (log1p of ms, scaled; 0 = none): a gap of 0 leaves the offset
// alone to blend, a large one drives the blend to 0 or 1 by the sign of the rate.
// The products are operations of the device: x W_b of all snapshots at once, then two small ones a snapshot.
// w: the snapshot of the launch. slot: where its u and gates lie (w, or 0 when nothing is kept for a backward).
// Thread mapping: one block a row, one thread a hidden unit.
// Edge cases: NaN and infinity pass through; saturated gates have gradient exactly 0.
#include "nets/cfc.cuh"

// cfc_backbone_forward: u from the two halves of the backbone product.
// launch: blocks B, block 128
// pre [W, B, 128] = x W_b (upper half); recurrent [B, 128] = h W_b (lower half); bias [128]; u [slots, B, 128].
extern "C" __global__ void cfc_backbone_forward(const float* __restrict__ pre, const float* __restrict__ recurrent,
                                                const float* __restrict__ bias, float* __restrict__ u, int B, int w,
                                                int slot) {
    const int unit = (int)threadIdx.x, i = (int)blockIdx.x * HIDDEN_DIM + unit;
    const int size = B * HIDDEN_DIM;
    const float v = pre[(long long)w * size + i] + recurrent[i] + bias[unit];
    u[(long long)slot * size + i] = CFC_AMPLITUDE * lanes_tanh(CFC_SLOPE * v);
}

// cfc_gates_forward: the gates from their product, and the new h.
// launch: blocks B, block 128
// updates: gates
// gates [slots, B, 512]: u W of the four gates; becomes f, g, blend (the fourth part is left). bias [512];
// gap [W, B]; states [W+1, B, 128]: states[w] is h before snapshot w (zeroed here at w = 0), states[w+1] after it;
// h [T+1, B, 128]: the last T + 1 of them.
extern "C" __global__ void cfc_gates_forward(const float* __restrict__ bias, const float* __restrict__ gap,
                                             float* __restrict__ gates, float* __restrict__ states,
                                             float* __restrict__ h, int W, int T, int B, int w, int slot) {
    const int b = (int)blockIdx.x, unit = (int)threadIdx.x, i = b * HIDDEN_DIM + unit;
    const int size = B * HIDDEN_DIM;
    float* gate = gates + ((long long)slot * B + b) * CFC_GATES + unit;
    const float f = lanes_tanh(gate[CFC_F] + bias[CFC_F + unit]);
    const float g = lanes_tanh(gate[CFC_G] + bias[CFC_G + unit]);
    const float rate = gate[CFC_RATE] + bias[CFC_RATE + unit], offset = gate[CFC_OFFSET] + bias[CFC_OFFSET + unit];
    const float blend = lanes_sigmoid(fmaf(-rate, gap[(long long)w * B + b], offset));
    const float next = fmaf(f - g, blend, g);
    gate[CFC_F] = f;
    gate[CFC_G] = g;
    gate[CFC_RATE] = blend;
    if (w == 0) states[i] = 0.0f;
    states[(long long)(w + 1) * size + i] = next;
    const int t = w - (W - 1 - T);
    if (t >= 0) h[(long long)t * size + i] = next;
}

// cfc_gates_backward: from the gradient of h after snapshot w to the gradients before the gates' nonlinearities.
// launch: blocks B, block 128
// updates: gates
// carry [B, 128]: gradient of h through the next snapshot; grad_h [T+1, B, 128]: from the heads, slices 0..T-1 are
// read. gates [W, B, 512]: f, g, blend; becomes the gradient of the gate product, its four parts.
extern "C" __global__ void cfc_gates_backward(const float* __restrict__ grad_h, const float* __restrict__ carry,
                                              const float* __restrict__ gap, float* __restrict__ gates, int W, int T,
                                              int B, int w) {
    const int b = (int)blockIdx.x, unit = (int)threadIdx.x, i = b * HIDDEN_DIM + unit;
    const int size = B * HIDDEN_DIM;
    const int t = w - (W - 1 - T);
    float* gate = gates + ((long long)w * B + b) * CFC_GATES + unit;
    const float f = gate[CFC_F], g = gate[CFC_G], blend = gate[CFC_RATE];
    const float d = t >= 0 ? carry[i] + grad_h[(long long)t * size + i] : carry[i];
    const float d_offset = d * (f - g) * sigmoid_slope(blend);
    gate[CFC_F] = d * blend * tanh_slope(f);
    gate[CFC_G] = d * (1.0f - blend) * tanh_slope(g);
    gate[CFC_RATE] = -gap[(long long)w * B + b] * d_offset;
    gate[CFC_OFFSET] = d_offset;
}

// cfc_backbone_backward: through the scaled tanh, in place: grad[w] *= 2/3 1.7159 (1 - (u / 1.7159)^2).
// launch: blocks B, block 128
// updates: grad
// grad, u [W, B, 128].
extern "C" __global__ void cfc_backbone_backward(const float* __restrict__ u, float* __restrict__ grad, int B, int w) {
    const long long at = ((long long)w * B + blockIdx.x) * HIDDEN_DIM + threadIdx.x;
    grad[at] *= CFC_SLOPE * CFC_AMPLITUDE * tanh_slope(u[at] / CFC_AMPLITUDE);
}
