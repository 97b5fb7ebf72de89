// Diagnostics leave the device through a ring of ISV copies that the host drains now and then.
#include "diag/record.cuh"

// rl_loss_total: the weighted sum of the iteration's losses.
// launch: threads 1, block 1
// updates: isv
// Slots written: LOSS_TOTAL. Read: LOSS_* and their weights; a loss that does not exist in this run stays 0.
extern "C" __global__ void rl_loss_total(float* isv) {
    if (threadIdx.x == 0) loss_total_thread(isv);
}

// rl_diag_record: copy the ISV into the next slot of the diagnostic ring.
// launch: blocks 1, block 128
// updates: diag_ring, diag_head
// One block. isv [ISV_SIZE]; diag_ring [RING, ISV_SIZE]; diag_head [1] records written so far.
// The host must drain at least every RING iterations: an older record is overwritten.
extern "C" __global__ void rl_diag_record(const float* isv, float* diag_ring, unsigned int* diag_head, int RING) {
    diag_record_block(isv, diag_ring, diag_head, RING);
}
