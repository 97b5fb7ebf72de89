// New priorities of a batch.
#include "include/math.cuh"
#include "include/reduce.cuh"
#include "replay/replay.cuh"

#define PRIORITY_FLOOR 1.0e-6f     // added to every priority: a learned transition can be drawn again
#define MAX_PRIORITY_DECAY 0.999f  // an update: the largest priority forgets an outlier

// True if a later row of the batch has the same slot. No early exit: the loop stays a vector loop.
static __device__ inline bool drawn_again(const unsigned int* sample_slot, int row, int R) {
    unsigned int slot = sample_slot[row];
    int later = 0;
    for (int i = row + 1; i < R; ++i) later += sample_slot[i] == slot ? 1 : 0;
    return later != 0;
}

// rl_per_update_priority: leaf = |TD|^alpha + 1e-6, the last row of a slot drawn twice wins.
// launch: blocks 1, block 128 if R <= 512 else 1024
// updates: per_tree, isv
// One block strides over the batch. td [R] TD errors (C51 cross-entropy); sample_slot [R]; leaves of per_tree [2C].
// alpha is applied here and nowhere else. A TD error that is not finite leaves its leaf alone: the losses count it
// (slot 609), and a tree with a NaN could not be walked. PER_MAX_PRIORITY = max(largest new priority, 0.999 x before).
// Slots read: PER_ALPHA. Slot written: PER_MAX_PRIORITY.
extern "C" __global__ void rl_per_update_priority(const float* td, const unsigned int* sample_slot, float* per_tree,
                                                  float* isv, int C, int R) {
    __shared__ float scratch[32];
    float alpha = isv[ISV_PER_ALPHA], largest = 0.0f;
    for (int r = (int)threadIdx.x; r < R; r += (int)blockDim.x) {
        float priority = powf(fabsf(td[r]), alpha) + PRIORITY_FLOOR;
        if (!is_finite(priority)) continue;
        largest = priority > largest ? priority : largest;
        if (!drawn_again(sample_slot, r, R)) per_tree[C + sample_slot[r]] = priority;
    }
    largest = block_max(largest, scratch);
    if (threadIdx.x != 0) return;
    float faded = MAX_PRIORITY_DECAY * isv[ISV_PER_MAX_PRIORITY];
    isv[ISV_PER_MAX_PRIORITY] = largest > faded ? largest : faded;
}
