// Forward-return distribution: 128 -> 64 ReLU -> 3 horizons x 21 buckets. The products are the device's; these
// kernels are what stands between them.
#include "generated/isv_slots.cuh"
#include "generated/structure.cuh"
#include "include/math.cuh"
#include "nets/lanes.cuh"

// rl_frd_fwd: hidden = ReLU(x W1 + b1), in place.
// launch: threads rows, block 16
// updates: frd_hidden
// One thread a row. frd_hidden [rows, width] holds x W1; b_frd1 [width]. NaN passes.
extern "C" __global__ void rl_frd_fwd(const float* b_frd1, float* frd_hidden, int rows, int width) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float* hidden = frd_hidden + (long long)row * width;
    for (int k = 0; k < width; ++k) {
        const float v = hidden[k] + b_frd1[k];
        hidden[k] = v < 0.0f ? 0.0f : v;
    }
}

// rl_frd_softmax: logits = hidden W2 + b2, in place, and their softmax per horizon.
// launch: threads rows*3, block 64
// updates: frd_logits
// One thread a (row, horizon). frd_logits [rows, 3, 21] holds hidden W2; b_frd2 [63]; frd_prob [rows, 3, 21].
extern "C" __global__ void rl_frd_softmax(const float* b_frd2, float* frd_logits, float* frd_prob, int rows) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * N_HORIZONS) return;
    const float* bias = b_frd2 + (i % N_HORIZONS) * N_BUCKETS;
    float* logits = frd_logits + (long long)i * N_BUCKETS;
    float* prob = frd_prob + (long long)i * N_BUCKETS;
    float x[N_BUCKETS], top = -MATH_FLOAT_MAX, sum = 0.0f;
    for (int k = 0; k < N_BUCKETS; ++k) x[k] = logits[k] + bias[k];
    for (int k = 0; k < N_BUCKETS; ++k) logits[k] = x[k];
    for (int k = 0; k < N_BUCKETS; ++k) top = x[k] > top ? x[k] : top;
    for (int k = 0; k < N_BUCKETS; ++k) x[k] = lanes_exp(x[k] - top);
    for (int k = 0; k < N_BUCKETS; ++k) sum += x[k];
    const float inverse = 1.0f / sum;
    for (int k = 0; k < N_BUCKETS; ++k) prob[k] = x[k] * inverse;
}

// rl_frd_softmax_ce_grad: cross-entropy of the labelled horizons of a row and the gradient of the logits.
// launch: threads rows, block 64
// One thread a row. frd_logits, frd_prob [rows, 3, 21]; frd_target [rows, 3] bucket, -1 = none; label_scale [2] of
// rl_label_count; grad_frd_logits [rows, 3, 21]; row_loss_frd [rows] mean over the row's labels; row_weight_frd
// [rows] labels of the row. The loss is LOSS_LAMBDA_AUX x mean over all labels of -log p(label); its gradient is
// LOSS_LAMBDA_AUX (p - onehot) / labels. The largest logit has probability 1 / sum of e^(x - largest), so -log p(label)
// = largest - x(label) - log(largest probability), exact however small p(label) is. A horizon without label has
// gradient zero, a row without any weight zero. Slots read: LOSS_LAMBDA_AUX.
extern "C" __global__ void rl_frd_softmax_ce_grad(const float* frd_logits, const float* frd_prob,
                                                  const signed char* frd_target, const float* label_scale,
                                                  const float* isv, float* grad_frd_logits, float* row_loss_frd,
                                                  float* row_weight_frd, int rows) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float scale = isv[ISV_LOSS_LAMBDA_AUX] * label_scale[1];
    float loss = 0.0f, labels = 0.0f;
    for (int h = 0; h < N_HORIZONS; ++h) {
        const int item = row * N_HORIZONS + h;
        const float *logits = frd_logits + (long long)item * N_BUCKETS, *prob = frd_prob + (long long)item * N_BUCKETS;
        float* grad = grad_frd_logits + (long long)item * N_BUCKETS;
        const int label = frd_target[item];
        const float labelled = label < 0 ? 0.0f : scale;
        float top = -MATH_FLOAT_MAX, most = 0.0f;
        for (int k = 0; k < N_BUCKETS; ++k) grad[k] = labelled == 0.0f ? 0.0f : labelled * prob[k];
        if (label < 0) continue;
        grad[label] = labelled * (prob[label] - 1.0f);
        for (int k = 0; k < N_BUCKETS; ++k) {
            top = logits[k] > top ? logits[k] : top;
            most = prob[k] > most ? prob[k] : most;
        }
        loss += top - logits[label] - logf(most);
        labels += 1.0f;
    }
    row_loss_frd[row] = labels > 0.0f ? loss / labels : 0.0f;
    row_weight_frd[row] = labels;
}

// rl_frd_layer2_bwd: the gradient of the hidden layer behind its ReLU, in place.
// launch: threads rows*width, block 128
// updates: grad_frd_hidden
// One thread a unit. frd_hidden [rows, width] after the ReLU; grad_frd_hidden [rows, width] holds grad_logits W2^T.
// A unit at zero passes nothing; a NaN unit passes its gradient on.
extern "C" __global__ void rl_frd_layer2_bwd(const float* frd_hidden, float* grad_frd_hidden, int rows, int width) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * width) return;
    if (frd_hidden[i] == 0.0f) grad_frd_hidden[i] = 0.0f;
}

// rl_frd_layer1_bwd: what of the gradient goes on to the encoder, in place: x FRD_LAMBDA.
// launch: threads rows*width, block 128
// updates: grad_frd_hidden
// One thread a unit; runs after the head's own gradients are taken, before the product with W1^T. So the weight
// bears on the encoder only and the head learns at any weight. Slots read: FRD_LAMBDA.
extern "C" __global__ void rl_frd_layer1_bwd(const float* isv, float* grad_frd_hidden, int rows, int width) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * width) return;
    grad_frd_hidden[i] *= isv[ISV_FRD_LAMBDA];
}
