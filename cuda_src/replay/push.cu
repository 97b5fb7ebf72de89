// Push of an iteration's moments into the replay, with n-step windows that cross iterations.
//
// A moment s of a row becomes a transition when its n-th successor exists, or when its window ends early: at a terminal
// or truncated step all pending moments of the row are flushed with their shorter n, so none is lost and no window
// crosses such a step. After step t the state t + 1 exists; "completed at (t, b)" are the moments of row b that step
// finishes, oldest first. Between iterations the pending moments live in rings of N_STEP_MAX, at birth mod N_STEP_MAX.
// Order of the slots: t, then row, then age. Four kernels: count (a thread a row), slots (one block), copy (a grid),
// pending ring (a grid). If n shrinks between iterations, moments are pushed with the n they have reached.
#include "replay/push.cuh"

// rl_per_push_count: how many moments each step of each row completes.
// launch: threads B, block 64
// updates: pending_moments
// One thread a row, in order of t. terminal, truncated [T,B]; new_episode [B] (a new episode has nothing pending);
// pending_moments [B]: moments without their n-th successor, before and after this iteration. push_pending [T,B]:
// moments pending when step t is over, before any is taken; push_count [T,B]: those it completes. Slot read: N_STEP.
extern "C" __global__ void rl_per_push_count(const unsigned char* terminal, const unsigned char* truncated,
                                             const unsigned char* new_episode, const float* isv,
                                             unsigned char* pending_moments, unsigned char* push_pending,
                                             unsigned char* push_count, int T, int B) {
    const int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= B) return;
    per_push_count_row(terminal, truncated, new_episode, isv, pending_moments, push_pending, push_count, T, B, b);
}

// rl_per_push: slots for all completed moments, in the order t, row; moves head, size and clock.
// launch: blocks 1, block 32 if T*B <= 8192 else 128 if T*B <= 65536 else 1024
// updates: replay_state, isv
// One block; a thread a step of 32 rows, then a prefix sum over these. push_count [T,B]; push_offset [T,B]: transitions
// before this item's first among those of its step and 32 rows, push_base [T, (B+31)/32]: before theirs. Precondition:
// (T + N_STEP_MAX) * B <= C, so no slot is written twice. Slot written: PER_SIZE.
extern "C" __global__ void rl_per_push(const unsigned char* push_count, int* push_offset, int* push_base,
                                       unsigned int* replay_state, float* isv, int C, int T, int B) {
    per_push_block(push_count, push_offset, push_base, replay_state, isv, C, T, B);
}

// rl_per_push_copy: writes the completed moments into their slots, at the largest priority.
// launch: threads T*B*8, block 64
// updates: per_tree, store_source, replay_state
// COPY_LANES threads a (t, row); they share each encoding, lane 0 writes the rest. Moment s = t + 1 - pending + i has
// n = pending - i; s < 0 lies in the pending rings (pending_h [32,B,128], pending_reward, pending_lots, pending_action
// [32,B]), else in this iteration: h [T+1,B,128] critic features, reward, position_before, action [T,B]. The successor
// is state t + 1: h[t+1], position_after[t]. Return sum gamma^k r_{s+k}, k < n, oldest first; discount gamma^n;
// terminal of step t; data index cursor + s. Leaf C + slot of per_tree [2C] = slot PER_MAX_PRIORITY. Slots read: GAMMA,
// PER_MAX_PRIORITY. Runs after rl_per_push: the clock is T ahead of state 0. Synthetic transitions that are overwritten
// leave the count REPLAY_SYNTHETIC.
extern "C" __global__ void rl_per_push_copy(const int* cursor, const float* h, const float* reward,
                                            const int* position_before, const int* position_after,
                                            const signed char* action, const unsigned char* terminal,
                                            const unsigned char* push_pending, const unsigned char* push_count,
                                            const int* push_offset, const int* push_base,
                                            unsigned int* replay_state, const float* pending_h,
                                            const float* pending_reward, const signed char* pending_lots,
                                            const signed char* pending_action, const float* isv, float* store_h, float* store_next_h,
                                            unsigned int* store_index, unsigned short* store_n, signed char* store_lots,
                                            signed char* store_next_lots, signed char* store_action,
                                            float* store_return, float* store_discount, unsigned char* store_terminal,
                                            unsigned char* store_source, unsigned int* store_birth,
                                            unsigned int* store_row, float* per_tree, int C, int T, int B) {
    const int thread = blockIdx.x * blockDim.x + threadIdx.x;
    if (thread / COPY_LANES >= T * B) return;
    const int replaced = per_push_copy_item(
        cursor, h, reward, position_before, position_after, action, terminal, push_pending, push_count, push_offset,
        push_base, replay_state, pending_h, pending_reward, pending_lots, pending_action, isv, store_h, store_next_h,
        store_index, store_n, store_lots, store_next_lots, store_action, store_return, store_discount, store_terminal,
        store_source, store_birth, store_row, per_tree, C, T, B, thread / COPY_LANES, thread % COPY_LANES);
    if (replaced) atomicSub(&replay_state[REPLAY_SYNTHETIC], (unsigned int)replaced);
}

// rl_per_pending: keeps what is still pending for the next iteration.
// launch: threads B*8*(T if T < 32 else 32), block 64
// updates: pending_h, pending_reward, pending_lots, pending_action
// COPY_LANES threads a (row, age): age j is moment T - 1 - j. Writes only moments of this iteration that are pending
// (j < pending_moments [B], after the push); older ones are in their place already. Clock as in rl_per_push_copy.
extern "C" __global__ void rl_per_pending(const float* h, const float* reward, const int* position_before,
                                          const signed char* action, const unsigned char* pending_moments,
                                          const unsigned int* replay_state, float* pending_h, float* pending_reward,
                                          signed char* pending_lots, signed char* pending_action, int T, int B) {
    const int thread = blockIdx.x * blockDim.x + threadIdx.x;
    const int item = thread / COPY_LANES;
    per_pending_item(h, reward, position_before, action, pending_moments, replay_state, pending_h, pending_reward,
                     pending_lots, pending_action, T, B, item % B, item / B, thread % COPY_LANES);
}
