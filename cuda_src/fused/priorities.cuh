// New priorities of a batch and the sum tree above them, by one block.
//
// Slots of a batch never descend (rl_per_sample: strata in order, and a walk down the tree keeps the order), so rows of
// one slot, and of one subtree, stand together: the last row of a run has the last word on its leaf, the first one renews
// the subtree. Nodes are the bits of rl_per_tree_rebuild: left + right.
#pragma once
#include "include/reduce.cuh"
#include "replay/priority.cuh"
#include "replay/tree.cuh"

#define TREE_ROWS 8  // rows whose subtrees a warp loads before it adds up the first of them

// Whether row r is the first of its group at depth `top`, levels = depth of the leaves - top.
static __device__ inline bool first_of_group(const unsigned int* sample_slot, int r, int levels) {
    return r == 0 || sample_slot[r] >> levels != sample_slot[r - 1] >> levels;
}

// Renews one group by a warp: node is what this lane loaded, the lane-th node at depth bottom. Returns the sum (lane 0).
static __device__ inline float renew_group_by_warp(float* per_tree, float node, unsigned int group, int bottom, int top,
                                                   int lane) {
    for (int depth = bottom - 1; depth >= top; --depth) {
        const int step = 1 << (bottom - 1 - depth);  // lanes whose nodes are the children
        node += __shfl_xor_sync(0xffffffffu, node, step);
        const int at = lane / (2 * step);
        if (lane % (2 * step) == 0 && at < 1 << (depth - top)) {
            per_tree[(1 << depth) + (int)(group << (depth - top)) + at] = node;
        }
    }
    return node;
}

// The tree above leaves that changed: bands of TREE_BAND levels from the bottom, a warp a group.
static __device__ inline void renew_paths_by_block(const unsigned int* sample_slot, float* per_tree, float* isv, int C,
                                                   int R) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    int depth = 0;
    while (1 << depth < C) ++depth;
    for (int bottom = depth; bottom > 0; bottom -= TREE_BAND) {
        const int top = bottom > TREE_BAND ? bottom - TREE_BAND : 0, width = 1 << (bottom - top);
        for (int r0 = warp; r0 < R; r0 += warps * TREE_ROWS) {
            float node[TREE_ROWS];
#pragma unroll
            for (int i = 0; i < TREE_ROWS; ++i) {
                const int r = r0 + i * warps;
                if (r >= R || !first_of_group(sample_slot, r, depth - top)) continue;
                const unsigned int group = sample_slot[r] >> (depth - top);
                node[i] = lane < width ? per_tree[(1 << bottom) + (int)(group * width) + lane] : 0.0f;
            }
#pragma unroll
            for (int i = 0; i < TREE_ROWS; ++i) {
                const int r = r0 + i * warps;
                if (r >= R || !first_of_group(sample_slot, r, depth - top)) continue;
                const float sum =
                    renew_group_by_warp(per_tree, node[i], sample_slot[r] >> (depth - top), bottom, top, lane);
                if (top == 0 && lane == 0) isv[ISV_PER_TREE_TOTAL] = sum;
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
