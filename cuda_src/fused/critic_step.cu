// The step of a critic update in one kernel: both heads' optimiser, every target copy, the noisy weights of the next
// update, and what the batch's TD errors change: priorities, tree, slots.
//
// Nobody may move before all gradients are known to be finite, and one block alone may count an update. So the gradient
// kernel leaves its verdict in parts that every block adds up, and whether the sticky flag is set and what Adam's bias
// corrections are stand in update_control, written by rl_c51_next before; the block that counts writes neither.
#include "fused/critic_step.cuh"

// Numbers that are not finite in this update's gradients and losses.
static __device__ inline float bad_numbers(const float* block_parts, const int* nonfinite_parts, int blocks,
                                           float* scratch) {
    float bad = 0.0f;
    for (int i = threadIdx.x; i < blocks; i += blockDim.x) bad += block_parts[4 * i + PART_BAD];
    const int part = threadIdx.x;
    if (part < REFUSED && part != TD_ERRORS) bad += (float)nonfinite_parts[part];
    return block_sum(bad, scratch);
}

// rl_critic_step: optimiser of the critic, its target copies, next noisy weights, priorities and the tree above them.
// launch: blocks 1 + tiles + own_blocks, block 512
// updates: params, adam_m, adam_v, target_params, per_tree, isv, nonfinite_parts, adam_step, fault
// fuses: rl_adam_step, rl_grad_norms, rl_noisy_backward, rl_polyak, rl_noisy_compose, rl_row_mean, rl_mean_into_slot
// fuses: rl_q_target_statistics, rl_q_bias, rl_per_leaves, rl_per_update_priority, rl_per_tree_rebuild
// Block 0: TD errors, slots, counters, priorities. Then a block a tile of the C51 head; then own_blocks, 2,048 elements
// each, of the critic's other tensors (gradients in grads).
// params, grads, adam_m, adam_v, target_params [n_chunks * 32]: the critic's span, C51 first.
// c51_grad_parts [slices, 129, pairs, 24], c51_td_parts [groups, R], c51_block_parts [blocks, 4], row_gap [R] of
// rl_c51_path_update; learned = pairs of a row that learn. noises, next_noises [2, 128 + P*11*21] of this update and the
// next; compose = 0 in the last one: c51_packed_* stay. c51_td [R]; sample_slot [R] never descending; per_tree [2C].
// c51_tile_sums [tiles, 3]: squares of the gradient, of W - W_target, of W, for rl_critic_norms.
// nonfinite_parts[REFUSED]: bad numbers of the iteration's updates so far; update = 0 begins anew.
// Slots written: LOSS_Q, Q_TARGET_MAX, Q_TARGET_MIN, Q_TARGET_CLIP_RATE, Q_BIAS_EMA, PER_MAX_PRIORITY, PER_TREE_TOTAL. Read: LR_Q, IQN_LR, BRANCH_LR_MULT_HEADS, ADAM_*, WEIGHT_DECAY, TARGET_TAU, PER_ALPHA.
extern "C" __global__ void __launch_bounds__(TILE_THREADS, 2) rl_critic_step(
    const float* c51_grad_parts, const float* c51_td_parts, const float* c51_block_parts, const float* row_gap,
    const float* noises, const float* next_noises, const float* update_control, const float* grads,
    const unsigned int* sample_slot, float* params, float* adam_m, float* adam_v,
    float* target_params, float* c51_packed_w, float* c51_packed_b, float* c51_tile_sums, float* c51_td, float* per_tree,
    float* isv, int* nonfinite_parts, unsigned int* adam_step, unsigned int* fault, int n_chunks,
    int tiles, int own_blocks, int slices, int groups, int blocks,
    int learned, int update, int compose, int C, int P, int R) {
    __shared__ C51Tile tile;
    __shared__ float scratch[32];
    const float bad = bad_numbers(c51_block_parts, nonfinite_parts, blocks, scratch), tau = isv[ISV_TARGET_TAU];
    const bool apply = bad == 0.0f && update_control[0] != 0.0f;
    const CriticSpan span = {params, adam_m, adam_v, target_params, grads};

    if (blockIdx.x == 0) {
        const float bad_rows = tell_of_targets(c51_td_parts, c51_block_parts, row_gap, c51_td, isv, scratch, R, groups,
                                               blocks, learned, update);
        if (threadIdx.x == 0) {
            nonfinite_parts[TD_ERRORS] = (int)bad_rows;
            nonfinite_parts[REFUSED] = (update > 0 ? nonfinite_parts[REFUSED] : 0) + (int)bad;
            fault[0] = bad > 0.0f ? fault[0] + 1u : 0u;
            if (fault[0] >= FAULT_LIMIT) fault[1] = 1u;
            adam_step[GROUP_Q] += apply ? 1u : 0u;
            adam_step[GROUP_IQN] += apply && own_blocks > 0 ? 1u : 0u;
        }
        renew_priorities_by_block(c51_td, sample_slot, per_tree, isv, scratch, C, R);
        return;
    }
    const int number = blockIdx.x - 1;
    if (number < tiles) {
        const C51Corner at = c51_corner(number, P);
        const AdamRule rule = adam_rule(isv, update_control, GROUP_Q, BRANCH_HEADS);
        if (compose) clear_tile(&tile);
        __syncthreads();
        const TileSums sums = step_tile(span, rule, at, c51_grad_parts, noises, compose ? next_noises : nullptr, &tile, P,
                                        slices, apply, tau);
        const float gradient = block_sum(sums.gradient, scratch), apart = block_sum(sums.apart, scratch);
        const float weight = block_sum(sums.weight, scratch);  // barriers: the tile is whole
        if (threadIdx.x == 0) {
            c51_tile_sums[3 * number] = gradient;
            c51_tile_sums[3 * number + 1] = apart;
            c51_tile_sums[3 * number + 2] = weight;
        }
        if (compose) store_packed(tile, at, c51_packed_w, c51_packed_b, P);
        return;
    }
    const int iqn = c51_places(P).end;  // first element behind the C51 head
    const int first = (number - tiles) * STEP_ELEMENTS, count = n_chunks * CHUNK - iqn;
    const int end = first + STEP_ELEMENTS < count ? first + STEP_ELEMENTS : count;
    const AdamRule rule = adam_rule(isv, update_control, GROUP_IQN, BRANCH_HEADS);
    for (int i = first + threadIdx.x; i < end; i += blockDim.x) {
        SpanElement element = load_element(span, iqn + i);
        step_element(span, rule, iqn + i, &element, span.g[iqn + i], apply, tau);
    }
}

