// Priorities of a replay batch and the tree above them in one kernel, by themselves or with what the batch's TD errors tell.
#include "fused/critic_targets.cuh"

// rl_replay_priorities: leaves of a batch from its TD errors, the tree above them, the largest priority.
// launch: blocks 32, block 256
// updates: per_tree, isv, blocks_done, priority_parts
// fuses: rl_per_leaves, rl_per_update_priority, rl_per_tree_rebuild, rl_per_tree_paths
// td [R]; sample_slot [R] never descending; per_tree [2C]; priority_parts [32, 4], of which the first of each is the
// block's largest priority. Slots written: PER_MAX_PRIORITY, PER_TREE_TOTAL. Slot read: PER_ALPHA.
extern "C" __global__ void rl_replay_priorities(const float* td, const unsigned int* sample_slot, float* per_tree,
                                                float* isv, float* priority_parts, unsigned int* blocks_done, int C,
                                                int R) {
    __shared__ PriorityShares shares;
    __shared__ bool last;
    renew_own_priorities([&](int r) { return td[r]; }, sample_slot, per_tree, isv, &shares, C, R);
    if (threadIdx.x == 0) priority_parts[PRIORITY_SUMS * blockIdx.x] = largest_of(shares);
    if (!is_last_block(blocks_done, &last)) return;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (warp == 0) renew_top(per_tree, isv, C, lane);
    else if (warp == 1) publish_largest(priority_parts[PRIORITY_SUMS * lane], isv, lane);
}

// rl_critic_priorities: what a batch's TD errors change: slots that tell of its targets, priorities, the tree above them.
// launch: blocks 32, block 256
// chain: 10 us
// updates: per_tree, isv, blocks_done, priority_parts
// fuses: rl_per_leaves, rl_per_update_priority, rl_per_tree_rebuild, rl_row_mean, rl_mean_into_slot
// fuses: rl_q_target_statistics, rl_q_bias
// c51_td_parts [groups, R], c51_block_parts [blocks, 4], row_gap [R] of rl_c51_path_update; learned = pairs of a row that
// learn; update: its number in the iteration. c51_td [R]; sample_slot [R] never descending; per_tree [2C];
// priority_parts [32, 4] (critic_targets.cuh).
// Slots written: LOSS_Q, Q_TARGET_MAX, Q_TARGET_MIN, Q_TARGET_CLIP_RATE, Q_BIAS_EMA, PER_MAX_PRIORITY, PER_TREE_TOTAL.
// Read: PER_ALPHA.
extern "C" __global__ void rl_critic_priorities(const float* c51_td_parts, const float* c51_block_parts,
                                                const float* row_gap, const unsigned int* sample_slot, float* c51_td,
                                                float* per_tree, float* isv, float* priority_parts,
                                                unsigned int* blocks_done, int groups, int blocks, int learned, int update,
                                                int C, int R) {
    __shared__ PriorityShares shares;
    __shared__ bool last;
    const RowErrors errors = {c51_td_parts, groups, learned, R};
    sum_own_rows(errors, row_gap, c51_td, &shares, R);
    renew_own_priorities(errors, sample_slot, per_tree, isv, &shares, C, R);
    if (threadIdx.x == 0) store_block(shares, priority_parts + PRIORITY_SUMS * blockIdx.x);
    if (!is_last_block(blocks_done, &last)) return;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;  // whole warps have works of their own
    const float* part = priority_parts + PRIORITY_SUMS * lane;
    if (warp == 0) renew_top(per_tree, isv, C, lane);
    else if (warp == 1) publish_largest(part[0], isv, lane);
    else if (warp == 2) tell_of_errors(part, isv, R, lane);
    else if (warp == 3) tell_of_targets(c51_block_parts, isv, (float)R * learned, blocks, update, lane);
}
