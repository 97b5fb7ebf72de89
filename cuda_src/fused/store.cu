// The replay takes in an iteration's moments: push and hindsight, then the tree above what they wrote.
#include "hindsight/decide.cuh"
#include "hindsight/inject.cuh"
#include "include/last_block.cuh"
#include "replay/push.cuh"
#include "replay/tree.cuh"

// rl_store_slots: what every step of every row completes, and the slots of it all.
// launch: blocks 1, block 32 if T*B <= 512 else 128 if T*B <= 8192 else 1024
// updates: pending_moments, replay_state, isv
// fuses: rl_per_push_count, rl_per_push
// One block: rows, then the prefix sum. Parameters are those of the kernels that it stands for.
extern "C" __global__ void rl_store_slots(const unsigned char* terminal, const unsigned char* truncated,
                                          const unsigned char* new_episode, const unsigned char* store_source,
                                          unsigned char* pending_moments, unsigned char* push_pending,
                                          unsigned char* push_count, int* push_offset, unsigned int* replay_state,
                                          float* isv, int C, int T, int B) {
    for (int b = threadIdx.x; b < B; b += blockDim.x) {
        per_push_count_row(terminal, truncated, new_episode, isv, pending_moments, push_pending, push_count, T, B, b);
    }
    __syncthreads();
    per_push_block(push_count, store_source, push_offset, replay_state, isv, C, T, B);
}

// rl_store_moments: the completed moments into their slots, what is still pending into the rings.
// launch: blocks B, block 128
// updates: pending_h, pending_reward, pending_lots, pending_action, per_tree, store_h, store_next_h, store_index, store_n
// updates: store_lots, store_next_lots, store_action, store_return, store_discount, store_terminal, store_source
// updates: store_birth, store_row
// fuses: rl_per_push_copy, rl_per_pending
// One block a row: old places of the rings are read before new moments go there. Parameters are those of the kernels that
// it stands for.
extern "C" __global__ void rl_store_moments(
    const int* cursor, const float* h, const float* reward, const int* position_before, const int* position_after,
    const signed char* action, const unsigned char* terminal, const unsigned char* push_pending,
    const unsigned char* push_count, const int* push_offset, const unsigned char* pending_moments,
    const unsigned int* replay_state, const float* isv, float* pending_h, float* pending_reward,
    signed char* pending_lots, signed char* pending_action, float* store_h, float* store_next_h,
    unsigned int* store_index, unsigned short* store_n, signed char* store_lots, signed char* store_next_lots,
    signed char* store_action, float* store_return, float* store_discount, unsigned char* store_terminal,
    unsigned char* store_source, unsigned int* store_birth, unsigned int* store_row, float* per_tree, int C, int T,
    int B) {
    const int b = blockIdx.x, lane = threadIdx.x % COPY_LANES, first = threadIdx.x / COPY_LANES;
    const int step = blockDim.x / COPY_LANES;
    for (int t = first; t < T; t += step) {
        per_push_copy_item(cursor, h, reward, position_before, position_after, action, terminal, push_pending,
                           push_count, push_offset, replay_state, pending_h, pending_reward, pending_lots,
                           pending_action, isv, store_h, store_next_h, store_index, store_n, store_lots,
                           store_next_lots, store_action, store_return, store_discount, store_terminal, store_source,
                           store_birth, store_row, per_tree, C, T, B, t * B + b, lane);
    }
    __syncthreads();
    for (int j = first; j < T && j < N_STEP_MAX; j += step) {
        per_pending_item(h, reward, position_before, action, pending_moments, replay_state, pending_h, pending_reward,
                         pending_lots, pending_action, T, B, b, j, lane);
    }
}

// rl_store_candidates: which transitions hindsight adds, and their numbers.
// launch: threads B, block 128
// updates: her_peak_slot, event_peak_slot, closed_valid, closed_entry, closed_birth, closed_side, closed_lots
// updates: closed_pnl, closed_slot, closed_held, closed_after, closed_action, closed_next, replay_state, isv
// updates: blocks_done
// fuses: rl_hindsight_note, rl_hindsight_peak, rl_hindsight_forward, rl_hindsight_inject
// One thread a row; the last block to finish numbers the candidates of all. Parameters are those of the kernels that it
// stands for; backward, forward: `enabled` of either direction.
extern "C" __global__ void rl_store_candidates(
    const unsigned char* push_pending, const unsigned char* push_count, const int* push_offset, const int* her_mids,
    const unsigned int* her_peak_birth, const unsigned char* event, const float* event_entry, const float* event_peak,
    const int* event_side, const int* event_lots, const float* event_pnl, const unsigned int* event_peak_birth,
    const int* cursor, const float* bid_px, const float* ask_px, const int* position_before, const int* position_after,
    const signed char* action, const unsigned int* store_birth, const unsigned int* store_row,
    const unsigned char* store_source, unsigned int* her_peak_slot, unsigned int* event_peak_slot,
    unsigned char* closed_valid, float* closed_entry, unsigned int* closed_birth, int* closed_side, int* closed_lots,
    float* closed_pnl, unsigned int* closed_slot, int* closed_held, int* closed_after, signed char* closed_action,
    unsigned int* closed_next, unsigned char* candidate_fire, float* candidate_usd, unsigned int* candidate_birth,
    unsigned int* candidate_slot, int* candidate_n, signed char* candidate_lots, signed char* candidate_action,
    int* candidate_state, int* injected_at, unsigned int* replay_state, float* isv, unsigned int* blocks_done,
    int backward, int forward, float tick_value_usd, float fee_usd, int C, int T, int B) {
    __shared__ bool last;
    const int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b < B) {
        for (int t = 0; t < 2 * T; ++t) injected_at[(long long)t * B + b] = NOT_INJECTED;
        hindsight_note_row(push_pending, push_count, push_offset, replay_state, her_mids, her_peak_birth, event,
                           event_peak_birth, closed_valid, closed_birth, her_peak_slot, event_peak_slot, closed_slot, C,
                           T, B, b);
        hindsight_peak_row(event, event_entry, event_peak, event_side, event_lots, event_pnl, event_peak_birth,
                           event_peak_slot, position_before, action, store_birth, store_row, store_source, replay_state,
                           isv, candidate_fire, candidate_usd, candidate_birth, candidate_slot, candidate_n,
                           candidate_lots, candidate_action, candidate_state, backward, tick_value_usd, fee_usd, C, T,
                           B, b);
        hindsight_forward_row(cursor, bid_px, ask_px, event, event_entry, event_side, event_lots, event_pnl,
                              position_before, position_after, action, push_pending, push_count, push_offset,
                              store_birth, store_row, store_source, replay_state, isv, closed_valid, closed_entry,
                              closed_birth, closed_side, closed_lots, closed_pnl, closed_slot, closed_held,
                              closed_after, closed_action, closed_next, candidate_fire, candidate_usd, candidate_birth,
                              candidate_slot, candidate_n, candidate_lots, candidate_action, candidate_state, forward,
                              tick_value_usd, fee_usd, C, T, B, b);
    }
    if (!is_last_block(blocks_done, &last)) return;
    hindsight_inject_block(candidate_fire, store_source, injected_at, replay_state, isv, true, C, T, B);
}

