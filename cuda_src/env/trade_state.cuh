// Rows of the kernels in trade_state.cu.
// See actions.cuh for what a row function is.
#pragma once
#include "env/account.cuh"
#include "env/book.cuh"
#include "env/signal.cuh"
#include "env/units.cuh"

#define CONTEXT_AGE_SCALE 256.0f   // steps: time in trade is divided by this
#define CONTEXT_R_BOUND 10.0f      // R: bound of both features in R, for a unit opened on a quiet market has a tiny R
#define NEVER_CLOSED 1000000000    // steps_since_close of a row that has not closed yet

// rl_rollout_begin, row b.
static __device__ inline void rollout_begin_row(
    const unsigned char* new_episode, const int* position_lots, float* context, int* position_class,
    float* trade_pnl_usd, int* trade_open_step, int* trade_lots_max, float* trade_best_mid, float* trade_entry_mid,
    int* steps_since_close, int* pending_target, int* pending_steps, float* unit_entry, float* unit_best_mid,
    int* unit_age, int* unit_lots, float* unit_initial_r, float* unit_trail, unsigned char* unit_marked, int lot_limit,
    int T, int B, int b) {
    bool fresh = new_episode[b] != 0;
    long long last = ((long long)T * B + b) * HEAD_CONTEXT_DIM, first = (long long)b * HEAD_CONTEXT_DIM;
    for (int i = 0; i < HEAD_CONTEXT_DIM; ++i) context[first + i] = fresh ? 0.0f : context[last + i];
    position_class[b] = position_lots[b] + lot_limit;
    if (!fresh) return;
    trade_pnl_usd[b] = 0.0f;
    trade_open_step[b] = 0;
    trade_lots_max[b] = 0;
    trade_best_mid[b] = 0.0f;
    trade_entry_mid[b] = 0.0f;
    steps_since_close[b] = NEVER_CLOSED;
    pending_target[b] = 0;
    pending_steps[b] = 0;
    for (int u = b * MAX_UNITS; u < (b + 1) * MAX_UNITS; ++u) {
        unit_entry[u] = 0.0f;
        unit_best_mid[u] = 0.0f;
        unit_age[u] = 0;
        unit_lots[u] = 0;
        unit_initial_r[u] = 0.0f;
        unit_trail[u] = 0.0f;
        unit_marked[u] = 0;
    }
}

// rl_unit_state_update. before: position before the fill; mid_traded: of the fill's book, whose regime is `regime`;
// mid_next: behind the step.
static __device__ inline void unit_state_update_row(UnitRow row, int before, const Fill& fill, float mid_traded,
                                                    const float* regime, float mid_next, const float* isv,
                                                    float tick_value_usd) {
    int after = before + fill.lots;
    FillSplit split = split_fill(before, fill.lots, fill.price_lots, fill.close_price_lots);
    if (split.closing > 0) {
        units_close(row.lots, row.marked, split.closing);
        units_compact(row);
    }
    int active = units_active(row.lots);
    for (int u = 0; u < MAX_UNITS; ++u) row.age[u] += u < active ? 1 : 0;

    if (split.opening > 0) {
        float trail = initial_trail(isv, regime[REGIME_VOLATILITY_10S], tick_value_usd);
        float price = (float)((double)split.opening_price_lots / split.opening);
#pragma unroll
        for (int u = 0; u < MAX_UNITS; ++u) {
            if (u == active) unit_open(row, u, price, mid_traded, trail);
            if (u == active || (u == MAX_UNITS - 1 && active == MAX_UNITS)) row.lots[u] += split.opening;
        }
    }
    float direction = after > 0 ? 1.0f : -1.0f;
    for (int u = 0; u < MAX_UNITS; ++u) {
        if (row.lots[u] > 0 && direction * mid_next > direction * row.best[u]) row.best[u] = mid_next;
    }
    if (fill.lots != 0) {
        for (int u = 0; u < MAX_UNITS; ++u) row.marked[u] = 0;
    }
}

// rl_trade_context_update: what the heads see, context [HEAD_CONTEXT_DIM]. mid: behind the step.
static __device__ inline void trade_context_update_row(float mid, int position, int trade_open_step,
                                                       float trade_best_mid, const float* unit_entry,
                                                       const float* unit_initial_r, const int* unit_lots,
                                                       float* context) {
    int direction = position > 0 ? 1 : -1, held = position * direction;
    float risk = units_weighted(unit_initial_r, unit_lots);
    float unrealised = units_unrealised(unit_entry, unit_lots, direction, mid);
    float drawdown = (float)(direction * held) * (trade_best_mid - mid);
    bool open = position != 0;
    context[0] = open ? (float)trade_open_step / CONTEXT_AGE_SCALE : 0.0f;
    context[1] = open ? clampf(units_unrealised_r(unrealised, risk), -CONTEXT_R_BOUND, CONTEXT_R_BOUND) : 0.0f;
    context[2] = open ? clampf(units_unrealised_r(drawdown, risk), -CONTEXT_R_BOUND, CONTEXT_R_BOUND) : 0.0f;
}

// rl_recent_outcome_update.
static __device__ inline void recent_outcome_update_row(bool closed, float closed_trade_pnl_usd, const float* isv,
                                                        float* outcome) {
    if (closed) *outcome = ema_first(*outcome, signf(closed_trade_pnl_usd), isv[ISV_OUTCOME_ALPHA]);
}
