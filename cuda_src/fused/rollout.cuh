// One row of the environment through all steps of an iteration, with what it carries in registers.
//
// rollout_step does what the kernels of one step do, by the same row functions in the same order; every buffer of the
// step is written as they write it, so that whoever reads it later cannot tell the difference. A kernel of a rollout is
// a loop over t: draw, rollout_step. Rows do not know of each other.
#pragma once
#include "env/account.cuh"
#include "env/actions.cuh"
#include "env/fill.cuh"
#include "env/stops.cuh"
#include "env/trade_state.cuh"

// The buffers, as the kernels in env/ know them.
struct Environment {
    const int *cursor, *episode_end;
    const float *bid_px, *bid_sz, *ask_px, *ask_sz, *regime, *isv;
    int* position_lots;
    double* entry_basis;
    long long *cash_ticks, *fee_sides;
    float* trade_pnl_usd;
    int *trade_open_step, *trade_lots_max;
    float *trade_best_mid, *trade_entry_mid;
    int *steps_since_close, *pending_target, *pending_steps;
    float *outcome_ema, *unit_entry, *unit_best_mid;
    int *unit_age, *unit_lots;
    float *unit_initial_r, *unit_trail;
    unsigned char* unit_marked;
    float *entry_vwap, *realised_usd, *fees_usd, *equity_usd, *context;
    int* position_class;
    signed char* action;
    unsigned char *override_reason, *overridden;
    float* unrealised_usd;
    int *held_steps, *market_target, *position_before, *fill_lots;
    long long *fill_price_lots, *fill_close_price_lots;
    float *fill_vwap, *fill_cost_usd;
    int *unfilled_lots, *position_after;
    float *realised_delta_usd, *pnl_step_usd;
    unsigned char *closed, *terminal, *truncated;
    float* closed_trade_pnl_usd;
    int *closed_trade_steps, *closed_trade_lots;
    float* closed_excursion_usd;
};
// An Environment from the parameters of a kernel, which are called like its members; here they stand in their order.
#define ROLLOUT_ENVIRONMENT                                                                                         \
    {cursor, episode_end, bid_px, bid_sz, ask_px, ask_sz, regime, isv, position_lots, entry_basis, cash_ticks,      \
     fee_sides, trade_pnl_usd, trade_open_step, trade_lots_max, trade_best_mid, trade_entry_mid, steps_since_close, \
     pending_target, pending_steps, outcome_ema, unit_entry, unit_best_mid, unit_age, unit_lots, unit_initial_r,    \
     unit_trail, unit_marked, entry_vwap, realised_usd, fees_usd, equity_usd, context, position_class, action,      \
     override_reason, overridden, unrealised_usd, held_steps, market_target, position_before, fill_lots,            \
     fill_price_lots, fill_close_price_lots, fill_vwap, fill_cost_usd, unfilled_lots, position_after,               \
     realised_delta_usd, pnl_step_usd, closed, terminal, truncated, closed_trade_pnl_usd, closed_trade_steps,       \
     closed_trade_lots, closed_excursion_usd}

// What does not change in a run, and the number of rows.
struct Rules {
    int latency;
    float tick_value_usd, fee_usd;
    int lot_limit, ratchet, since_close, realised_reward, B;
};
#define ROLLOUT_RULES {latency, tick_value_usd, fee_usd, lot_limit, ratchet, since_close, realised_reward, B}

// What a row carries from step to step; now: best prices of the snapshot at which it decides.
struct RolloutRow {
    Account account;
    int pending_target, pending_steps;
    float outcome;
    float unit_entry[MAX_UNITS], unit_best_mid[MAX_UNITS], unit_initial_r[MAX_UNITS], unit_trail[MAX_UNITS];
    int unit_age[MAX_UNITS], unit_lots[MAX_UNITS];
    unsigned char unit_marked[MAX_UNITS];
    float context[HEAD_CONTEXT_DIM];
    long long cursor, episode_end;
    BestPrices now;
};

