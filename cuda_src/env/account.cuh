// Rows of the kernel in account.cu.
// See actions.cuh for what a row function is.
#pragma once
#include "env/book.cuh"
#include "env/fill.cuh"
#include "include/math.cuh"

#define STEPS_SATURATED 1000000000  // counters of steps stop here

// What an account carries from step to step; units as in buffers/env.py.
struct Account {
    int position;
    double entry_basis;
    long long cash_ticks, fee_sides;
    float trade_pnl_usd;
    int trade_open_step, trade_lots_max;
    float trade_best_mid, trade_entry_mid;
    int steps_since_close;
};

// Its totals, which follow from it and the mid.
struct AccountTotals {
    float entry_vwap, realised_usd, fees_usd, equity_usd;
};

// What a step did to it.
struct AccountStep {
    float realised_delta_usd, pnl_step_usd;
    bool closed;
    float closed_trade_pnl_usd;
    int closed_trade_steps, closed_trade_lots;
    float closed_excursion_usd;
};

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

// Totals of an account at the mid of `now`.
static __device__ inline AccountTotals account_totals(const Account& account, BestPrices now, float tick_value_usd,
                                                      float fee_usd) {
    double tick = (double)tick_value_usd, fees = (double)account.fee_sides * (double)fee_usd;
    double cash = (double)account.cash_ticks, basis = account.entry_basis;
    double twice = (double)(2 * account.cash_ticks + account.position * best_mid_twice(now));
    return {account.position != 0 ? (float)(basis / account.position) : 0.0f, (float)((cash + basis) * tick - fees),
            (float)fees, (float)(0.5 * twice * tick - fees)};
}

// extract_realized_pnl_delta: fill [lots, price_lots, close_price_lots] applied to account; its totals follow. The best
// prices: now, at the decision; next, behind the step; traded, of the fill's book.
static __device__ inline AccountStep extract_realized_pnl_delta_row(const Fill& fill, BestPrices now, BestPrices next,
                                                                    BestPrices traded, float tick_value_usd,
                                                                    float fee_usd, Account* account) {
    AccountStep step;
    int before = account->position, after = before + fill.lots;
    FillSplit split = split_fill(before, fill.lots, fill.price_lots, fill.close_price_lots);
    bool closes = before != 0 && (after == 0 || (before > 0) != (after > 0));
    bool opens = after != 0 && (before == 0 || closes);

    double basis = account->entry_basis;
    double released = split.closing > 0 ? basis * split.closing / lots_abs(before) : 0.0;
    double gross = split.closing > 0 ? -(double)(split.side * split.closing_price_lots) - released : 0.0;
    basis = after == 0 ? 0.0 : basis - released + (double)(split.side * split.opening_price_lots);
    long long cash_change = fill.lots != 0 ? -split.side * fill.price_lots : 0;
    long long mid_twice = best_mid_twice(now), next_twice = best_mid_twice(next);
    long long change_twice = 2 * cash_change + after * next_twice - before * mid_twice;
    double tick = (double)tick_value_usd, fee = (double)fee_usd;
    account->position = after;
    account->entry_basis = basis;
    account->cash_ticks += cash_change;
    account->fee_sides += lots_abs(fill.lots);
    step.realised_delta_usd = (float)(gross * tick - (double)lots_abs(fill.lots) * fee);
    step.pnl_step_usd = (float)(0.5 * (double)change_twice * tick - (double)lots_abs(fill.lots) * fee);
    step.closed = closes;
    int since = account->steps_since_close;
    account->steps_since_close = closes ? 0 : (since < STEPS_SATURATED ? since + 1 : since);

    // The trade that was open.
    float fill_mid = best_mid(traded), next_mid = 0.5f * (float)next_twice;
    float direction = before > 0 ? 1.0f : -1.0f;
    float seen = closes ? fill_mid : next_mid;  // a close stops watching at its own book
    float best = account->trade_best_mid;
    if (before != 0 && direction * seen > direction * best) best = seen;
    float trade_pnl = account->trade_pnl_usd + (float)(gross * tick - (double)split.closing * fee);
    int age = account->trade_open_step + 1, lots_max = account->trade_lots_max;
    step.closed_trade_pnl_usd = closes ? trade_pnl : 0.0f;
    step.closed_trade_steps = closes ? age : 0;
    step.closed_trade_lots = closes ? lots_max : 0;
    step.closed_excursion_usd =
        closes ? direction * (best - account->trade_entry_mid) * (float)lots_max * tick_value_usd : 0.0f;

    // The trade that is open now.
    float opening_fees = (float)((double)split.opening * fee);
    if (opens) {
        account->trade_entry_mid = fill_mid;
        best = (float)after * next_mid > (float)after * fill_mid ? next_mid : fill_mid;
    }
    account->trade_pnl_usd = after == 0 ? 0.0f : (opens ? -opening_fees : trade_pnl - opening_fees);
    account->trade_open_step = after == 0 || opens ? 0 : age;
    account->trade_lots_max = after == 0 ? 0 : (opens || lots_abs(after) > lots_max ? lots_abs(after) : lots_max);
    account->trade_best_mid = after == 0 ? 0.0f : best;
    return step;
}
