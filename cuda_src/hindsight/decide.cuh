// What the kernels in decide.cu do, as functions that a fused kernel may call as well.
#pragma once
#include "env/book.cuh"
#include "env/targets.cuh"
#include "hindsight/hindsight.cuh"
#include "replay/replay.cuh"

// What the push of this iteration did with the moment `birth` of row b: its slot, or `known` where it was not pushed.
static __device__ inline unsigned int pushed_slot(const unsigned char* push_pending, const unsigned char* push_count,
                                                  const int* push_offset, const unsigned int* replay_state,
                                                  unsigned int birth, unsigned int known, int C, int T, int B, int b) {
    int s = (int)(birth - (replay_state[REPLAY_CLOCK] - (unsigned int)T));
    if (s < -N_STEP_MAX || s >= T) return known;
    for (int t = s > 0 ? s : 0; t < T; ++t) {
        long long at = (long long)t * B + b;
        int age = s - (t + 1 - push_pending[at]);
        if (age < 0) return known;  // taken by an earlier iteration
        if (age < push_count[at]) {
            return (replay_state[REPLAY_START] + (unsigned int)(push_offset[at] + age)) & ((unsigned int)C - 1u);
        }
    }
    return known;
}

// True if `slot` still holds the real moment `birth` of row b and none of this iteration's injections can reach it.
static __device__ inline bool moment_lives(const unsigned int* store_birth, const unsigned int* store_row,
                                           const unsigned char* store_source, const unsigned int* replay_state,
                                           unsigned int slot, unsigned int birth, int C, int T, int B, int b) {
    if (slot == NO_SLOT) return false;
    unsigned int ahead = (slot - replay_state[REPLAY_HEAD]) & ((unsigned int)C - 1u);
    return ahead >= 2u * (unsigned int)T * (unsigned int)B && store_source[slot] == SOURCE_REAL &&
           store_birth[slot] == birth && store_row[slot] == (unsigned int)b;
}

// rl_hindsight_note, row b.
static __device__ inline void hindsight_note_row(
    const unsigned char* push_pending, const unsigned char* push_count, const int* push_offset,
    const unsigned int* replay_state, const int* her_mids, const unsigned int* her_peak_birth,
    const unsigned char* event, const unsigned int* event_peak_birth, const unsigned char* closed_valid,
    const unsigned int* closed_birth, unsigned int* her_peak_slot, unsigned int* event_peak_slot,
    unsigned int* closed_slot, int C, int T, int B, int b) {
    if (her_mids[b] > 0) {
        her_peak_slot[b] = pushed_slot(push_pending, push_count, push_offset, replay_state, her_peak_birth[b],
                                         her_peak_slot[b], C, T, B, b);
    }
    for (int t = 0; t < T; ++t) {
        long long at = (long long)t * B + b;
        if (!event[at]) continue;
        event_peak_slot[at] = pushed_slot(push_pending, push_count, push_offset, replay_state, event_peak_birth[at],
                                          event_peak_slot[at], C, T, B, b);
    }
    for (int j = 0; j < CLOSED_RING; ++j) {
        long long at = (long long)b * CLOSED_RING + j;
        if (!closed_valid[at]) continue;
        closed_slot[at] = pushed_slot(push_pending, push_count, push_offset, replay_state, closed_birth[at],
                                      closed_slot[at], C, T, B, b);
    }
}

// rl_hindsight_peak, row b.
static __device__ inline void hindsight_peak_row(
    const unsigned char* event, const float* event_entry, const float* event_peak, const int* event_side,
    const int* event_lots, const float* event_pnl, const unsigned int* event_peak_birth,
    const unsigned int* event_peak_slot, const int* position_before, const signed char* action,
    const unsigned int* store_birth, const unsigned int* store_row, const unsigned char* store_source,
    const unsigned int* replay_state, const float* isv, unsigned char* candidate_fire, float* candidate_usd,
    unsigned int* candidate_birth, unsigned int* candidate_slot, int* candidate_n, signed char* candidate_lots,
    signed char* candidate_action, int* candidate_state, int enabled, float tick_value_usd, float fee_usd, int C, int T,
    int B, int b) {
    int label = hindsight_label(isv);
    unsigned int clock = replay_state[REPLAY_CLOCK] - (unsigned int)T;
    for (int t = 0; t < T; ++t) {
        long long at = (long long)t * B + b;
        candidate_fire[at] = FIRE_NO;
        if (!enabled || !event[at]) continue;
        float ticks = fabsf(event_peak[at] - event_entry[at]);
        float peak_pnl = round_trip_usd(ticks, event_lots[at], tick_value_usd, fee_usd);
        if (!backward_fires(peak_pnl, event_pnl[at], isv[ISV_HINDSIGHT_THRESHOLD])) continue;
        unsigned int birth = event_peak_birth[at];
        int state = (int)(birth - clock), n = t + 1 - state;
        bool lives = moment_lives(store_birth, store_row, store_source, replay_state, event_peak_slot[at], birth, C, T,
                                  B, b);
        bool copied = label != LABEL_PATH || lives || (n >= 1 && n <= N_STEP_MAX);
        candidate_fire[at] = copied ? FIRE_YES : FIRE_NO_COPY;
        candidate_usd[at] = peak_pnl;
        candidate_birth[at] = label == LABEL_CLOSE ? clock + (unsigned int)t + 1u : birth;
        candidate_slot[at] = label == LABEL_PATH && lives ? event_peak_slot[at] : NO_SLOT;
        candidate_n[at] = label == LABEL_PATH ? n : 1;
        int lots = label == LABEL_CLOSE ? position_before[at] : event_side[at] * event_lots[at];
        candidate_lots[at] = (signed char)lots;
        candidate_action[at] = label == LABEL_CLOSE ? action[at] : (signed char)full_flat(event_side[at]);
        candidate_state[at] = label == LABEL_CLOSE ? t + 1 : (state >= 1 ? state : -1);
    }
}

