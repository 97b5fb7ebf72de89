// The step of a critic update in one kernel: both heads' optimiser, every target copy, the noisy weights of the next
// update.
//
// Nobody may move before all gradients are known to be finite, and one block alone may count an update. So the gradient
// kernels leave their verdicts in parts that every block adds up, and whether the sticky flag is set and what Adam's bias
// corrections are stand in update_control, written by rl_c51_next before; the block that counts writes neither.
#include "fused/critic_parts.cuh"
#include "fused/critic_step.cuh"
#include "include/reduce.cuh"

// Numbers that are not finite in this update's gradients and losses.
static __device__ inline float bad_numbers(const float* block_parts, const int* iqn_bad_parts, const int* nonfinite_parts,
                                           int blocks, int iqn_blocks, float* scratch) {
    float bad = 0.0f;
    for (int i = threadIdx.x; i < blocks; i += blockDim.x) bad += block_parts[4 * i + PART_BAD];
    for (int i = threadIdx.x; i < iqn_blocks; i += blockDim.x) bad += (float)iqn_bad_parts[i];
    const int part = threadIdx.x;
    if (part < REFUSED && part != TD_ERRORS) bad += (float)nonfinite_parts[part];
    return block_sum(bad, scratch);
}

// rl_critic_step: optimiser of the critic, its target copies, next noisy weights.
// launch: blocks tiles + own_blocks, block 512
// chain: 11 us
// updates: params, adam_m, adam_v, target_params, nonfinite_parts, adam_step, fault
// fuses: rl_adam_step, rl_grad_norms, rl_noisy_backward, rl_polyak, rl_noisy_compose
// A block a tile of the C51 head; then own_blocks, 2,048 elements each, of the critic's other tensors (gradients in
// grads). Block 0 counts.
// params, grads, adam_m, adam_v, target_params [n_chunks * 32]: the critic's span, C51 first.
// c51_grad_parts [slices, 129, pairs, 24], c51_block_parts [blocks, 4] of rl_c51_path_update; iqn_bad_parts [iqn_blocks]
// of rl_iqn_update_reduce. noises, next_noises [2, 128 + P*11*21] of this update and the next; compose = 0 in the last
// one: c51_packed_* stay. c51_tile_sums [tiles, 3]: squares of the gradient, of W - W_target, of W, for rl_critic_norms.
// nonfinite_parts[REFUSED]: bad numbers of the iteration's updates so far; update = 0 begins anew.
// Slots read: LR_Q, IQN_LR, BRANCH_LR_MULT_HEADS, ADAM_*, WEIGHT_DECAY, TARGET_TAU.
extern "C" __global__ void __launch_bounds__(TILE_THREADS, 2) rl_critic_step(
    const float* c51_grad_parts, const float* c51_block_parts, const int* iqn_bad_parts, const float* noises,
    const float* next_noises, const float* update_control, const float* grads, float* params, float* adam_m,
    float* adam_v, float* target_params, unsigned int* c51_packed_w, float* c51_packed_b, float* c51_tile_sums,
    const float* isv, int* nonfinite_parts, unsigned int* adam_step, unsigned int* fault, int n_chunks, int tiles,
    int own_blocks, int slices, int blocks, int iqn_blocks, int update, int compose, int P) {
    __shared__ C51Tile tile;
    __shared__ TileNoise noise;
    __shared__ float scratch[32], sums[3 * TILE_THREADS / 32];
    const CriticSpan span = {params, adam_m, adam_v, target_params, grads};
    const int number = blockIdx.x;
    const C51Corner at = c51_corner(number < tiles ? number : 0, P);
    TileShare share;
    FlatShare flat;
    if (number < tiles) {
        load_noise(&noise, at, noises, compose ? next_noises : nullptr, P);
        share = load_share(span, at, c51_grad_parts, P, slices);
        if (compose) clear_tile(&tile);
    } else {
        flat = load_flat(span, c51_places(P).end + (number - tiles) * STEP_ELEMENTS, n_chunks * CHUNK);
    }
    const AdamRule rule = adam_rule(isv, update_control, number < tiles ? GROUP_Q : GROUP_IQN, BRANCH_HEADS);
    const float tau = isv[ISV_TARGET_TAU];
    const bool sound = update_control[0] != 0.0f;
    const float bad = bad_numbers(c51_block_parts, iqn_bad_parts, nonfinite_parts, blocks, iqn_blocks, scratch);
    const bool apply = bad == 0.0f && sound;
    if (number == 0 && threadIdx.x == 0) {
        nonfinite_parts[REFUSED] = (update > 0 ? nonfinite_parts[REFUSED] : 0) + (int)bad;
        fault[0] = bad > 0.0f ? fault[0] + 1u : 0u;
        if (fault[0] >= FAULT_LIMIT) fault[1] = 1u;
        adam_step[GROUP_Q] += apply ? 1u : 0u;
        adam_step[GROUP_IQN] += apply && own_blocks > 0 ? 1u : 0u;
    }
    if (number < tiles) {
        const TileSums own = step_tile(span, rule, at, share, noise, &tile, P, compose != 0, apply, tau);
        store_sums(own, sums, c51_tile_sums + 3 * number);
        if (compose) store_packed(tile, at, c51_packed_w, c51_packed_b, P);
    } else {
        step_flat(span, rule, c51_places(P).end + (number - tiles) * STEP_ELEMENTS, n_chunks * CHUNK, flat, apply, tau);
    }
}

// rl_critic_norms: gradient norm of the last update and distance of the target head, into their EMAs.
// launch: blocks 1, block 128
// updates: isv
// fuses: rl_l2_norm, rl_l2_diff_norm, rl_grad_norms, rl_square_sum_parts, rl_difference_parts
// One block, fixed order. c51_tile_sums [tiles, 3] of rl_critic_step. nonfinite_parts[REFUSED]: bad numbers of the
// iteration's updates. Slots written: Q_GRAD_NORM_EMA, Q_DIVERGENCE_EMA, NONFINITE_COUNT.
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
