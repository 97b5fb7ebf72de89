// Priorities of a replay batch and the tree above them in one kernel.
#include "fused/priorities.cuh"

// rl_replay_priorities: leaves of a batch from its TD errors, the tree above them, the largest priority.
// launch: blocks 1, block 256 if R <= 512 else 1024
// updates: per_tree, isv
// fuses: rl_per_leaves, rl_per_update_priority, rl_per_tree_rebuild, rl_per_tree_paths
// One block. td [R]; sample_slot [R] never descending; per_tree [2C]. Slots written: PER_MAX_PRIORITY, PER_TREE_TOTAL.
// Slot read: PER_ALPHA.
extern "C" __global__ void rl_replay_priorities(const float* td, const unsigned int* sample_slot, float* per_tree,
                                                float* isv, int C, int R) {
    __shared__ float scratch[32];
    renew_priorities_by_block(td, sample_slot, per_tree, isv, scratch, C, R);
}
