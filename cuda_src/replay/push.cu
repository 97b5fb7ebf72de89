// Push of an iteration's moments into the replay, with n-step windows that cross iterations.
//
// A moment s of a row becomes a transition when its n-th successor exists, or when its window ends early: at a terminal
// or truncated step all pending moments of the row are flushed with their shorter n, so none is lost and no window
// crosses such a step. After step t the state t + 1 exists; "completed at (t, b)" are the moments of row b that step
// finishes, oldest first. Between iterations the pending moments live in rings of N_STEP_MAX, at birth mod N_STEP_MAX.
// Order of the slots: t, then row, then age. Four kernels: count (a thread a row), slots (one block), copy (a grid),
// pending ring (a grid). If n shrinks between iterations, moments are pushed with the n they have reached.
#include "include/reduce.cuh"
#include "replay/replay.cuh"

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
    int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= B) return;
    int n = n_step(isv), pending = new_episode[b] ? 0 : pending_moments[b];
    for (int t = 0; t < T; ++t) {
        long long at = (long long)t * B + b;
        pending += 1;
        int ready = pending >= n ? pending - n + 1 : 0;
        int count = terminal[at] || truncated[at] ? pending : ready;
        push_pending[at] = (unsigned char)pending;
        push_count[at] = (unsigned char)count;
        pending -= count;
    }
    pending_moments[b] = (unsigned char)pending;
}

// rl_per_push: slots for all completed moments by one block-wide prefix sum over (t, row); moves head, size and clock.
// launch: blocks 1, block 32 if T*B <= 512 else 128 if T*B <= 8192 else 1024
// updates: replay_state, isv
// One block; every thread owns a run of adjacent (t, row) items. push_count [T,B]; push_offset [T,B]: transitions
// before this item's first; store_source [C]: synthetic transitions that are about to be overwritten leave the count
// REPLAY_SYNTHETIC. Precondition: (T + N_STEP_MAX) * B <= C, so no slot is written twice. Slot written: PER_SIZE.
extern "C" __global__ void rl_per_push(const unsigned char* push_count, const unsigned char* store_source,
                                       int* push_offset, unsigned int* replay_state, float* isv, int C, int T, int B) {
    __shared__ int scratch[32];
    int items = T * B, share = (items + (int)blockDim.x - 1) / (int)blockDim.x;
    int first = (int)threadIdx.x * share, end = first + share < items ? first + share : items;
    int count = 0, total = 0;
    for (int i = first; i < end; ++i) count += push_count[i];
    int offset = block_exclusive_scan_int(count, scratch, &total);
    for (int i = first; i < end; ++i) {
        push_offset[i] = offset;
        offset += push_count[i];
    }
    unsigned int head = replay_state[REPLAY_HEAD], mask = (unsigned int)C - 1u;
    int replaced = 0;
    for (int i = (int)threadIdx.x; i < total; i += (int)blockDim.x) {
        replaced += store_source[(head + (unsigned int)i) & mask] != SOURCE_REAL;
    }
    replaced = block_sum_int(replaced, scratch);
    if (threadIdx.x != 0) return;
    unsigned int size = replay_state[REPLAY_SIZE] + (unsigned int)total;
    size = size > (unsigned int)C ? (unsigned int)C : size;
    replay_state[REPLAY_START] = head;
    replay_state[REPLAY_PUSHED] = (unsigned int)total;
    replay_state[REPLAY_HEAD] = (head + (unsigned int)total) & mask;
    replay_state[REPLAY_SIZE] = size;
    replay_state[REPLAY_SYNTHETIC] -= (unsigned int)replaced;
    replay_state[REPLAY_CLOCK] += (unsigned int)T;
    isv[ISV_PER_SIZE] = (float)size;
}

