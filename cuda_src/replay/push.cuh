// What the kernels in push.cu do, as functions that a fused kernel may call as well.
#pragma once
#include "include/reduce.cuh"
#include "replay/replay.cuh"

// Moments that a step completes where `pending` of the row wait, if no window ends early.
static __device__ inline int moments_ready(int pending, int n) { return pending >= n ? pending - n + 1 : 0; }

// rl_per_push_count, row b.
static __device__ inline void per_push_count_row(
    const unsigned char* terminal, const unsigned char* truncated, const unsigned char* new_episode, const float* isv,
    unsigned char* pending_moments, unsigned char* push_pending, unsigned char* push_count, int T, int B, int b) {
    int n = n_step(isv), pending = new_episode[b] ? 0 : pending_moments[b];
    for (int t = 0; t < T; ++t) {
        long long at = (long long)t * B + b;
        pending += 1;
        int count = terminal[at] || truncated[at] ? pending : moments_ready(pending, n);
        push_pending[at] = (unsigned char)pending;
        push_count[at] = (unsigned char)count;
        pending -= count;
    }
    pending_moments[b] = (unsigned char)pending;
}

#define PUSH_ROWS 32  // adjacent rows of one step share a base: slots are numbered within them, then the groups

static __device__ inline int push_groups(int B) { return (B + PUSH_ROWS - 1) / PUSH_ROWS; }

// Number of transitions before the first that step t and row b complete; push_base [T, groups], push_offset [T,B].
static __device__ inline int pushed_before(const int* push_base, const int* push_offset, int t, int b, int B) {
    return push_base[t * push_groups(B) + b / PUSH_ROWS] + push_offset[(long long)t * B + b];
}

// In place: counts [items] become the sums before them; the sum of all comes back. One block; scratch: shared, 32 ints.
static __device__ inline int scan_block(int* counts, int items, int* scratch) {
    const int run = (items + (int)blockDim.x - 1) / (int)blockDim.x;
    const int first = (int)threadIdx.x * run, end = first + run < items ? first + run : items;
    int count = 0, total = 0;
#pragma unroll 8
    for (int i = first; i < end; ++i) count += counts[i];
    int before = block_exclusive_scan_int(count, scratch, &total);
#pragma unroll 8
    for (int i = first; i < end; ++i) {
        const int own = counts[i];
        counts[i] = before;
        before += own;
    }
    return total;
}

// rl_per_push from the groups' counts: push_base, head, size, clock.
static __device__ inline void per_push_finish(int* push_base, unsigned int* replay_state, float* isv, int C, int T,
                                              int B) {
    __shared__ int scratch[32];
    const int total = scan_block(push_base, T * push_groups(B), scratch);
    if (threadIdx.x != 0) return;
    const unsigned int head = replay_state[REPLAY_HEAD], mask = (unsigned int)C - 1u;
    unsigned int size = replay_state[REPLAY_SIZE] + (unsigned int)total;
    size = size > (unsigned int)C ? (unsigned int)C : size;
    replay_state[REPLAY_START] = head;
    replay_state[REPLAY_PUSHED] = (unsigned int)total;
    replay_state[REPLAY_HEAD] = (head + (unsigned int)total) & mask;
    replay_state[REPLAY_SIZE] = size;
    replay_state[REPLAY_CLOCK] += (unsigned int)T;
    isv[ISV_PER_SIZE] = (float)size;
}

// rl_per_push.
static __device__ inline void per_push_block(const unsigned char* push_count, int* push_offset, int* push_base,
                                             unsigned int* replay_state, float* isv, int C, int T, int B) {
    const int groups = push_groups(B);
    for (int i = (int)threadIdx.x; i < T * groups; i += (int)blockDim.x) {
        const int t = i / groups, first = (i - t * groups) * PUSH_ROWS;
        int count = 0;
        for (int b = first; b < first + PUSH_ROWS && b < B; ++b) {
            push_offset[(long long)t * B + b] = count;
            count += push_count[(long long)t * B + b];
        }
        push_base[i] = count;
    }
    __syncthreads();
    per_push_finish(push_base, replay_state, isv, C, T, B);
}

// Return and discount of n steps from moment s of row b: rewards of this iteration, before it those of the ring. Eight at
// a time are under way.
struct WindowReturn {
    float sum, weight;
};

static __device__ inline WindowReturn window_return(const float* reward, const float* pending_reward, float gamma,
                                                    unsigned int birth, int s, int n, int B, int b) {
    WindowReturn found = {0.0f, 1.0f};
    for (int base = 0; base < n; base += 8) {
        float r[8];
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            const int step = base + k;
            const bool here = s + step >= 0;
            const long long at = here ? (long long)(s + step) * B + b
                                      : (long long)((birth + (unsigned int)step) % N_STEP_MAX) * B + b;
            r[k] = step < n ? (here ? reward : pending_reward)[at] : 0.0f;
        }
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            if (base + k >= n) break;
            found.sum = fmaf(found.weight, r[k], found.sum);
            found.weight *= gamma;
        }
    }
    return found;
}

// A moment that a step completes: state s of the iteration (negative: of an earlier one, at `ring` of the pending rings),
// n steps before the end of its window, and the slot it goes to.
struct PushedMoment {
    int s, n;
    unsigned int birth, slot;
    long long ring;
};

