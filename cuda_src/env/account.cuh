// Rows of the kernel in account.cu.
// See actions.cuh for what a row function is.
#pragma once
#include "env/book.cuh"
#include "include/math.cuh"

#define STEPS_SATURATED 1000000000  // counters of steps stop here

static __device__ inline int lots_abs(int lots) { return lots < 0 ? -lots : lots; }

// One fill, split into the part that closes and the part that opens. A flip is a close, then an open.
struct FillSplit {
    int side, closing, opening;                     // +1 / -1; lots
    long long closing_price_lots, opening_price_lots;  // ticks x lots
};

static __device__ inline FillSplit split_fill(int position, int fill, long long price_lots,
                                              long long close_price_lots) {
    FillSplit split;
    split.side = fill > 0 ? 1 : -1;
    int lots = lots_abs(fill), held = lots_abs(position);
    split.closing = position * split.side < 0 ? (lots < held ? lots : held) : 0;
    split.opening = lots - split.closing;
    split.closing_price_lots = close_price_lots;
    split.opening_price_lots = price_lots - close_price_lots;
    return split;
}

// extract_realized_pnl_delta, row b.
static __device__ inline void extract_realized_pnl_delta_row(
    const int* cursor, const int* episode_end, const float* bid_px, const float* ask_px, const int* fill_lots,
    const long long* fill_price_lots, const long long* fill_close_price_lots, int* position_lots, double* entry_basis,
    long long* cash_ticks, long long* fee_sides, float* trade_pnl_usd, int* trade_open_step, int* trade_lots_max,
    float* trade_best_mid, float* trade_entry_mid, int* steps_since_close, float* entry_vwap, float* realised_usd,
    float* fees_usd, float* equity_usd, int* position_after, float* realised_delta_usd, float* pnl_step_usd,
    unsigned char* closed, unsigned char* terminal, unsigned char* truncated, float* closed_trade_pnl_usd,
    int* closed_trade_steps, int* closed_trade_lots, float* closed_excursion_usd, int latency, float tick_value_usd,
    float fee_usd, int realised_reward, int t, int B, int b) {
    long long at = (long long)t * B + b, decision = (long long)cursor[b] + t;
    bool last_step = decision + 1 >= episode_end[b];
    int before = position_lots[b], fill = fill_lots[at], after = before + fill;
    FillSplit split = split_fill(before, fill, fill_price_lots[at], fill_close_price_lots[at]);
    bool closes = before != 0 && (after == 0 || (before > 0) != (after > 0));
    bool opens = after != 0 && (before == 0 || closes);

    // Totals.
    double basis = entry_basis[b];
    double released = split.closing > 0 ? basis * split.closing / lots_abs(before) : 0.0;
    double gross = split.closing > 0 ? -(double)(split.side * split.closing_price_lots) - released : 0.0;
    basis = after == 0 ? 0.0 : basis - released + (double)(split.side * split.opening_price_lots);
    long long cash_change = fill != 0 ? -split.side * fill_price_lots[at] : 0;
    long long cash = cash_ticks[b] + cash_change, sides = fee_sides[b] + lots_abs(fill);
    long long mid_twice = book_mid_twice(bid_px, ask_px, decision);
    long long next_twice = book_mid_twice(bid_px, ask_px, decision + 1);
    long long change_twice = 2 * cash_change + after * next_twice - before * mid_twice;
    double tick = (double)tick_value_usd, fee = (double)fee_usd;
    position_lots[b] = after;
    entry_basis[b] = basis;
    cash_ticks[b] = cash;
    fee_sides[b] = sides;
    entry_vwap[b] = after != 0 ? (float)(basis / after) : 0.0f;
    realised_usd[b] = (float)(((double)cash + basis) * tick - (double)sides * fee);
    fees_usd[b] = (float)((double)sides * fee);
    equity_usd[b] = (float)(0.5 * (double)(2 * cash + after * next_twice) * tick - (double)sides * fee);
    position_after[at] = after;
    realised_delta_usd[at] = (float)(gross * tick - (double)lots_abs(fill) * fee);
    pnl_step_usd[at] = (float)(0.5 * (double)change_twice * tick - (double)lots_abs(fill) * fee);

    // Flags.
    closed[at] = closes;
    terminal[at] = closes && realised_reward != 0;
    truncated[at] = decision + 1 == episode_end[b];
    int since = steps_since_close[b];
    steps_since_close[b] = closes ? 0 : (since < STEPS_SATURATED ? since + 1 : since);

    // The trade that was open.
    float fill_mid = book_mid(bid_px, ask_px, fill_snapshot(decision, latency, last_step));
    float next_mid = 0.5f * (float)next_twice;
    float direction = before > 0 ? 1.0f : -1.0f;
    float seen = closes ? fill_mid : next_mid;  // a close stops watching at its own book
    float best = trade_best_mid[b];
    if (before != 0 && direction * seen > direction * best) best = seen;
    float trade_pnl = trade_pnl_usd[b] + (float)(gross * tick - (double)split.closing * fee);
    int age = trade_open_step[b] + 1, lots_max = trade_lots_max[b];
    closed_trade_pnl_usd[at] = closes ? trade_pnl : 0.0f;
    closed_trade_steps[at] = closes ? age : 0;
    closed_trade_lots[at] = closes ? lots_max : 0;
    closed_excursion_usd[at] =
        closes ? direction * (best - trade_entry_mid[b]) * (float)lots_max * tick_value_usd : 0.0f;

    // The trade that is open now.
    float opening_fees = (float)((double)split.opening * fee);
    if (opens) {
        trade_entry_mid[b] = fill_mid;
        best = (float)after * next_mid > (float)after * fill_mid ? next_mid : fill_mid;
    }
    trade_pnl_usd[b] = after == 0 ? 0.0f : (opens ? -opening_fees : trade_pnl - opening_fees);
    trade_open_step[b] = after == 0 || opens ? 0 : age;
    trade_lots_max[b] = after == 0 ? 0 : (opens || lots_abs(after) > lots_max ? lots_abs(after) : lots_max);
    trade_best_mid[b] = after == 0 ? 0.0f : best;
}
