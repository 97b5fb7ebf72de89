// What the kernels in inject.cu do, as functions that a fused kernel may call as well.
#pragma once
#include "hindsight/hindsight.cuh"
#include "include/math.cuh"
#include "include/reduce.cuh"
#include "replay/push.cuh"
#include "replay/replay.cuh"

#define NOT_INJECTED -1

#define LOST_UNIT 0x10000  // a group's candidates: those that fire, and this times those whose moment is lost

// rl_hindsight_inject from the groups' candidates in injected_base [2, T, groups], which become sums before them.
static __device__ inline void hindsight_inject_finish(const unsigned char* store_source, int* injected_base,
                                                      unsigned int* replay_state, float* isv, int C, int T, int B) {
    __shared__ int scratch[32];
    const int items = 2 * T * push_groups(B), half = items / 2;
    int lost = 0, backward = 0, replaced = 0;
#pragma unroll 8
    for (int i = (int)threadIdx.x; i < items; i += (int)blockDim.x) {
        const int count = injected_base[i] % LOST_UNIT;
        lost += injected_base[i] / LOST_UNIT;
        backward += i < half ? count : 0;
        injected_base[i] = count;
    }
    lost = block_sum_int(lost, scratch);
    backward = block_sum_int(backward, scratch);
    const int total = scan_block(injected_base, items, scratch);

    unsigned int head = replay_state[REPLAY_HEAD], size = replay_state[REPLAY_SIZE];
    int synthetic = (int)replay_state[REPLAY_SYNTHETIC];
    const int room = (int)((double)isv[ISV_HINDSIGHT_MAX_SHARE] * (double)size) - synthetic;
    const int taken = total < room ? total : (room > 0 ? room : 0);
    backward = backward < taken ? backward : taken;
#pragma unroll 8
    for (int i = (int)threadIdx.x; i < taken; i += (int)blockDim.x) {
        replaced += store_source[(head + (unsigned int)i) & ((unsigned int)C - 1u)] != SOURCE_REAL;
    }
    replaced = block_sum_int(replaced, scratch);
    if (threadIdx.x != 0) return;
    size = size + (unsigned int)taken > (unsigned int)C ? (unsigned int)C : size + (unsigned int)taken;
    synthetic += taken - replaced;
    replay_state[REPLAY_INJECTED] = (unsigned int)taken;
    replay_state[REPLAY_HEAD] = (head + (unsigned int)taken) & ((unsigned int)C - 1u);
    replay_state[REPLAY_SIZE] = size;
    replay_state[REPLAY_SYNTHETIC] = (unsigned int)synthetic;
    isv[ISV_HINDSIGHT_INJECT_COUNT] = (float)backward;
    isv[ISV_HINDSIGHT_FORWARD_COUNT] = (float)(taken - backward);
    isv[ISV_HINDSIGHT_SKIPPED] = (float)(total - taken + lost);
    isv[ISV_HINDSIGHT_SHARE] = size > 0u ? (float)synthetic / (float)size : 0.0f;
}

// rl_hindsight_inject, a step's candidates of PUSH_ROWS rows: fire of the first, then `stride` apart; their numbers go to
// `number`, as far apart. What injected_base holds of them comes back.
static __device__ inline int number_candidates(const unsigned char* fire, int* number, int rows) {
    int count = 0, lost = 0;
    for (int i = 0; i < rows; ++i) {
        number[i] = fire[i] == FIRE_YES ? count : NOT_INJECTED;
        count += fire[i] == FIRE_YES;
        lost += fire[i] == FIRE_NO_COPY;
    }
    return count + lost * LOST_UNIT;
}

static __device__ inline void hindsight_inject_block(const unsigned char* candidate_fire,
                                                     const unsigned char* store_source, int* injected_at,
                                                     int* injected_base, unsigned int* replay_state, float* isv, int C,
                                                     int T, int B) {
    const int groups = push_groups(B);
    for (int i = (int)threadIdx.x; i < 2 * T * groups; i += (int)blockDim.x) {
        const int row = i / groups, first = (i - row * groups) * PUSH_ROWS;
        const long long at = (long long)row * B + first;
        injected_base[i] =
            number_candidates(candidate_fire + at, injected_at + at, B - first < PUSH_ROWS ? B - first : PUSH_ROWS);
    }
    __syncthreads();
    hindsight_inject_finish(store_source, injected_base, replay_state, isv, C, T, B);
}

