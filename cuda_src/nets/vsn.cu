// Variable selection: a softmax over the 56 inputs of a snapshot weighs each of them, forward and backward.
//
// Forward:  g = softmax(x W + b),  out_i = 56 g_i x_i   (factor 56: a uniform gate passes x unchanged).
// Backward: dg_i = 56 x_i dout_i,  dlogit_i = g_i (dg_i - sum_j g_j dg_j).
// Source: the softmax selection weights of Lim et al. 2021 (temporal fusion transformer), without the GRNs.
// The product x W is an operation of the device; these kernels do the rest.
// Thread mapping: one thread a token (snapshot of a row); sums run over the inputs in order.
// Edge cases: NaN in x or in a logit makes the token's whole output NaN.
#include "generated/structure.cuh"
#include "include/math.cuh"
#include "include/reduce.cuh"
#include "nets/lanes.cuh"

#define VSN_SCALE ((float)ENCODER_INPUT_DIM)

// vsn_forward: gate = softmax(logits + bias), in place of the logits; out = 56 gate x.
// launch: threads W*B, block 64
// updates: gate
// x, gate, out [W, B, 56]; bias [56].
extern "C" __global__ void vsn_forward(const float* __restrict__ x, const float* __restrict__ bias,
                                       float* __restrict__ gate, float* __restrict__ out, int W, int B) {
    const long long token = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (token >= (long long)W * B) return;
    const float* in = x + token * ENCODER_INPUT_DIM;
    float* g = gate + token * ENCODER_INPUT_DIM;
    float* y = out + token * ENCODER_INPUT_DIM;
    float top = -MATH_FLOAT_MAX;
    for (int i = 0; i < ENCODER_INPUT_DIM; ++i) top = max_keep_nan(top, g[i] + bias[i]);
    float sum = 0.0f;
    for (int i = 0; i < ENCODER_INPUT_DIM; ++i) {
        const float e = lanes_exp(g[i] + bias[i] - top);
        g[i] = e;
        sum += e;
    }
    const float scale = 1.0f / sum;
    for (int i = 0; i < ENCODER_INPUT_DIM; ++i) {
        g[i] *= scale;
        y[i] = VSN_SCALE * g[i] * in[i];
    }
}

// vsn_backward: gradient of the logits, in place of the gate; the gate's last use.
// launch: threads W*B, block 64
// updates: gate
// x, grad_out, gate [W, B, 56].
extern "C" __global__ void vsn_backward(const float* __restrict__ x, const float* __restrict__ grad_out,
                                        float* __restrict__ gate, int W, int B) {
    const long long token = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (token >= (long long)W * B) return;
    const float* in = x + token * ENCODER_INPUT_DIM;
    const float* d = grad_out + token * ENCODER_INPUT_DIM;
    float* g = gate + token * ENCODER_INPUT_DIM;
    float mean = 0.0f;
    for (int i = 0; i < ENCODER_INPUT_DIM; ++i) mean = fmaf(g[i], VSN_SCALE * in[i] * d[i], mean);
    for (int i = 0; i < ENCODER_INPUT_DIM; ++i) g[i] *= VSN_SCALE * in[i] * d[i] - mean;
}
