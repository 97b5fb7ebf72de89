// Slots of the hindsight transitions, their copies, and the encodings that later iterations need.
#include "hindsight/inject.cuh"

// rl_hindsight_inject: slots by one prefix sum over the candidates, backward ones first, each in the order t, row.
// launch: blocks 1, block 32 if T*B <= 8192 else 128 if T*B <= 65536 else 1024
// updates: replay_state, isv
// One block; a thread a step of 32 rows, then a prefix sum over these. injected_at [2,T,B]: number of a candidate [2,T,B]
// among those of its step and 32 rows, or -1; injected_base [2, T, (B+31)/32]: of the first of these.
// The synthetic share of live transitions never exceeds HINDSIGHT_MAX_SHARE: the first candidates get what is left of
// it (before these injections replace anything, so the bound is on the safe side), the others are skipped. Synthetic
// transitions that are overwritten leave the count. Slots read: HINDSIGHT_MAX_SHARE. Slots written:
// HINDSIGHT_INJECT_COUNT (backward), HINDSIGHT_FORWARD_COUNT, HINDSIGHT_SKIPPED (ceiling and lost moments),
// HINDSIGHT_SHARE.
extern "C" __global__ void rl_hindsight_inject(const unsigned char* candidate_fire, const unsigned char* store_source,
                                               int* injected_at, int* injected_base, unsigned int* replay_state,
                                               float* isv, int C, int T, int B) {
    hindsight_inject_block(candidate_fire, store_source, injected_at, injected_base, replay_state, isv, C, T, B);
}

// rl_hindsight_copy: writes the injected transitions behind the pushed ones, at boost x the largest priority.
// launch: threads 2*T*B*8, block 64
// updates: store_h, store_next_h, store_index, store_n, store_lots, store_next_lots, store_action, store_return
// updates: store_discount, store_terminal, store_source, store_birth, store_row, per_tree
// COPY_LANES threads a candidate. With a slot to copy: that transition as it is. Else labels 0, 1: h = h_n, terminal,
// return = clamp(candidate_usd x REWARD_SCALE) as any reward is clamped; label 2: h, the encoding now, n steps between,
// nothing asserted (return 0). Sources of encodings: h [T+1,B,128], her_peak_h [B,128], closed_h [B,8,128]. A slot
// that is copied from lies outside everything that is written here (rl_hindsight_peak, rl_hindsight_forward).
// Slots read: HINDSIGHT_LABEL, HINDSIGHT_PRIORITY_BOOST, PER_MAX_PRIORITY, REWARD_SCALE, REWARD_CLAMP_WIN,
// REWARD_CLAMP_LOSS, GAMMA.
extern "C" __global__ void rl_hindsight_copy(const int* injected_at, const int* injected_base,
                                             const float* candidate_usd,
                                             const unsigned int* candidate_birth, const unsigned int* candidate_slot,
                                             const int* candidate_n, const signed char* candidate_lots,
                                             const signed char* candidate_action, const int* candidate_state,
                                             const int* cursor, const float* h, const float* her_peak_h,
                                             const float* closed_h, const int* position_after,
                                             const unsigned int* replay_state, const float* isv, float* store_h,
                                             float* store_next_h, unsigned int* store_index, unsigned short* store_n,
                                             signed char* store_lots, signed char* store_next_lots,
                                             signed char* store_action, float* store_return, float* store_discount,
                                             unsigned char* store_terminal, unsigned char* store_source,
                                             unsigned int* store_birth, unsigned int* store_row, float* per_tree, int C,
                                             int T, int B) {
    const int thread = blockIdx.x * blockDim.x + threadIdx.x;
    if (thread / COPY_LANES >= 2 * T * B) return;
    hindsight_copy_item(injected_at, injected_base, candidate_usd, candidate_birth, candidate_slot, candidate_n, candidate_lots,
                        candidate_action, candidate_state, cursor, h, her_peak_h, closed_h, position_after,
                        replay_state, isv, store_h, store_next_h, store_index, store_n, store_lots, store_next_lots,
                        store_action, store_return, store_discount, store_terminal, store_source, store_birth,
                        store_row, per_tree, C, T, B, thread / COPY_LANES, thread % COPY_LANES);
}

// rl_hindsight_keep: stores the encodings of this iteration that a later one may need.
// launch: threads B*9*8, block 64
// COPY_LANES threads a place: the peak of the open trade (her_peak_h [B,128]) and the entries of the closed ring
// (closed_h [B,8,128]), where their moment is a state of this iteration. The last step of hindsight.
extern "C" __global__ void rl_hindsight_keep(const float* h, const unsigned int* replay_state, const int* her_mids,
                                             const unsigned int* her_peak_birth, const unsigned char* closed_valid,
                                             const unsigned int* closed_birth, float* her_peak_h, float* closed_h,
                                             int T, int B) {
    const int thread = blockIdx.x * blockDim.x + threadIdx.x;
    const int place = thread / COPY_LANES, b = place / (CLOSED_RING + 1);
    if (b >= B) return;
    hindsight_keep_item(h, replay_state, her_mids, her_peak_birth, closed_valid, closed_birth, her_peak_h, closed_h, T,
                        B, b, place - b * (CLOSED_RING + 1), thread % COPY_LANES);
}
