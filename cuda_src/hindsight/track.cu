// What hindsight has to remember of every row's open trade, step by step; and the record of each close.
#include "env/book.cuh"
#include "hindsight/track.cuh"
#include "replay/replay.cuh"

// rl_hindsight_track: mids, peak and size of the open trade; an event record where a trade closed.
// launch: threads B, block 64
// updates: her_mid_ring, her_mids, her_entry, her_peak, her_side, her_lots, her_peak_birth
// updates: her_peak_slot, closed_valid
// One thread a row, after the fill of step t, on the mid and position of the new book (snapshot cursor + t + 1, birth
// clock + t + 1). A row without a position: her_mids 0. First step of a trade: side, entry = peak = mid. Then
// her_mid_ring[min(her_mids, 511)] = mid; a new maximum (long) or minimum (short) is the peak. closed [T,B]: the
// record of slice t is written from the state before this book, then a reversal begins its trade in the same step.
// new_episode [B] at t = 0: no trade is open, closed trades are forgotten (no lookahead crosses an episode).
// Records [T,B]: event 0/1, event_entry, event_peak (ticks), event_side, event_lots (largest), event_pnl (USD),
// event_peak_birth, event_peak_slot. closed_trade_pnl_usd [T,B]. The clock has not been advanced by the push yet.
extern "C" __global__ void rl_hindsight_track(
    const int* cursor, const float* bid_px, const float* ask_px, const unsigned char* new_episode,
    const int* position_after, const unsigned char* closed, const float* closed_trade_pnl_usd,
    const unsigned int* replay_state, float* her_mid_ring, int* her_mids, float* her_entry, float* her_peak,
    int* her_side, int* her_lots, unsigned int* her_peak_birth, unsigned int* her_peak_slot,
    unsigned char* closed_valid, unsigned char* event, float* event_entry, float* event_peak, int* event_side,
    int* event_lots, float* event_pnl, unsigned int* event_peak_birth, unsigned int* event_peak_slot, int t, int B) {
    int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= B) return;
    const HindsightTrades trades = {her_mids, her_entry, her_peak, her_side, her_lots, her_peak_birth, her_peak_slot};
    const HindsightEvents events = {event,      event_entry, event_peak,       event_side,
                                    event_lots, event_pnl,   event_peak_birth, event_peak_slot};
    long long at = (long long)t * B + b;
    HindsightTrade trade = trades.load(b);
    if (t == 0 && new_episode[b]) hindsight_begin_row(&trade, closed_valid + (long long)b * CLOSED_RING);
    float mid = book_mid(bid_px, ask_px, (long long)cursor[b] + t + 1);
    unsigned int birth = replay_state[REPLAY_CLOCK] + (unsigned int)t + 1u;
    HindsightEvent record = hindsight_track_row(&trade, mid, position_after[at], closed[at] != 0, birth,
                                                her_mid_ring + (long long)b * MID_RING);
    events.store(at, record, closed_trade_pnl_usd);
    trades.store(b, trade);
}