// rl_hindsight_copy, candidate i of [2,T,B].
static __device__ inline void hindsight_copy_item(
    const int* injected_at, const int* injected_base, const float* candidate_usd, const unsigned int* candidate_birth,
    const unsigned int* candidate_slot, const int* candidate_n, const signed char* candidate_lots,
    const signed char* candidate_action, const int* candidate_state, const int* cursor, const float* h,
    const float* her_peak_h, const float* closed_h, const int* position_after, const unsigned int* replay_state,
    const float* isv, float* store_h, float* store_next_h, unsigned int* store_index, unsigned short* store_n,
    signed char* store_lots, signed char* store_next_lots, signed char* store_action, float* store_return,
    float* store_discount, unsigned char* store_terminal, unsigned char* store_source, unsigned int* store_birth,
    unsigned int* store_row, float* per_tree, int C, int T, int B, int i, int lane) {
    if (injected_at[i] == NOT_INJECTED) return;
    bool forward = i >= T * B, path = hindsight_label(isv) == LABEL_PATH;
    int at = forward ? i - T * B : i, t = at / B, b = at - t * B, state = candidate_state[i];
    int number = injected_at[i] + injected_base[(forward ? T + t : t) * push_groups(B) + b / PUSH_ROWS];
    if (number >= (int)replay_state[REPLAY_INJECTED]) return;  // beyond the ceiling
    unsigned int first = replay_state[REPLAY_START] + replay_state[REPLAY_PUSHED];
    unsigned int to = (first + (unsigned int)number) & ((unsigned int)C - 1u), from = candidate_slot[i];
    const float* source = state >= 0 ? h + ((long long)state * B + b) * HIDDEN_DIM
                          : forward  ? closed_h + ((long long)b * CLOSED_RING + (-1 - state)) * HIDDEN_DIM
                                     : her_peak_h + (long long)b * HIDDEN_DIM;
    const float* next = path ? h + ((long long)(t + 1) * B + b) * HIDDEN_DIM : source;
    if (from != NO_SLOT) {
        source = store_h + (long long)from * HIDDEN_DIM;
        next = store_next_h + (long long)from * HIDDEN_DIM;
    }
    copy_encoding(store_h + (long long)to * HIDDEN_DIM, source, lane);
    copy_encoding(store_next_h + (long long)to * HIDDEN_DIM, next, lane);
    if (lane != 0) return;
    per_tree[C + to] = isv[ISV_HINDSIGHT_PRIORITY_BOOST] * isv[ISV_PER_MAX_PRIORITY];
    store_source[to] = forward ? SOURCE_FORWARD : SOURCE_BACKWARD;
    store_birth[to] = candidate_birth[i];
    store_row[to] = (unsigned int)b;
    if (from != NO_SLOT) {
        store_index[to] = store_index[from];
        store_n[to] = store_n[from];
        store_lots[to] = store_lots[from];
        store_next_lots[to] = store_next_lots[from];
        store_action[to] = store_action[from];
        store_return[to] = store_return[from];
        store_discount[to] = store_discount[from];
        store_terminal[to] = store_terminal[from];
        return;
    }
    unsigned int clock = replay_state[REPLAY_CLOCK] - (unsigned int)T;
    float scaled = candidate_usd[i] * isv[ISV_REWARD_SCALE];
    float reward = clampf(scaled, -isv[ISV_REWARD_CLAMP_LOSS], isv[ISV_REWARD_CLAMP_WIN]);
    float discount = 1.0f;
    for (int k = 0; k < candidate_n[i]; ++k) discount *= isv[ISV_GAMMA];
    store_index[to] = (unsigned int)(cursor[b] + (int)(candidate_birth[i] - clock));
    store_n[to] = (unsigned short)candidate_n[i];
    store_lots[to] = candidate_lots[i];
    store_next_lots[to] = path ? (signed char)position_after[at] : candidate_lots[i];
    store_action[to] = candidate_action[i];
    store_return[to] = path ? 0.0f : reward;
    store_discount[to] = discount;
    store_terminal[to] = path ? 0 : 1;
}

// rl_hindsight_keep, place j of row b: an entry of the closed ring, or behind them the peak.
static __device__ inline void hindsight_keep_item(
    const float* h, const unsigned int* replay_state, const int* her_mids, const unsigned int* her_peak_birth,
    const unsigned char* closed_valid, const unsigned int* closed_birth, float* her_peak_h, float* closed_h, int T,
    int B, int b, int j, int lane) {
    bool peak = j == CLOSED_RING;
    long long entry = (long long)b * CLOSED_RING + j;
    unsigned int clock = replay_state[REPLAY_CLOCK] - (unsigned int)T;
    bool wanted = peak ? her_mids[b] > 0 : closed_valid[entry] != 0;
    int state = (int)((peak ? her_peak_birth[b] : closed_birth[entry]) - clock);
    if (!wanted || state < 1 || state > T) return;
    copy_encoding(peak ? her_peak_h + (long long)b * HIDDEN_DIM : closed_h + entry * HIDDEN_DIM,
                  h + ((long long)state * B + b) * HIDDEN_DIM, lane);
}
