// New priorities of a batch and the sum tree above them, by some blocks of one launch.
//
// Slots of a batch never descend (rl_per_sample: strata in order, and a walk down the tree keeps the order), so rows of
// one slot, and of one subtree, stand together: the last row of a run has the last word on its leaf, the first one has the
// subtree renewed. Each block owns the subtree below one node at depth PRIORITY_DEPTH and the rows whose slots are in it;
// the block that finishes last renews what is above. Nodes are the bits of rl_per_tree_rebuild: left + right.
#pragma once
#include "include/last_block.cuh"
#include "include/reduce.cuh"
#include "replay/priority.cuh"
#include "replay/tree.cuh"

#define PRIORITY_BLOCKS 32  // of a launch
#define PRIORITY_DEPTH 5    // of the nodes that blocks own; where the tree is less deep, some own nothing
#define TREE_GROUPS 8       // groups that a warp renews side by side: one waits for memory no longer than eight

static_assert(PRIORITY_BLOCKS == 1 << PRIORITY_DEPTH && PRIORITY_BLOCKS == 32 && PRIORITY_DEPTH <= TREE_BAND,
              "a warp renews what is above, a lane has a block");

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
            node[i] += __shfl_xor_sync(REDUCE_FULL_WARP, node[i], step);
            if (writes) per_tree[(1 << depth) + (int)(group[i] << (depth - top)) + at] = node[i];
        }
    }
    if (top == 0 && lane == 0) isv[ISV_PER_TREE_TOTAL] = node[0];
}

// The tree above the leaves of rows first to last - 1, from depth `deep` up to depth `highest`: bands of TREE_BAND levels
// from the bottom. A warp takes TREE_GROUPS rows and renews the groups that begin among them.
static __device__ inline void renew_paths_by_block(const unsigned int* sample_slot, float* per_tree, float* isv, int deep,
                                                   int highest, int first, int last) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    for (int bottom = deep; bottom > highest; bottom -= TREE_BAND) {
        const int top = bottom - TREE_BAND > highest ? bottom - TREE_BAND : highest, levels = deep - top;
        for (int r0 = first + TREE_GROUPS * warp; r0 < last; r0 += TREE_GROUPS * warps) {
            const int r = r0 + lane;
            const bool mine = lane < TREE_GROUPS && r < last;
            const unsigned int own = mine ? sample_slot[r] >> levels : 0u;
            const bool begins = mine && (r == first || sample_slot[r - 1] >> levels != own);
            unsigned int left = __ballot_sync(REDUCE_FULL_WARP, begins), group[TREE_GROUPS];
            if (left == 0u) continue;
            int row = 0;
#pragma unroll
            for (int i = 0; i < TREE_GROUPS; ++i) {
                if (left != 0u) row = __ffs((int)left) - 1;
                group[i] = __shfl_sync(REDUCE_FULL_WARP, own, row);  // the last one again where there are no more
                left &= left - 1u;
            }
            renew_groups_by_warp(group, per_tree, isv, bottom, top, lane);
        }
        __syncthreads();
    }
}

static __device__ inline int tree_depth(int C) {
    int depth = 0;
    while (1 << depth < C) ++depth;
    return depth;
}

// What the warps of a block leave for one another.
#define PRIORITY_WARPS 8
struct PriorityShares {
    int rows[2];  // first of the block's rows, first of the next block's
    float largest[PRIORITY_WARPS], loss[PRIORITY_WARPS], gap[PRIORITY_WARPS];
};

// Rows of the slots `from` to `end` - 1 into shares->rows. Every thread of the block calls; ends with a barrier.
static __device__ inline void find_rows(const unsigned int* sample_slot, unsigned int from, unsigned int end, int R,
                                        PriorityShares* shares) {
    if (threadIdx.x < 2) shares->rows[threadIdx.x] = R;
    __syncthreads();
#pragma unroll 4
    for (int r = threadIdx.x; r < R; r += blockDim.x) {
        const unsigned int own = sample_slot[r], before = r > 0 ? sample_slot[r - 1] : 0u;
        if (own >= from && (r == 0 || before < from)) shares->rows[0] = r;  // one row alone, as slots never descend
        if (own >= end && (r == 0 || before < end)) shares->rows[1] = r;
    }
    __syncthreads();
}

// This block's rows: leaves |TD|^alpha + 1e-6 with the last row of a slot drawn twice, and the tree below the block's node.
// A TD error that is not finite leaves its leaf alone. td(r): of a row. Each warp's largest priority goes to shares.
// Every thread of the block calls; ends with a barrier.
template <class Td>
static __device__ inline void renew_own_priorities(Td td, const unsigned int* sample_slot, float* per_tree, float* isv,
                                                   PriorityShares* shares, int C, int R) {
    const int depth = tree_depth(C), highest = depth < PRIORITY_DEPTH ? depth : PRIORITY_DEPTH;
    const unsigned int block = blockIdx.x, slots = (unsigned int)(C >> highest);
    find_rows(sample_slot, block * slots, (block + 1u) * slots, R, shares);
    const int first = shares->rows[0], last = shares->rows[1];
    const float alpha = isv[ISV_PER_ALPHA];
    float largest = 0.0f;
    for (int r = first + (int)threadIdx.x; r < last; r += blockDim.x) {
        const float priority = priority_of(td(r), alpha);
        if (!is_finite(priority)) continue;
        largest = max_keep_nan(largest, priority);
        if (r + 1 == R || sample_slot[r + 1] != sample_slot[r]) per_tree[C + sample_slot[r]] = priority;
    }
    largest = warp_max(largest);
    if (threadIdx.x % 32 == 0) shares->largest[threadIdx.x / 32] = largest;
    __syncthreads();  // the leaves are there for all
    renew_paths_by_block(sample_slot, per_tree, isv, depth, highest, first, last);
}

// Largest of what the warps of a block left.
static __device__ inline float largest_of(const PriorityShares& shares) {
    float largest = 0.0f;
    for (int w = 0; w < PRIORITY_WARPS; ++w) largest = max_keep_nan(largest, shares.largest[w]);
    return largest;
}

// What is left when all blocks are done: the top of the tree. By one warp of the last block.
static __device__ inline void renew_top(float* per_tree, float* isv, int C, int lane) {
    const int depth = tree_depth(C), highest = depth < PRIORITY_DEPTH ? depth : PRIORITY_DEPTH;
    const unsigned int root[TREE_GROUPS] = {};
    if (highest > 0) renew_groups_by_warp(root, per_tree, isv, highest, 0, lane);
}

// The largest priority of all blocks into its slot; own: this lane's block's. By one warp of the last block.
static __device__ inline void publish_largest(float own, float* isv, int lane) {
    const float largest = warp_max(own);
    if (lane == 0) isv[ISV_PER_MAX_PRIORITY] = largest_priority(largest, isv[ISV_PER_MAX_PRIORITY]);
}
