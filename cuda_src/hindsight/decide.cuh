// What the kernels in decide.cu do, as functions that a fused kernel may call as well.
#pragma once
#include "env/book.cuh"
#include "env/targets.cuh"
#include "hindsight/hindsight.cuh"
#include "replay/push.cuh"
#include "replay/replay.cuh"

// What the push of this iteration did with the moment `birth` of row b: its slot, or `known` where it was not pushed.
// Four steps at a time are looked at.
static __device__ inline unsigned int pushed_slot(const unsigned char* push_pending, const unsigned char* push_count,
                                                  const int* push_offset, const int* push_base,
                                                  const unsigned int* replay_state, unsigned int birth,
                                                  unsigned int known, int C, int T, int B, int b) {
    const int s = (int)(birth - (replay_state[REPLAY_CLOCK] - (unsigned int)T));
    if (s < -N_STEP_MAX || s >= T) return known;
    for (int base = s > 0 ? s : 0; base < T; base += 4) {
        int pending[4], count[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const long long at = (long long)(base + k < T ? base + k : T - 1) * B + b;
            pending[k] = push_pending[at];
            count[k] = push_count[at];
        }
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const int t = base + k, age = s - (t + 1 - pending[k]);
            if (t >= T || age < 0) return known;  // taken by an earlier iteration
            if (age >= count[k]) continue;
            const int before = pushed_before(push_base, push_offset, t, b, B) + age;
            return (replay_state[REPLAY_START] + (unsigned int)before) & ((unsigned int)C - 1u);
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

// rl_hindsight_note: the slot of the peak of row b's open trade; of the record of step and row `at`; of entry `at` of the
// closed ring.
static __device__ inline void note_trade(const unsigned char* push_pending, const unsigned char* push_count,
                                         const int* push_offset, const int* push_base, const unsigned int* replay_state,
                                         const int* her_mids, const unsigned int* her_peak_birth,
                                         unsigned int* her_peak_slot, int C, int T, int B, int b) {
    if (her_mids[b] <= 0) return;
    her_peak_slot[b] = pushed_slot(push_pending, push_count, push_offset, push_base, replay_state, her_peak_birth[b],
                                   her_peak_slot[b], C, T, B, b);
}

static __device__ inline void note_event(const unsigned char* push_pending, const unsigned char* push_count,
                                         const int* push_offset, const int* push_base, const unsigned int* replay_state,
                                         const unsigned int* event_peak_birth, unsigned int* event_peak_slot, int C,
                                         int T, int B, int b, long long at) {
    event_peak_slot[at] = pushed_slot(push_pending, push_count, push_offset, push_base, replay_state,
                                      event_peak_birth[at], event_peak_slot[at], C, T, B, b);
}

static __device__ inline void note_closed(const unsigned char* push_pending, const unsigned char* push_count,
                                          const int* push_offset, const int* push_base,
                                          const unsigned int* replay_state, const unsigned char* closed_valid,
                                          const unsigned int* closed_birth, unsigned int* closed_slot, int C, int T,
                                          int B, int b, int j) {
    const long long at = (long long)b * CLOSED_RING + j;
    if (!closed_valid[at]) return;
    closed_slot[at] = pushed_slot(push_pending, push_count, push_offset, push_base, replay_state, closed_birth[at],
                                  closed_slot[at], C, T, B, b);
}

// rl_hindsight_peak, a record of step t and row b: whether it fires; its candidate where it does.
static __device__ inline unsigned char hindsight_peak_event(
    const float* event_entry, const float* event_peak, const int* event_side, const int* event_lots,
    const float* event_pnl, const unsigned int* event_peak_birth, const unsigned int* event_peak_slot,
    const int* position_before, const signed char* action, const unsigned int* store_birth,
    const unsigned int* store_row, const unsigned char* store_source, const unsigned int* replay_state,
    const float* isv, float* candidate_usd, unsigned int* candidate_birth, unsigned int* candidate_slot,
    int* candidate_n, signed char* candidate_lots, signed char* candidate_action, int* candidate_state,
    float tick_value_usd, float fee_usd, int C, int T, int B, int t, int b) {
    const long long at = (long long)t * B + b;
    const int label = hindsight_label(isv);
    const unsigned int clock = replay_state[REPLAY_CLOCK] - (unsigned int)T;
    float ticks = fabsf(event_peak[at] - event_entry[at]);
    float peak_pnl = round_trip_usd(ticks, event_lots[at], tick_value_usd, fee_usd);
    if (!backward_fires(peak_pnl, event_pnl[at], isv[ISV_HINDSIGHT_THRESHOLD])) return FIRE_NO;
    unsigned int birth = event_peak_birth[at];
    int state = (int)(birth - clock), n = t + 1 - state;
    bool lives =
        moment_lives(store_birth, store_row, store_source, replay_state, event_peak_slot[at], birth, C, T, B, b);
    bool copied = label != LABEL_PATH || lives || (n >= 1 && n <= N_STEP_MAX);
    candidate_usd[at] = peak_pnl;
    candidate_birth[at] = label == LABEL_CLOSE ? clock + (unsigned int)t + 1u : birth;
    candidate_slot[at] = label == LABEL_PATH && lives ? event_peak_slot[at] : NO_SLOT;
    candidate_n[at] = label == LABEL_PATH ? n : 1;
    int lots = label == LABEL_CLOSE ? position_before[at] : event_side[at] * event_lots[at];
    candidate_lots[at] = (signed char)lots;
    candidate_action[at] = label == LABEL_CLOSE ? action[at] : (signed char)full_flat(event_side[at]);
    candidate_state[at] = label == LABEL_CLOSE ? t + 1 : (state >= 1 ? state : -1);
    return copied ? FIRE_YES : FIRE_NO_COPY;
}

// What the walk of rl_hindsight_forward over a row's steps carries.
struct ClosedRing {
    unsigned int waiting, next;       // bit j: entry j waits; place of the next close
    unsigned int birth[CLOSED_RING];  // of entry j, where it waits
};

// Whether an entry waits that is old enough to be judged at `now`: if not, a step without a close changes nothing.
static __device__ inline bool ring_ripe(const ClosedRing& ring, unsigned int now, float lookahead) {
    bool ripe = false;
#pragma unroll
    for (int j = 0; j < CLOSED_RING; ++j) {
        ripe = ripe || ((ring.waiting >> j & 1u) && !((float)(int)(now - ring.birth[j]) < lookahead));
    }
    return ripe;
}

static __device__ inline ClosedRing closed_ring(const unsigned char* closed_valid, const unsigned int* closed_birth,
                                                const unsigned int* closed_next, int b) {
    ClosedRing ring = {0u, closed_next[b], {}};
    const long long first = (long long)b * CLOSED_RING;
#pragma unroll
    for (int j = 0; j < CLOSED_RING; ++j) {
        ring.waiting |= closed_valid[first + j] ? 1u << j : 0u;
        ring.birth[j] = closed_birth[first + j];
    }
    return ring;
}

// rl_hindsight_forward, step t of row b; event: a trade closed, slot_of_close: slot of the moment
// behind it. Nothing happens where none did and no entry waits. Whether an entry fires; its candidate where it does.
static __device__ inline unsigned char hindsight_forward_step(
    const int* cursor, const float* bid_px, const float* ask_px, const float* event_entry, const int* event_side,
    const int* event_lots, const float* event_pnl, const int* position_before, const int* position_after,
    const signed char* action, const unsigned int* store_birth, const unsigned int* store_row,
    const unsigned char* store_source, const unsigned int* replay_state, const float* isv, unsigned char* closed_valid,
    float* closed_entry, unsigned int* closed_birth, int* closed_side, int* closed_lots, float* closed_pnl,
    unsigned int* closed_slot, int* closed_held, int* closed_after, signed char* closed_action, float* candidate_usd,
    unsigned int* candidate_birth, unsigned int* candidate_slot, int* candidate_n, signed char* candidate_lots,
    signed char* candidate_action, int* candidate_state, bool event, unsigned int slot_of_close, ClosedRing* ring, int enabled,
    float tick_value_usd, float fee_usd, unsigned int clock, float lookahead, int C, int T, int B, int t, int b) {
    const long long from = (long long)t * B + b, at = ((long long)T + t) * B + b, first = (long long)b * CLOSED_RING;
    const unsigned int now = clock + (unsigned int)t + 1u;
    if (event) {
        const unsigned int j = ring->next % CLOSED_RING;
        const long long entry = first + j;
        ring->waiting |= 1u << j;
        ring->birth[j] = now;
        closed_valid[entry] = 1;
        closed_entry[entry] = event_entry[from];
        closed_birth[entry] = now;
        closed_side[entry] = event_side[from];
        closed_lots[entry] = event_lots[from];
        closed_pnl[entry] = event_pnl[from];
        closed_held[entry] = position_before[from];
        closed_after[entry] = position_after[from];
        closed_action[entry] = action[from];
        closed_slot[entry] = slot_of_close;
        ring->next = (ring->next + 1u) % CLOSED_RING;
    }
    for (unsigned int k = 0; ring->waiting != 0u && k < CLOSED_RING; ++k) {
        const unsigned int j = (ring->next + k) % CLOSED_RING, birth = ring->birth[j];
        if (!(ring->waiting >> j & 1u)) continue;
        const long long entry = first + j;
        const int age = (int)(now - birth);
        if ((float)age < lookahead) continue;
        ring->waiting &= ~(1u << j);
        closed_valid[entry] = 0;
        if (!enabled || (float)age > 2.0f * lookahead) continue;
        const float mid = book_mid(bid_px, ask_px, (long long)cursor[b] + t + 1), trade_pnl = closed_pnl[entry];
        const float ticks = (float)closed_side[entry] * (mid - closed_entry[entry]);
        const float forward_pnl = round_trip_usd(ticks, closed_lots[entry], tick_value_usd, fee_usd);
        if (!forward_fires(forward_pnl, trade_pnl, isv[ISV_HINDSIGHT_THRESHOLD])) continue;
        const unsigned int slot = closed_slot[entry];
        const bool lives = moment_lives(store_birth, store_row, store_source, replay_state, slot, birth, C, T, B, b);
        const int state = (int)(birth - clock), label = hindsight_label(isv);
        const bool path = label == LABEL_PATH;
        candidate_usd[at] = label == LABEL_PEAK ? forward_pnl - trade_pnl : forward_pnl;
        candidate_birth[at] = birth;
        candidate_slot[at] = path && lives ? slot : NO_SLOT;
        candidate_n[at] = path ? age : 1;
        candidate_lots[at] = (signed char)(path ? closed_after[entry] : closed_held[entry]);
        candidate_action[at] = label == LABEL_CLOSE ? closed_action[entry] : (signed char)ACTION_HOLD;
        candidate_state[at] = state >= 1 ? state : -1 - (int)j;
        return !path || lives || age <= N_STEP_MAX ? FIRE_YES : FIRE_NO_COPY;
    }
    return FIRE_NO;
}