// rl_store_injections: the transitions of hindsight into their slots, and the encodings that later iterations need.
// launch: blocks B, block 128
// updates: her_peak_h, closed_h, store_h, store_next_h, store_index, store_n, store_lots, store_next_lots, store_action
// updates: store_return, store_discount, store_terminal, store_source, store_birth, store_row, per_tree
// fuses: rl_hindsight_copy, rl_hindsight_keep
// One block a row: kept encodings are read before new ones take their places. Parameters are those of the kernels that it
// stands for.
extern "C" __global__ void rl_store_injections(
    const int* injected_at, const float* candidate_usd, const unsigned int* candidate_birth,
    const unsigned int* candidate_slot, const int* candidate_n, const signed char* candidate_lots,
    const signed char* candidate_action, const int* candidate_state, const int* cursor, const float* h,
    const int* position_after, const unsigned int* replay_state, const int* her_mids,
    const unsigned int* her_peak_birth, const unsigned char* closed_valid, const unsigned int* closed_birth,
    const float* isv, float* her_peak_h, float* closed_h, float* store_h, float* store_next_h,
    unsigned int* store_index, unsigned short* store_n, signed char* store_lots, signed char* store_next_lots,
    signed char* store_action, float* store_return, float* store_discount, unsigned char* store_terminal,
    unsigned char* store_source, unsigned int* store_birth, unsigned int* store_row, float* per_tree, int C, int T,
    int B) {
    const int b = blockIdx.x, lane = threadIdx.x % COPY_LANES, first = threadIdx.x / COPY_LANES;
    const int step = blockDim.x / COPY_LANES;
    for (int t = first; t < 2 * T; t += step) {
        hindsight_copy_item(injected_at, candidate_usd, candidate_birth, candidate_slot, candidate_n, candidate_lots,
                            candidate_action, candidate_state, cursor, h, her_peak_h, closed_h, position_after,
                            replay_state, isv, store_h, store_next_h, store_index, store_n, store_lots,
                            store_next_lots, store_action, store_return, store_discount, store_terminal, store_source,
                            store_birth, store_row, per_tree, C, T, B, t * B + b, lane);
    }
    __syncthreads();
    for (int j = first; j <= CLOSED_RING; j += step) {
        hindsight_keep_item(h, replay_state, her_mids, her_peak_birth, closed_valid, closed_birth, her_peak_h, closed_h,
                            T, B, b, j, lane);
    }
}

// rl_store_tree: the tree above everything that the iteration wrote, all bands.
// launch: threads groups, block 128
// updates: per_tree, isv, blocks_done
// fuses: rl_per_tree_range, rl_per_tree_rebuild
// One thread a group of the lowest band, as rl_per_tree_range with bottom = depth counts them (all of them where groups is
// the number there is); the last block to finish renews the bands above. Slot written: PER_TREE_TOTAL.
extern "C" __global__ void rl_store_tree(const unsigned int* replay_state, float* per_tree, float* isv,
                                         unsigned int* blocks_done, int groups, int depth) {
    __shared__ bool last;
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int top = depth > TREE_BAND ? depth - TREE_BAND : 0;
    if (i < groups) tree_renew_written(replay_state, per_tree, i, depth, depth, top);
    if (!is_last_block(blocks_done, &last)) return;
    for (int bottom = top; bottom > 0; bottom -= TREE_BAND) {
        const int upper = bottom > TREE_BAND ? bottom - TREE_BAND : 0;
        if (upper == 0) {
            if (threadIdx.x == 0) isv[ISV_PER_TREE_TOTAL] = tree_renew_group(per_tree, 0, bottom, 0);
            return;
        }
        for (int g = threadIdx.x; g < 1 << upper; g += blockDim.x) {
            tree_renew_written(replay_state, per_tree, g, depth, bottom, upper);
        }
        __syncthreads();
    }
}