// rl_hindsight_forward, row b.
static __device__ inline void hindsight_forward_row(
    const int* cursor, const float* bid_px, const float* ask_px, const unsigned char* event, const float* event_entry,
    const int* event_side, const int* event_lots, const float* event_pnl, const int* position_before,
    const int* position_after, const signed char* action, const unsigned char* push_pending,
    const unsigned char* push_count, const int* push_offset, const unsigned int* store_birth,
    const unsigned int* store_row, const unsigned char* store_source, const unsigned int* replay_state,
    const float* isv, unsigned char* closed_valid, float* closed_entry, unsigned int* closed_birth, int* closed_side,
    int* closed_lots, float* closed_pnl, unsigned int* closed_slot, int* closed_held, int* closed_after,
    signed char* closed_action, unsigned int* closed_next, unsigned char* candidate_fire, float* candidate_usd,
    unsigned int* candidate_birth, unsigned int* candidate_slot, int* candidate_n, signed char* candidate_lots,
    signed char* candidate_action, int* candidate_state, int enabled, float tick_value_usd, float fee_usd, int C, int T,
    int B, int b) {
    int label = hindsight_label(isv);
    float lookahead = isv[ISV_HINDSIGHT_FORWARD_LOOKAHEAD];
    unsigned int clock = replay_state[REPLAY_CLOCK] - (unsigned int)T, next = closed_next[b];
    unsigned int waiting = 0u;  // bit j: entry j is valid
    for (int j = 0; j < CLOSED_RING; ++j) waiting |= closed_valid[(long long)b * CLOSED_RING + j] ? 1u << j : 0u;
    for (int t = 0; t < T; ++t) {
        long long from = (long long)t * B + b, at = ((long long)T + t) * B + b;
        unsigned int now = clock + (unsigned int)t + 1u;
        unsigned char fire = FIRE_NO;
        if (event[from]) {
            long long entry = (long long)b * CLOSED_RING + next % CLOSED_RING;
            waiting |= 1u << next % CLOSED_RING;
            closed_valid[entry] = 1;
            closed_entry[entry] = event_entry[from];
            closed_birth[entry] = now;
            closed_side[entry] = event_side[from];
            closed_lots[entry] = event_lots[from];
            closed_pnl[entry] = event_pnl[from];
            closed_held[entry] = position_before[from];
            closed_after[entry] = position_after[from];
            closed_action[entry] = action[from];
            closed_slot[entry] =
                pushed_slot(push_pending, push_count, push_offset, replay_state, now, NO_SLOT, C, T, B, b);
            next = (next + 1u) % CLOSED_RING;
        }
        for (unsigned int k = 0; waiting != 0u && k < CLOSED_RING && fire == FIRE_NO; ++k) {
            int j = (int)((next + k) % CLOSED_RING);
            if (!(waiting >> j & 1u)) continue;
            long long entry = (long long)b * CLOSED_RING + j;
            int age = (int)(now - closed_birth[entry]);
            if ((float)age < lookahead) continue;
            waiting &= ~(1u << j);
            closed_valid[entry] = 0;
            if (!enabled || (float)age > 2.0f * lookahead) continue;
            float mid = book_mid(bid_px, ask_px, (long long)cursor[b] + t + 1);
            float ticks = (float)closed_side[entry] * (mid - closed_entry[entry]);
            float forward_pnl = round_trip_usd(ticks, closed_lots[entry], tick_value_usd, fee_usd);
            if (!forward_fires(forward_pnl, closed_pnl[entry], isv[ISV_HINDSIGHT_THRESHOLD])) continue;
            unsigned int birth = closed_birth[entry];
            bool lives = moment_lives(store_birth, store_row, store_source, replay_state, closed_slot[entry], birth, C,
                                      T, B, b);
            int state = (int)(birth - clock);
            fire = label != LABEL_PATH || lives || age <= N_STEP_MAX ? FIRE_YES : FIRE_NO_COPY;
            candidate_usd[at] = label == LABEL_PEAK ? forward_pnl - closed_pnl[entry] : forward_pnl;
            candidate_birth[at] = birth;
            candidate_slot[at] = label == LABEL_PATH && lives ? closed_slot[entry] : NO_SLOT;
            candidate_n[at] = label == LABEL_PATH ? age : 1;
            candidate_lots[at] = (signed char)(label == LABEL_PATH ? closed_after[entry] : closed_held[entry]);
            candidate_action[at] = label == LABEL_CLOSE ? closed_action[entry] : (signed char)ACTION_HOLD;
            candidate_state[at] = state >= 1 ? state : -1 - j;
        }
        candidate_fire[at] = fire;
    }
    closed_next[b] = next;
}
