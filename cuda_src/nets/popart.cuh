// What the kernels in popart.cu do, as functions that a fused kernel may call as well.
#pragma once
#include "generated/isv_slots.cuh"
#include "nets/policy.cuh"

#define POPART_BATCH 9  // weights of a thread that are under way together

// w[i] *= ratio for all of w [n], by a block.
static __device__ inline void popart_rescale(float* w, int n, float ratio) {
    for (int base = threadIdx.x; base < n; base += POPART_BATCH * blockDim.x) {
        float held[POPART_BATCH];
#pragma unroll
        for (int k = 0; k < POPART_BATCH; ++k) {
            const int i = base + k * blockDim.x;
            held[k] = i < n ? w[i] : 0.0f;
        }
#pragma unroll
        for (int k = 0; k < POPART_BATCH; ++k) {
            const int i = base + k * blockDim.x;
            if (i < n) w[i] = held[k] * ratio;
        }
    }
}

// rl_popart_update.
static __device__ inline void popart_update_block(const float* moments, float* isv, float* w_v, float* b_v,
                                                  float* w_v_ctx, int* nonfinite_parts, int part, int n_w, int n_b,
                                                  int n_ctx) {
    const float sum = moments[3], square = moments[4], bad = moments[5];
    const float mean = isv[ISV_POPART_MEAN], second = isv[ISV_POPART_SECOND_MOMENT], beta = isv[ISV_POPART_BETA];
    const bool usable = bad == 0.0f && is_finite(square);
    const float mean_new = usable ? ema(mean, sum, beta) : mean;
    const float second_new = usable ? ema(second, square, beta) : second;
    const float sigma = popart_sigma(mean, second), sigma_new = popart_sigma(mean_new, second_new);
    const float ratio = sigma / sigma_new;
    __syncthreads();  // every thread has read the old moments
    if (usable) {
        popart_rescale(w_v, n_w, ratio);
        popart_rescale(w_v_ctx, n_ctx, ratio);
        for (int i = threadIdx.x; i < n_b; i += blockDim.x) b_v[i] = (fmaf(sigma, b_v[i], mean) - mean_new) / sigma_new;
    }
    if (threadIdx.x == 0) {
        isv[ISV_POPART_MEAN] = mean_new;
        isv[ISV_POPART_SECOND_MOMENT] = second_new;
        nonfinite_parts[part] = (int)bad;
    }
}
