// Which transitions hindsight adds in this iteration: a thread a row, in step order, after the push.
#include "hindsight/decide.cuh"

// rl_hindsight_note: remembers the slots of the moments that hindsight may want: peaks and closes.
// launch: threads B, block 64
// updates: her_peak_slot, event_peak_slot, closed_slot
// One thread a row: the peak of the open trade, those of this iteration's records [T,B], the closes of the closed ring
// [B,8]. push_* [T,B] as the push left them.
extern "C" __global__ void rl_hindsight_note(const unsigned char* push_pending, const unsigned char* push_count,
                                             const int* push_offset, const int* push_base,
                                             const unsigned int* replay_state, const int* her_mids, const unsigned int* her_peak_birth,
                                             const unsigned char* event, const unsigned int* event_peak_birth,
                                             const unsigned char* closed_valid, const unsigned int* closed_birth,
                                             unsigned int* her_peak_slot, unsigned int* event_peak_slot,
                                             unsigned int* closed_slot, int C, int T, int B) {
    const int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= B) return;
    note_trade(push_pending, push_count, push_offset, push_base, replay_state, her_mids, her_peak_birth, her_peak_slot, C,
               T, B, b);
    for (int t = 0; t < T; ++t) {
        const long long at = (long long)t * B + b;
        if (!event[at]) continue;
        note_event(push_pending, push_count, push_offset, push_base, replay_state, event_peak_birth, event_peak_slot, C,
                   T, B, b, at);
    }
    for (int j = 0; j < CLOSED_RING; ++j) {
        note_closed(push_pending, push_count, push_offset, push_base, replay_state, closed_valid, closed_birth,
                    closed_slot, C, T, B, b, j);
    }
}

// rl_hindsight_peak: backward candidates, from the records alone.
// launch: threads B, block 64
// One thread a row; writes slice 0 of the candidates [2,T,B] at every (t, row): candidate_fire; and where it fires
// candidate_usd (PnL that labels 0 and 1 assert), candidate_birth, candidate_slot (label 2: slot to copy, or NO_SLOT:
// build it), candidate_n, candidate_lots, candidate_action, candidate_state (state of h in this iteration, or -1: the
// row's her_peak_h). Fires when peak PnL > threshold x |trade PnL| and > 0, with peak PnL = (|peak - entry| x tick
// value - 2 fees) x lots. Label 0: the close, action taken, lots held. Label 1: the peak, exit of the side. Label 2:
// the peak's moment from its slot, else from its encoding and that of the close if they are 1 to 32 steps apart.
// enabled 0: nothing fires. Slots read: HINDSIGHT_THRESHOLD, HINDSIGHT_LABEL.
extern "C" __global__ void rl_hindsight_peak(const unsigned char* event, const float* event_entry,
                                             const float* event_peak, const int* event_side, const int* event_lots,
                                             const float* event_pnl, const unsigned int* event_peak_birth,
                                             const unsigned int* event_peak_slot, const int* position_before,
                                             const signed char* action, const unsigned int* store_birth,
                                             const unsigned int* store_row, const unsigned char* store_source,
                                             const unsigned int* replay_state, const float* isv,
                                             unsigned char* candidate_fire, float* candidate_usd,
                                             unsigned int* candidate_birth, unsigned int* candidate_slot,
                                             int* candidate_n, signed char* candidate_lots,
                                             signed char* candidate_action, int* candidate_state, int enabled,
                                             float tick_value_usd, float fee_usd, int C, int T, int B) {
    const int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= B) return;
    for (int t = 0; t < T; ++t) {
        const long long at = (long long)t * B + b;
        candidate_fire[at] =
            !enabled || !event[at]
                ? FIRE_NO
                : hindsight_peak_event(event_entry, event_peak, event_side, event_lots, event_pnl, event_peak_birth,
                                       event_peak_slot, position_before, action, store_birth, store_row, store_source,
                                       replay_state, isv, candidate_usd, candidate_birth, candidate_slot, candidate_n,
                                       candidate_lots, candidate_action, candidate_state, tick_value_usd, fee_usd, C, T,
                                       B, t, b);
    }
}

