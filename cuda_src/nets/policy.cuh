// The policy of one row: logits of its position class, softmax, probability floor.
//
// pi_all holds every class's logits without bias (one product for all classes); a row uses the block of its class
// and adds the bias and a linear term in the trade context. Where the encoding knows the position (P = 1) there is one
// block, which every class uses. Sampling, the surrogate and evaluation all go through
// these functions, so that "log p" means one thing everywhere: the log of the floored mixture.
#pragma once
#include "generated/structure.cuh"
#include "include/math.cuh"

// Block of a row's position class in a head of P blocks; one block (context in the encoder) serves every class.
static __device__ inline int head_block(int position_class, int P) { return P == 1 ? 0 : position_class; }

// logits[a] = pi_all[row, class, a] + b_pi[class, a] + sum_c context[row, c] w_pi_ctx[c, class, a]
static __device__ inline void policy_logits(const float* pi_all, const float* b_pi, const float* w_pi_ctx,
                                            const float* context, long long row, int position_class, int P,
                                            float* logits) {
    const long long width = (long long)P * N_ACTIONS;
    const int block = position_class * N_ACTIONS;
    for (int a = 0; a < N_ACTIONS; ++a) {
        float v = pi_all[row * width + block + a] + b_pi[block + a];
        for (int c = 0; c < HEAD_CONTEXT_DIM; ++c) {
            v = fmaf(context[row * HEAD_CONTEXT_DIM + c], w_pi_ctx[c * width + block + a], v);
        }
        logits[a] = v;
    }
}

// soft = softmax(logits). NaN in, NaN out.
static __device__ inline void policy_softmax(const float* logits, float* soft) {
    float top = logits[0];
    for (int a = 1; a < N_ACTIONS; ++a) top = logits[a] > top ? logits[a] : top;
    float sum = 0.0f;
    for (int a = 0; a < N_ACTIONS; ++a) {
        soft[a] = expf(logits[a] - top);
        sum += soft[a];
    }
    for (int a = 0; a < N_ACTIONS; ++a) soft[a] /= sum;
}

// The probability an action is drawn with: p = p_min + (1 - 11 p_min) softmax.
static __device__ inline float policy_floored(float soft, float p_min) {
    return fmaf(1.0f - N_ACTIONS * p_min, soft, p_min);
}

// Entropy of the softmax, nats. 0 ln 0 = 0.
static __device__ inline float policy_entropy(const float* soft) {
    float h = 0.0f;
    for (int a = 0; a < N_ACTIONS; ++a) {
        if (!(soft[a] == 0.0f)) h -= soft[a] * logf(soft[a]);
    }
    return h;
}

#define POPART_SIGMA_FLOOR 1e-4f

// Standard deviation of the returns from PopArt's running moments.
static __device__ inline float popart_sigma(float mean, float second_moment) {
    const float variance = fmaf(-mean, mean, second_moment);
    return variance > POPART_SIGMA_FLOOR * POPART_SIGMA_FLOOR ? sqrtf(variance) : POPART_SIGMA_FLOOR;
}
