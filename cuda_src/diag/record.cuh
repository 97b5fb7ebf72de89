// What the kernels in record.cu do, as functions that a fused kernel may call as well.
#pragma once
#include "generated/isv_slots.cuh"

// rl_loss_total.
static __device__ inline void loss_total_thread(float* isv) {
    const float aux = isv[ISV_FRD_LAMBDA] * isv[ISV_LOSS_FRD] + isv[ISV_OUTCOME_LAMBDA] * isv[ISV_LOSS_OUTCOME];
    float total = isv[ISV_LOSS_LAMBDA_PI] * isv[ISV_LOSS_PI] + isv[ISV_LOSS_LAMBDA_V] * isv[ISV_LOSS_V];
    total += isv[ISV_LOSS_LAMBDA_Q] * (isv[ISV_LOSS_Q] + isv[ISV_LOSS_IQN]);
    total += isv[ISV_LOSS_LAMBDA_AUX] * aux + isv[ISV_LOSS_LAMBDA_BCE] * isv[ISV_LOSS_BCE];
    isv[ISV_LOSS_TOTAL] = total + isv[ISV_Q_DISTILL_LAMBDA] * isv[ISV_LOSS_DISTILL];
}

// rl_diag_record.
static __device__ inline void diag_record_block(const float* isv, float* diag_ring, unsigned int* diag_head, int RING) {
    const unsigned int head = diag_head[0];
    __syncthreads();
    float* out = diag_ring + (long long)(head % (unsigned int)RING) * ISV_SIZE;
    for (int i = threadIdx.x; i < ISV_SIZE; i += blockDim.x) out[i] = isv[i];
    if (threadIdx.x == 0) diag_head[0] = head + 1u;
}