// The i-th moment that step t and row b complete, of those that wait (push_pending); before: transitions before the first,
// from slot 0; clock of state 0.
static __device__ inline PushedMoment pushed_moment(unsigned int before, int pending, int i, unsigned int clock, int C,
                                                    int t, int b, int B) {
    PushedMoment m;
    m.s = t + 1 - pending + i;
    m.n = pending - i;
    m.birth = clock + (unsigned int)m.s;
    m.slot = (before + (unsigned int)i) & ((unsigned int)C - 1u);
    m.ring = (long long)(m.birth % N_STEP_MAX) * B + b;
    return m;
}

// All of a moment but its encodings. Whether it replaces a synthetic transition comes back.
static __device__ inline bool push_record(const PushedMoment& m, const int* cursor, const float* reward,
                                          const int* position_before, const int* position_after,
                                          const signed char* action, const unsigned char* terminal,
                                          const float* pending_reward, const signed char* pending_lots,
                                          const signed char* pending_action, const float* isv,
                                          unsigned int* store_index, unsigned short* store_n, signed char* store_lots,
                                          signed char* store_next_lots, signed char* store_action, float* store_return,
                                          float* store_discount, unsigned char* store_terminal,
                                          unsigned char* store_source, unsigned int* store_birth,
                                          unsigned int* store_row, float* per_tree, int C, int B, int t, int b) {
    const long long at = (long long)t * B + b, here = (long long)m.s * B + b;
    const WindowReturn window = window_return(reward, pending_reward, isv[ISV_GAMMA], m.birth, m.s, m.n, B, b);
    const bool replaces = store_source[m.slot] != SOURCE_REAL;
    store_index[m.slot] = (unsigned int)(cursor[b] + m.s);
    store_n[m.slot] = (unsigned short)m.n;
    store_lots[m.slot] = m.s < 0 ? pending_lots[m.ring] : (signed char)position_before[here];
    store_action[m.slot] = m.s < 0 ? pending_action[m.ring] : action[here];
    store_next_lots[m.slot] = (signed char)position_after[at];
    store_return[m.slot] = window.sum;
    store_discount[m.slot] = window.weight;
    store_terminal[m.slot] = terminal[at];
    store_source[m.slot] = SOURCE_REAL;
    store_birth[m.slot] = m.birth;
    store_row[m.slot] = (unsigned int)b;
    per_tree[C + m.slot] = isv[ISV_PER_MAX_PRIORITY];
    return replaces;
}

// rl_per_push_copy, the moments that step and row `at` of [T,B] complete. How many of the transitions that they replace are
// not real comes back, in lane 0.
static __device__ inline int per_push_copy_item(
    const int* cursor, const float* h, const float* reward, const int* position_before, const int* position_after,
    const signed char* action, const unsigned char* terminal, const unsigned char* push_pending,
    const unsigned char* push_count, const int* push_offset, const int* push_base, const unsigned int* replay_state,
    const float* pending_h, const float* pending_reward, const signed char* pending_lots,
    const signed char* pending_action, const float* isv, float* store_h, float* store_next_h, unsigned int* store_index,
    unsigned short* store_n, signed char* store_lots, signed char* store_next_lots, signed char* store_action,
    float* store_return, float* store_discount, unsigned char* store_terminal, unsigned char* store_source,
    unsigned int* store_birth, unsigned int* store_row, float* per_tree, int C, int T, int B, int at, int lane) {
    int t = at / B, b = at - t * B, replaced = 0;
    unsigned int before = replay_state[REPLAY_START] + (unsigned int)pushed_before(push_base, push_offset, t, b, B);
    unsigned int clock = replay_state[REPLAY_CLOCK] - (unsigned int)T;
    for (int i = 0; i < push_count[at]; ++i) {
        const PushedMoment m = pushed_moment(before, push_pending[at], i, clock, C, t, b, B);
        const float* from = m.s < 0 ? pending_h + m.ring * HIDDEN_DIM : h + ((long long)m.s * B + b) * HIDDEN_DIM;
        copy_encoding(store_h + (long long)m.slot * HIDDEN_DIM, from, lane);
        copy_encoding(store_next_h + (long long)m.slot * HIDDEN_DIM, h + ((long long)(t + 1) * B + b) * HIDDEN_DIM, lane);
        if (lane != 0) continue;
        replaced += push_record(m, cursor, reward, position_before, position_after, action, terminal, pending_reward,
                                pending_lots, pending_action, isv, store_index, store_n, store_lots, store_next_lots,
                                store_action, store_return, store_discount, store_terminal, store_source, store_birth,
                                store_row, per_tree, C, B, t, b);
    }
    return replaced;
}

// rl_per_pending, row b, age j.
static __device__ inline void per_pending_item(
    const float* h, const float* reward, const int* position_before, const signed char* action,
    const unsigned char* pending_moments, const unsigned int* replay_state, float* pending_h, float* pending_reward,
    signed char* pending_lots, signed char* pending_action, int T, int B, int b, int j, int lane) {
    int s = T - 1 - j;
    if (j >= N_STEP_MAX || s < 0 || j >= pending_moments[b]) return;
    unsigned int birth = replay_state[REPLAY_CLOCK] - 1u - (unsigned int)j;
    long long ring = (long long)(birth % N_STEP_MAX) * B + b, here = (long long)s * B + b;
    copy_encoding(pending_h + ring * HIDDEN_DIM, h + here * HIDDEN_DIM, lane);
    if (lane != 0) return;
    pending_reward[ring] = reward[here];
    pending_lots[ring] = (signed char)position_before[here];
    pending_action[ring] = action[here];
}
