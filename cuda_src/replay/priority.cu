// New priorities of a batch.
#include "include/reduce.cuh"
#include "replay/priority.cuh"

// True if a later row of the batch has the same slot. No early exit: the loop stays a vector loop.
static __device__ inline bool drawn_again(const unsigned int* sample_slot, int row, int R) {
    unsigned int slot = sample_slot[row];
    int later = 0;
    for (int i = row + 1; i < R; ++i) later += sample_slot[i] == slot ? 1 : 0;
    return later != 0;
}

// rl_per_leaves: leaf = |TD|^alpha + 1e-6, the last row of a slot drawn twice wins.
// launch: threads R, block 64
// updates: per_tree
// One thread a row. td [R] TD errors (C51 cross-entropy); sample_slot [R]; leaves of per_tree [2C]; new_priority [R]
// the priority, or 0 for a TD error that is not finite: it leaves its leaf alone (the losses count it, NONFINITE_COUNT, and a
// tree with a NaN could not be walked). Slot read: PER_ALPHA.
extern "C" __global__ void rl_per_leaves(const float* td, const unsigned int* sample_slot, const float* isv,
                                         float* per_tree, float* new_priority, int C, int R) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= R) return;
    float priority = priority_of(td[r], isv[ISV_PER_ALPHA]);
    bool finite = is_finite(priority);
    new_priority[r] = finite ? priority : 0.0f;
    if (finite && !drawn_again(sample_slot, r, R)) per_tree[C + sample_slot[r]] = priority;
}

// rl_per_update_priority: PER_MAX_PRIORITY = max(largest new priority, 0.999 x before).
// launch: blocks 1, block 32 if R <= 512 else 256
// updates: isv
// One block strides over the batch. new_priority [R] of real updates only: boosts of hindsight do not feed the maximum.
// Slot written: PER_MAX_PRIORITY.
extern "C" __global__ void rl_per_update_priority(const float* new_priority, float* isv, int R) {
    __shared__ float scratch[32];
    float largest = 0.0f;
    for (int r = (int)threadIdx.x; r < R; r += (int)blockDim.x) largest = max_keep_nan(largest, new_priority[r]);
    largest = block_max(largest, scratch);
    if (threadIdx.x != 0) return;
    isv[ISV_PER_MAX_PRIORITY] = largest_priority(largest, isv[ISV_PER_MAX_PRIORITY]);
}
