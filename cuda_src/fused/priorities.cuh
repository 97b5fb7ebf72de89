// New priorities of a batch and the sum tree above them, by one block.
//
// Slots of a batch never descend (rl_per_sample: strata in order, and a walk down the tree keeps the order), so rows of
// one slot, and of one subtree, stand together: the last row of a run has the last word on its leaf, the first one has the
// subtree renewed. Nodes are the bits of rl_per_tree_rebuild: left + right.
#pragma once
#include "include/reduce.cuh"
#include "replay/priority.cuh"
#include "replay/tree.cuh"

#define TREE_GROUPS 8  // groups that a warp renews side by side: one waits for memory no longer than eight

// Renews up to TREE_GROUPS groups of a band by a warp; lane j loads and adds from node j of each. A group that repeats is
// renewed to the same bits. In the band of the root the sum goes to PER_TREE_TOTAL.
static __device__ inline void renew_groups_by_warp(const unsigned int* group, float* per_tree, float* isv, int bottom,
                                                   int top, int lane) {
    const int width = 1 << (bottom - top);
    float node[TREE_GROUPS];
#pragma unroll
    for (int i = 0; i < TREE_GROUPS; ++i) {
        node[i] = lane < width ? per_tree[(1 << bottom) + (int)(group[i] * width) + lane] : 0.0f;
    }
    for (int depth = bottom - 1; depth >= top; --depth) {
        const int step = 1 << (bottom - 1 - depth), at = lane / (2 * step);  // lanes `step` apart hold the children
        const bool writes = lane % (2 * step) == 0 && at < 1 << (depth - top);
#pragma unroll
        for (int i = 0; i < TREE_GROUPS; ++i) {
            node[i] += __shfl_xor_sync(0xffffffffu, node[i], step);
            if (writes) per_tree[(1 << depth) + (int)(group[i] << (depth - top)) + at] = node[i];
        }
    }
    if (top == 0 && lane == 0) isv[ISV_PER_TREE_TOTAL] = node[0];
}

// The tree above leaves that changed: bands of TREE_BAND levels from the bottom, the groups above the batch's slots. A
// warp looks at 32 rows at once and takes the first rows of groups from them.
static __device__ inline void renew_paths_by_block(const unsigned int* sample_slot, float* per_tree, float* isv, int C,
                                                   int R) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    int depth = 0;
    while (1 << depth < C) ++depth;
    for (int bottom = depth; bottom > 0; bottom -= TREE_BAND) {
        const int top = bottom > TREE_BAND ? bottom - TREE_BAND : 0, levels = depth - top;
        for (int r0 = 32 * warp; r0 < R; r0 += 32 * warps) {
            const int r = r0 + lane;
            const unsigned int own = r < R ? sample_slot[r] >> levels : 0u;
            const bool first = r < R && (r == 0 || sample_slot[r - 1] >> levels != own);
            unsigned int left = __ballot_sync(0xffffffffu, first);
            while (left != 0u) {
                unsigned int group[TREE_GROUPS];
                int row = __ffs((int)left) - 1;
#pragma unroll
                for (int i = 0; i < TREE_GROUPS; ++i) {
                    if (left != 0u) row = __ffs((int)left) - 1;
                    group[i] = __shfl_sync(0xffffffffu, own, row);  // the last one again where there are no more
                    left &= left - 1u;
                }
                renew_groups_by_warp(group, per_tree, isv, bottom, top, lane);
            }
        }
        __syncthreads();
    }
}

// Leaves |TD|^alpha + 1e-6, the last row of a slot drawn twice wins; a TD error that is not finite leaves its leaf alone.
// Then the tree, and the largest priority into its slot. scratch [32]. Every thread of the block calls.
static __device__ inline void renew_priorities_by_block(const float* td, const unsigned int* sample_slot, float* per_tree,
                                                        float* isv, float* scratch, int C, int R) {
    const float alpha = isv[ISV_PER_ALPHA];
    float largest = 0.0f;
    for (int r = threadIdx.x; r < R; r += blockDim.x) {
        const float priority = priority_of(td[r], alpha);
        if (!is_finite(priority)) continue;
        largest = max_keep_nan(largest, priority);
        if (r + 1 == R || sample_slot[r + 1] != sample_slot[r]) per_tree[C + sample_slot[r]] = priority;
    }
    largest = block_max(largest, scratch);  // ends with a barrier: the leaves are there for all
    if (threadIdx.x == 0) isv[ISV_PER_MAX_PRIORITY] = largest_priority(largest, isv[ISV_PER_MAX_PRIORITY]);
    renew_paths_by_block(sample_slot, per_tree, isv, C, R);
}
