// Renewal of the sum tree after leaves changed: everything, the paths of given slots, or a range of slots.
// depth = log2 C. A list of bands, bottom first, makes one renewal; the band that ends at the root is always
// rl_per_tree_rebuild.
#include "generated/isv_slots.cuh"
#include "replay/replay.cuh"
#include "replay/tree.cuh"

// rl_per_tree_rebuild: all groups of a band. With top = 0 the sum is the root's and goes to PER_TREE_TOTAL.
// launch: threads groups, block 64
// updates: per_tree
// One thread a group, groups = 2^top. Slot written: PER_TREE_TOTAL (in the band of the root).
extern "C" __global__ void rl_per_tree_rebuild(float* per_tree, float* isv, int groups, int bottom, int top) {
    int g = blockIdx.x * blockDim.x + threadIdx.x;
    if (g >= groups) return;
    float sum = tree_renew_group(per_tree, g, bottom, top);
    if (top == 0) isv[ISV_PER_TREE_TOTAL] = sum;
}

// rl_per_tree_paths: the groups of a band that lie above the slots of a batch.
// launch: threads R, block 64
// updates: per_tree
// One thread a sample. Samples with a common group write the same bits to the same places. sample_slot [R].
extern "C" __global__ void rl_per_tree_paths(const unsigned int* sample_slot, float* per_tree, int depth, int bottom,
                                             int top, int R) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < R) tree_renew_group(per_tree, (int)(sample_slot[r] >> (depth - top)), bottom, top);
}

// rl_per_tree_range: the groups of a band above the slots written in this iteration (pushed and injected).
// launch: threads groups, block 64
// updates: per_tree
// One thread a group, counted from that of slot REPLAY_START, around the end of the ring; groups bounds what an
// iteration can touch and is at most 2^top, so no group has two threads.
extern "C" __global__ void rl_per_tree_range(const unsigned int* replay_state, float* per_tree, int groups, int depth,
                                             int bottom, int top) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < groups) tree_renew_written(replay_state, per_tree, i, depth, bottom, top);
}