// rl_per_push_copy: writes the completed moments into their slots, at the largest priority.
// launch: threads T*B*8, block 64
// updates: per_tree
// COPY_LANES threads a (t, row); they share each encoding, lane 0 writes the rest. Moment s = t + 1 - pending + i has
// n = pending - i; s < 0 lies in the pending rings (pending_h [32,B,128], pending_reward, pending_lots, pending_action
// [32,B]), else in this iteration: h [T+1,B,128] critic features, reward, position_before, action [T,B]. The successor
// is state t + 1: h[t+1], position_after[t]. Return sum gamma^k r_{s+k}, k < n, oldest first; discount gamma^n;
// terminal of step t; data index cursor + s. Leaf C + slot of per_tree [2C] = slot PER_MAX_PRIORITY. Slots read: GAMMA,
// PER_MAX_PRIORITY. Runs after rl_per_push: the clock is T ahead of state 0.
extern "C" __global__ void rl_per_push_copy(
    const int* cursor, const float* h, const float* reward, const int* position_before, const int* position_after,
    const signed char* action, const unsigned char* terminal, const unsigned char* push_pending,
    const unsigned char* push_count, const int* push_offset, const unsigned int* replay_state, const float* pending_h,
    const float* pending_reward, const signed char* pending_lots, const signed char* pending_action, const float* isv,
    float* store_h, float* store_next_h, unsigned int* store_index, unsigned short* store_n, signed char* store_lots,
    signed char* store_next_lots, signed char* store_action, float* store_return, float* store_discount,
    unsigned char* store_terminal, unsigned char* store_source, unsigned int* store_birth, unsigned int* store_row,
    float* per_tree, int C, int T, int B) {
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    int at = thread / COPY_LANES, lane = thread % COPY_LANES;
    if (at >= T * B) return;
    int t = at / B, b = at - t * B, count = push_count[at], pending = push_pending[at];
    unsigned int clock = replay_state[REPLAY_CLOCK] - (unsigned int)T;
    for (int i = 0; i < count; ++i) {
        int s = t + 1 - pending + i, n = pending - i;
        unsigned int birth = clock + (unsigned int)s;
        unsigned int slot = (replay_state[REPLAY_START] + (unsigned int)(push_offset[at] + i)) & ((unsigned int)C - 1u);
        long long ring = (long long)(birth % N_STEP_MAX) * B + b, here = (long long)s * B + b;
        long long to = (long long)slot * HIDDEN_DIM, next = ((long long)(t + 1) * B + b) * HIDDEN_DIM;
        copy_encoding(store_h + to, s < 0 ? pending_h + ring * HIDDEN_DIM : h + here * HIDDEN_DIM, lane);
        copy_encoding(store_next_h + to, h + next, lane);
        if (lane != 0) continue;
        float gamma = isv[ISV_GAMMA], weight = 1.0f, sum = 0.0f;
        for (int k = 0; k < n; ++k) {
            unsigned int when = (birth + (unsigned int)k) % N_STEP_MAX;
            float r = s + k < 0 ? pending_reward[(long long)when * B + b] : reward[here + (long long)k * B];
            sum = fmaf(weight, r, sum);
            weight *= gamma;
        }
        store_index[slot] = (unsigned int)(cursor[b] + s);
        store_n[slot] = (unsigned short)n;
        store_lots[slot] = s < 0 ? pending_lots[ring] : (signed char)position_before[here];
        store_action[slot] = s < 0 ? pending_action[ring] : action[here];
        store_next_lots[slot] = (signed char)position_after[at];
        store_return[slot] = sum;
        store_discount[slot] = weight;
        store_terminal[slot] = terminal[at];
        store_source[slot] = SOURCE_REAL;
        store_birth[slot] = birth;
        store_row[slot] = (unsigned int)b;
        per_tree[C + slot] = isv[ISV_PER_MAX_PRIORITY];
    }
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
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    int lane = thread % COPY_LANES, item = thread / COPY_LANES, b = item % B, j = item / B, s = T - 1 - j;
    if (j >= N_STEP_MAX || s < 0 || j >= pending_moments[b]) return;
    unsigned int birth = replay_state[REPLAY_CLOCK] - 1u - (unsigned int)j;
    long long ring = (long long)(birth % N_STEP_MAX) * B + b, here = (long long)s * B + b;
    copy_encoding(pending_h + ring * HIDDEN_DIM, h + here * HIDDEN_DIM, lane);
    if (lane != 0) return;
    pending_reward[ring] = reward[here];
    pending_lots[ring] = (signed char)position_before[here];
    pending_action[ring] = action[here];
}
