// Diagnostics leave the device through a ring of ISV copies that the host drains now and then.
#include "generated/isv_slots.cuh"

// rl_loss_total: the weighted sum of the iteration's losses.
// launch: threads 1, block 1
// updates: isv
// Slots written: LOSS_TOTAL. Read: LOSS_* and their weights; a loss that does not exist in this run stays 0.
extern "C" __global__ void rl_loss_total(float* isv) {
    if (threadIdx.x != 0) return;
    const float aux = isv[ISV_FRD_LAMBDA] * isv[ISV_LOSS_FRD] + isv[ISV_OUTCOME_LAMBDA] * isv[ISV_LOSS_OUTCOME];
    float total = isv[ISV_LOSS_LAMBDA_PI] * isv[ISV_LOSS_PI] + isv[ISV_LOSS_LAMBDA_V] * isv[ISV_LOSS_V];
    total += isv[ISV_LOSS_LAMBDA_Q] * (isv[ISV_LOSS_Q] + isv[ISV_LOSS_IQN]);
    total += isv[ISV_LOSS_LAMBDA_AUX] * aux + isv[ISV_LOSS_LAMBDA_BCE] * isv[ISV_LOSS_BCE];
    isv[ISV_LOSS_TOTAL] = total + isv[ISV_Q_DISTILL_LAMBDA] * isv[ISV_LOSS_DISTILL];
}

// rl_diag_record: copy the ISV into the next slot of the diagnostic ring.
// launch: blocks 1, block 128
// updates: diag_ring, diag_head
// One block. isv [ISV_SIZE]; diag_ring [RING, ISV_SIZE]; diag_head [1] records written so far.
// The host must drain at least every RING iterations: an older record is overwritten.
extern "C" __global__ void rl_diag_record(const float* isv, float* diag_ring, unsigned int* diag_head, int RING) {
    const unsigned int head = diag_head[0];
    __syncthreads();
    float* out = diag_ring + (long long)(head % (unsigned int)RING) * ISV_SIZE;
    for (int i = threadIdx.x; i < ISV_SIZE; i += blockDim.x) out[i] = isv[i];
    if (threadIdx.x == 0) diag_head[0] = head + 1u;
}