// rl_critic_norms: gradient norm of the last update and distance of the target head, into their EMAs.
// launch: blocks 1, block 128
// updates: isv
// fuses: rl_l2_norm, rl_l2_diff_norm, rl_grad_norms, rl_square_sum_parts, rl_difference_parts
// One block, fixed order. c51_tile_sums [tiles, 3] of rl_critic_step. nonfinite_parts[REFUSED]: bad numbers of the iteration's updates.
// Slots written: Q_GRAD_NORM_EMA, Q_DIVERGENCE_EMA, NONFINITE_COUNT.
extern "C" __global__ void rl_critic_norms(const float* c51_tile_sums, const int* nonfinite_parts, float* isv,
                                           int tiles) {
    __shared__ float scratch[32];
    float sums[3] = {0.0f, 0.0f, 0.0f};
    for (int i = threadIdx.x; i < tiles; i += blockDim.x) {
        for (int k = 0; k < 3; ++k) sums[k] += c51_tile_sums[3 * i + k];
    }
    for (int k = 0; k < 3; ++k) sums[k] = block_sum(sums[k], scratch);
    if (threadIdx.x != 0) return;
    isv[ISV_NONFINITE_COUNT] += (float)nonfinite_parts[REFUSED];
    isv[ISV_Q_GRAD_NORM_EMA] = norm_ema(isv[ISV_Q_GRAD_NORM_EMA], sqrtf(sums[0]));
    if (!(sums[2] == 0.0f)) isv[ISV_Q_DIVERGENCE_EMA] = norm_ema(isv[ISV_Q_DIVERGENCE_EMA], sqrtf(sums[1] / sums[2]));
}