// Row b before step t.
static __device__ inline RolloutRow rollout_load(const Environment& env, int t, int B, int b) {
    RolloutRow row;
    row.account = {env.position_lots[b],   env.entry_basis[b],     env.cash_ticks[b],     env.fee_sides[b],
                   env.trade_pnl_usd[b],   env.trade_open_step[b], env.trade_lots_max[b], env.trade_best_mid[b],
                   env.trade_entry_mid[b], env.steps_since_close[b]};
    row.pending_target = env.pending_target[b];
    row.pending_steps = env.pending_steps[b];
    row.outcome = env.outcome_ema[b];
    for (int u = 0; u < MAX_UNITS; ++u) {
        const long long at = (long long)b * MAX_UNITS + u;
        row.unit_entry[u] = env.unit_entry[at];
        row.unit_best_mid[u] = env.unit_best_mid[at];
        row.unit_initial_r[u] = env.unit_initial_r[at];
        row.unit_trail[u] = env.unit_trail[at];
        row.unit_age[u] = env.unit_age[at];
        row.unit_lots[u] = env.unit_lots[at];
        row.unit_marked[u] = env.unit_marked[at];
    }
    const float* held = env.context + ((long long)t * B + b) * HEAD_CONTEXT_DIM;
    for (int i = 0; i < HEAD_CONTEXT_DIM; ++i) row.context[i] = held[i];
    row.cursor = env.cursor[b];
    row.episode_end = env.episode_end[b];
    row.now = book_best(env.bid_px, env.ask_px, row.cursor + t);
    return row;
}

// Row b behind the last step; there was at least one.
static __device__ inline void rollout_store(const Environment& env, const Rules& rules, const RolloutRow& row, int b) {
    const AccountTotals totals = account_totals(row.account, row.now, rules.tick_value_usd, rules.fee_usd);
    env.position_lots[b] = row.account.position;
    env.entry_basis[b] = row.account.entry_basis;
    env.cash_ticks[b] = row.account.cash_ticks;
    env.fee_sides[b] = row.account.fee_sides;
    env.trade_pnl_usd[b] = row.account.trade_pnl_usd;
    env.trade_open_step[b] = row.account.trade_open_step;
    env.trade_lots_max[b] = row.account.trade_lots_max;
    env.trade_best_mid[b] = row.account.trade_best_mid;
    env.trade_entry_mid[b] = row.account.trade_entry_mid;
    env.steps_since_close[b] = row.account.steps_since_close;
    env.entry_vwap[b] = totals.entry_vwap;
    env.realised_usd[b] = totals.realised_usd;
    env.fees_usd[b] = totals.fees_usd;
    env.equity_usd[b] = totals.equity_usd;
    env.pending_target[b] = row.pending_target;
    env.pending_steps[b] = row.pending_steps;
    env.outcome_ema[b] = row.outcome;
    for (int u = 0; u < MAX_UNITS; ++u) {
        const long long at = (long long)b * MAX_UNITS + u;
        env.unit_entry[at] = row.unit_entry[u];
        env.unit_best_mid[at] = row.unit_best_mid[u];
        env.unit_initial_r[at] = row.unit_initial_r[u];
        env.unit_trail[at] = row.unit_trail[u];
        env.unit_age[at] = row.unit_age[u];
        env.unit_lots[at] = row.unit_lots[u];
        env.unit_marked[at] = row.unit_marked[u];
    }
}

// Minimum hold and stops: what the drawn action becomes. A later override wins.
static __device__ inline void rollout_override(const Environment& env, const Rules& rules, RolloutRow* row, int t,
                                               long long at, signed char* action, unsigned char* reason) {
    const int position = row->account.position, pending = row->pending_steps;
    const float mid = best_mid(row->now);
    float unrealised;
    int held;
    min_hold_check_row(position, rules.since_close ? row->account.steps_since_close : row->account.trade_open_step,
                       env.isv, action, reason);
    trail_mutate_row(*action, row->unit_lots, env.isv, row->unit_trail);
    trail_stop_check_row(mid, position, pending, row->unit_entry, row->unit_best_mid, row->unit_trail, row->unit_lots,
                         row->unit_marked, action, reason, rules.ratchet);
    drawdown_stop_row(mid, position, pending, row->account.trade_open_step, row->unit_entry, row->unit_initial_r,
                      row->unit_lots, env.isv, &unrealised, &held, action, reason, rules.tick_value_usd);
    heat_cap_row(env.regime + (row->cursor + t) * N_REGIME, position, pending, row->unit_trail, row->unit_lots,
                 row->outcome, env.isv, action, reason, rules.tick_value_usd, rules.lot_limit);
    env.unrealised_usd[at] = unrealised;
    env.held_steps[at] = held;
}