// rl_hindsight_forward: this iteration's closes enter the closed ring, ripe entries are judged; forward candidates.
// launch: threads B, block 64
// updates: closed_valid, closed_entry, closed_birth, closed_side, closed_lots, closed_pnl, closed_slot, closed_held
// updates: closed_after, closed_action, closed_next
// One thread a row, in step order, oldest entry first; writes slice 1 of the candidates as rl_hindsight_peak does
// (candidate_state -1 - j: encoding of entry j of the closed ring). closed_* [B,8], closed_next [B] place of the next
// entry; a ninth close replaces the oldest. Age = steps since the close. Below the lookahead: wait; above twice it:
// expired; else judged once with the mid of the row's own cursor and cleared: forward PnL = (side x (mid - entry) x
// tick value - 2 fees) x lots beats the trade's PnL by the threshold. At most one fires a row and step; the others stay
// for the next step. Label 0: the close, action taken, lots held, forward PnL. Label 1: the close, Hold, forward -
// actual. Label 2: the moment of the close. enabled 0: the ring is kept, nothing fires.
// Slots read: HINDSIGHT_THRESHOLD, HINDSIGHT_LABEL, HINDSIGHT_FORWARD_LOOKAHEAD.
extern "C" __global__ void rl_hindsight_forward(const int* cursor, const float* bid_px, const float* ask_px,
                                                const unsigned char* event, const float* event_entry,
                                                const int* event_side, const int* event_lots, const float* event_pnl,
                                                const int* position_before, const int* position_after,
                                                const signed char* action, const unsigned char* push_pending,
                                                const unsigned char* push_count, const int* push_offset,
                                                const int* push_base, const unsigned int* store_birth, const unsigned int* store_row,
                                                const unsigned char* store_source, const unsigned int* replay_state,
                                                const float* isv, unsigned char* closed_valid, float* closed_entry,
                                                unsigned int* closed_birth, int* closed_side, int* closed_lots,
                                                float* closed_pnl, unsigned int* closed_slot, int* closed_held,
                                                int* closed_after, signed char* closed_action,
                                                unsigned int* closed_next, unsigned char* candidate_fire,
                                                float* candidate_usd, unsigned int* candidate_birth,
                                                unsigned int* candidate_slot, int* candidate_n,
                                                signed char* candidate_lots, signed char* candidate_action,
                                                int* candidate_state, int enabled, float tick_value_usd, float fee_usd,
                                                int C, int T, int B) {
    const int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= B) return;
    const unsigned int clock = replay_state[REPLAY_CLOCK] - (unsigned int)T;
    const float lookahead = isv[ISV_HINDSIGHT_FORWARD_LOOKAHEAD];
    ClosedRing ring = closed_ring(closed_valid, closed_birth, closed_next, b);
    for (int t = 0; t < T; ++t) {
        const bool closes = event[(long long)t * B + b] != 0;
        const unsigned int birth = clock + (unsigned int)t + 1u;
        const unsigned int slot = closes ? pushed_slot(push_pending, push_count, push_offset, push_base, replay_state,
                                                       birth, NO_SLOT, C, T, B, b)
                                         : NO_SLOT;
        candidate_fire[((long long)T + t) * B + b] = hindsight_forward_step(
            cursor, bid_px, ask_px, event_entry, event_side, event_lots, event_pnl, position_before, position_after,
            action, store_birth, store_row, store_source, replay_state, isv, closed_valid, closed_entry, closed_birth, closed_side, closed_lots, closed_pnl,
            closed_slot, closed_held, closed_after, closed_action, candidate_usd, candidate_birth, candidate_slot,
            candidate_n, candidate_lots, candidate_action, candidate_state, closes, slot, &ring, enabled, tick_value_usd, fee_usd, clock, lookahead, C, T, B, t, b);
    }
    closed_next[b] = ring.next;
}
