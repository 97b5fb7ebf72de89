// What the kernels in push.cu do, as functions that a fused kernel may call as well.
#pragma once
#include "include/reduce.cuh"
#include "replay/replay.cuh"

// rl_per_push_count, row b.
static __device__ inline void per_push_count_row(
    const unsigned char* terminal, const unsigned char* truncated, const unsigned char* new_episode, const float* isv,
    unsigned char* pending_moments, unsigned char* push_pending, unsigned char* push_count, int T, int B, int b) {
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

#define SCAN_RUN 8  // adjacent items that a thread takes at a time

// rl_per_push.
static __device__ inline void per_push_block(const unsigned char* push_count, const unsigned char* store_source,
                                             int* push_offset, unsigned int* replay_state, float* isv, int C, int T,
                                             int B) {
    __shared__ int scratch[32];
    const int items = T * B, step = SCAN_RUN * (int)blockDim.x;
    int total = 0;
    for (int base = 0; base < items; base += step) {
        const int first = base + (int)threadIdx.x * SCAN_RUN, end = first + SCAN_RUN < items ? first + SCAN_RUN : items;
        int count = 0, sum = 0;
        for (int i = first; i < end; ++i) count += push_count[i];
        int offset = total + block_exclusive_scan_int(count, scratch, &sum);
        for (int i = first; i < end; ++i) {
            push_offset[i] = offset;
            offset += push_count[i];
        }
        total += sum;
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

// rl_per_push_copy, the moments that step and row `at` of [T,B] complete.
static __device__ inline void per_push_copy_item(
    const int* cursor, const float* h, const float* reward, const int* position_before, const int* position_after,
    const signed char* action, const unsigned char* terminal, const unsigned char* push_pending,
    const unsigned char* push_count, const int* push_offset, const unsigned int* replay_state, const float* pending_h,
    const float* pending_reward, const signed char* pending_lots, const signed char* pending_action, const float* isv,
    float* store_h, float* store_next_h, unsigned int* store_index, unsigned short* store_n, signed char* store_lots,
    signed char* store_next_lots, signed char* store_action, float* store_return, float* store_discount,
    unsigned char* store_terminal, unsigned char* store_source, unsigned int* store_birth, unsigned int* store_row,
    float* per_tree, int C, int T, int B, int at, int lane) {
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