// The fill's part of what step t leaves behind.
static __device__ inline void rollout_write_fill(const Environment& env, const Fill& fill, long long at) {
    env.fill_lots[at] = fill.lots;
    env.fill_price_lots[at] = fill.price_lots;
    env.fill_close_price_lots[at] = fill.close_price_lots;
    env.fill_vwap[at] = fill.vwap;
    env.fill_cost_usd[at] = fill.cost_usd;
    env.unfilled_lots[at] = fill.unfilled;
}

// The account's part.
static __device__ inline void rollout_write_step(const Environment& env, const Rules& rules, const AccountStep& step,
                                                 int position, bool truncated, long long at) {
    env.position_after[at] = position;
    env.realised_delta_usd[at] = step.realised_delta_usd;
    env.pnl_step_usd[at] = step.pnl_step_usd;
    env.closed[at] = step.closed;
    env.terminal[at] = step.closed && rules.realised_reward != 0;
    env.truncated[at] = truncated;
    env.closed_trade_pnl_usd[at] = step.closed_trade_pnl_usd;
    env.closed_trade_steps[at] = step.closed_trade_steps;
    env.closed_trade_lots[at] = step.closed_trade_lots;
    env.closed_excursion_usd[at] = step.closed_excursion_usd;
}

// Step t from the drawn action on, with action and reason as the gates left them. next: best prices behind the step.
static __device__ inline void rollout_execute(const Environment& env, const Rules& rules, RolloutRow* row,
                                              BestPrices next, int drawn, signed char action, unsigned char reason,
                                              int t, int b) {
    const long long at = (long long)t * rules.B + b, decision = row->cursor + t;
    const bool last_step = decision + 1 >= row->episode_end;
    rollout_override(env, rules, row, t, at, &action, &reason);
    const int before = row->account.position;
    const int target = actions_to_market_targets_row(action, reason, before, row->unit_lots, row->unit_marked,
                                                     row->outcome, env.isv, rules.lot_limit);
    const Fill fill = lobsim_fill_row(env.bid_px, env.bid_sz, env.ask_px, env.ask_sz, decision, last_step, before,
                                      target, &row->pending_target, &row->pending_steps, rules.latency,
                                      rules.tick_value_usd, rules.fee_usd);
    const long long book = fill_snapshot(decision, rules.latency, last_step);
    const BestPrices traded = book == decision ? row->now : next;
    const AccountStep step = extract_realized_pnl_delta_row(fill, row->now, next, traded, rules.tick_value_usd,
                                                            rules.fee_usd, &row->account);
    const UnitRow units = {row->unit_entry, row->unit_best_mid, row->unit_initial_r, row->unit_trail,
                           row->unit_age,   row->unit_lots,     row->unit_marked};
    unit_state_update_row(units, before, fill, best_mid(traded), env.regime + book * N_REGIME, best_mid(next), env.isv,
                          rules.tick_value_usd);
    trade_context_update_row(best_mid(next), row->account.position, row->account.trade_open_step,
                             row->account.trade_best_mid, row->unit_entry, row->unit_initial_r, row->unit_lots,
                             row->context);
    recent_outcome_update_row(step.closed, step.closed_trade_pnl_usd, env.isv, &row->outcome);
    row->now = next;

    env.action[at] = action;
    env.override_reason[at] = reason;
    env.overridden[at] = action != drawn;
    env.market_target[at] = target;
    env.position_before[at] = before;
    rollout_write_fill(env, fill, at);
    rollout_write_step(env, rules, step, row->account.position, decision + 1 == row->episode_end, at);
    for (int i = 0; i < HEAD_CONTEXT_DIM; ++i) env.context[(at + rules.B) * HEAD_CONTEXT_DIM + i] = row->context[i];
    env.position_class[at + rules.B] = row->account.position + rules.lot_limit;
}

// Step t of a row without entry gates.
static __device__ inline void rollout_step(const Environment& env, const Rules& rules, RolloutRow* row, BestPrices next,
                                           int drawn, int t, int b) {
    signed char action;
    unsigned char reason;
    action_begin_row(drawn, row->pending_steps, &action, &reason);
    rollout_execute(env, rules, row, next, drawn, action, reason, t, b);
}
