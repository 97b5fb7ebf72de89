// Rows of the kernels in trade_state.cu.
// See actions.cuh for what a row function is.
#pragma once
#include "env/book.cuh"
#include "env/units.cuh"
#include "env/signal.cuh"

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

// The row's units as pointers to its MAX_UNITS elements.
struct UnitRow {
    float *entry, *best, *initial_r, *trail;
    int *age, *lots;
};

static __device__ inline void unit_copy(UnitRow row, int from, int to) {
    row.entry[to] = row.entry[from];
    row.best[to] = row.best[from];
    row.initial_r[to] = row.initial_r[from];
    row.trail[to] = row.trail[from];
    row.age[to] = row.age[from];
    row.lots[to] = row.lots[from];
}

// Everything of an inactive unit is zero.
static __device__ inline void unit_clear(UnitRow row, int u) {
    row.entry[u] = row.best[u] = row.initial_r[u] = row.trail[u] = 0.0f;
    row.age[u] = row.lots[u] = 0;
}

// Moves active units to the front, order kept, and clears the rest; returns how many are active.
static __device__ inline int units_compact(UnitRow row) {
    int kept = 0;
    for (int u = 0; u < MAX_UNITS; ++u) {
        if (row.lots[u] <= 0) continue;
        if (u != kept) unit_copy(row, u, kept);
        ++kept;
    }
    for (int u = kept; u < MAX_UNITS; ++u) unit_clear(row, u);
    return kept;
}

// rl_unit_state_update, row b.
static __device__ inline void unit_state_update_row(
    const int* cursor, const int* episode_end, const float* bid_px, const float* ask_px, const float* regime,
    const int* position_before, const int* fill_lots, const long long* fill_price_lots,
    const long long* fill_close_price_lots, const float* isv, float* unit_entry, float* unit_best_mid, int* unit_age,
    int* unit_lots, float* unit_initial_r, float* unit_trail, unsigned char* unit_marked, int latency,
    float tick_value_usd, int t, int B, int b) {
    long long at = (long long)t * B + b, unit = (long long)b * MAX_UNITS, decision = (long long)cursor[b] + t;
    UnitRow row = {unit_entry + unit, unit_best_mid + unit, unit_initial_r + unit,
                   unit_trail + unit, unit_age + unit,      unit_lots + unit};
    unsigned char* marked = unit_marked + unit;
    int before = position_before[at], fill = fill_lots[at], after = before + fill;
    int lots = fill < 0 ? -fill : fill, held = before < 0 ? -before : before;
    int closing = before * fill < 0 ? (lots < held ? lots : held) : 0;
    if (closing > 0) units_close(row.lots, marked, closing);
    int active = units_compact(row);
    for (int u = 0; u < active; ++u) row.age[u] += 1;

    if (lots > closing) {
        long long opening_price_lots = fill_price_lots[at] - fill_close_price_lots[at];
        long long book = fill_snapshot(decision, latency, decision + 1 >= episode_end[b]);
        float trail = initial_trail(isv, regime[book * N_REGIME + REGIME_VOLATILITY_10S], tick_value_usd);
        int u = active < MAX_UNITS ? active : MAX_UNITS - 1;
        if (active < MAX_UNITS) {
            unit_clear(row, u);
            row.entry[u] = (float)((double)opening_price_lots / (lots - closing));
            row.best[u] = book_mid(bid_px, ask_px, book);
            row.initial_r[u] = trail;
            row.trail[u] = trail;
            active += 1;
        }
        row.lots[u] += lots - closing;
    }
    float mid = book_mid(bid_px, ask_px, decision + 1), direction = after > 0 ? 1.0f : -1.0f;
    for (int u = 0; u < active; ++u) {
        if (direction * mid > direction * row.best[u]) row.best[u] = mid;
    }
    if (fill != 0) {
        for (int u = 0; u < MAX_UNITS; ++u) marked[u] = 0;
    }
}

// rl_trade_context_update, row b.
static __device__ inline void trade_context_update_row(
    const int* cursor, const float* bid_px, const float* ask_px, const int* position_lots, const int* trade_open_step,
    const float* trade_best_mid, const float* unit_entry, const float* unit_initial_r, const int* unit_lots,
    float* context, int* position_class, int lot_limit, int t, int B, int b) {
    long long at = (long long)(t + 1) * B + b, unit = (long long)b * MAX_UNITS;
    int position = position_lots[b], direction = position > 0 ? 1 : -1, held = position * direction;
    float mid = book_mid(bid_px, ask_px, (long long)cursor[b] + t + 1);
    float risk = units_weighted(unit_initial_r + unit, unit_lots + unit);
    float unrealised = units_unrealised(unit_entry + unit, unit_lots + unit, direction, mid);
    float drawdown = (float)(direction * held) * (trade_best_mid[b] - mid);
    bool open = position != 0;
    float* out = context + at * HEAD_CONTEXT_DIM;
    out[0] = open ? (float)trade_open_step[b] / CONTEXT_AGE_SCALE : 0.0f;
    out[1] = open ? clampf(units_unrealised_r(unrealised, risk), -CONTEXT_R_BOUND, CONTEXT_R_BOUND) : 0.0f;
    out[2] = open ? clampf(units_unrealised_r(drawdown, risk), -CONTEXT_R_BOUND, CONTEXT_R_BOUND) : 0.0f;
    position_class[at] = position + lot_limit;
}

// rl_recent_outcome_update, row b.
static __device__ inline void recent_outcome_update_row(
    const unsigned char* closed, const float* closed_trade_pnl_usd, const float* isv, float* outcome_ema, int t, int B,
    int b) {
    long long at = (long long)t * B + b;
    if (!closed[at]) return;
    outcome_ema[b] = ema_first(outcome_ema[b], signf(closed_trade_pnl_usd[at]), isv[ISV_OUTCOME_ALPHA]);
}
