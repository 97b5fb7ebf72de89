// State of the open trade after the fill: units, the trade context at the heads, the row's recent outcome; and the
// start of an iteration. One thread a row.
#include "env/trade_state.cuh"

// rl_rollout_begin: slice 0 of context and position_class from where the last iteration ended.
// A row on a new episode starts flat: trade, unit and order state is cleared, account totals and the outcome EMA stay.
// (Its position is 0: the last step of an episode closes it.)
// context [T+1, B, HEAD_CONTEXT_DIM], position_class [T+1, B] (signed lots + lot_limit).
// launch: threads B, block 64
// updates: context, position_class, trade_pnl_usd, trade_open_step, trade_lots_max, trade_best_mid, trade_entry_mid
// updates: steps_since_close, pending_target, pending_steps, unit_entry, unit_best_mid, unit_age, unit_lots
// updates: unit_initial_r, unit_trail, unit_marked
extern "C" __global__ void rl_rollout_begin(
    const unsigned char* new_episode, const int* position_lots, float* context, int* position_class,
    float* trade_pnl_usd, int* trade_open_step, int* trade_lots_max, float* trade_best_mid, float* trade_entry_mid,
    int* steps_since_close, int* pending_target, int* pending_steps, float* unit_entry, float* unit_best_mid,
    int* unit_age, int* unit_lots, float* unit_initial_r, float* unit_trail, unsigned char* unit_marked, int lot_limit,
    int T, int B) {
    int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= B) return;
    rollout_begin_row(
        new_episode, position_lots, context, position_class, trade_pnl_usd, trade_open_step, trade_lots_max,
        trade_best_mid, trade_entry_mid, steps_since_close, pending_target, pending_steps, unit_entry, unit_best_mid,
        unit_age, unit_lots, unit_initial_r, unit_trail, unit_marked, lot_limit, T, B, b);
}

// rl_unit_state_update: units after the fill of slice t.
// A fill against the position closes lots, marked units first, then the oldest; what opens or adds becomes a new unit at
// the volume-weighted price of the opening part, with the initial trail of the fill's book as trail and initial R. A
// reversal closes all, then opens one. Every unit's best mid follows the mid at cursor + t + 1. Marks end with the fill
// they caused.
// An opening part beyond MAX_UNITS cannot occur (targets refuse the add); it would join the youngest unit.
// Reads slots TRAIL_K_INIT, TRAIL_MIN, TRAIL_MAX, MEAN_ABS_PNL_EMA, CLOSED_LOTS_EMA.
// launch: threads B, block 64
// updates: unit_entry, unit_best_mid, unit_age, unit_lots, unit_initial_r, unit_trail, unit_marked
extern "C" __global__ void rl_unit_state_update(
    const int* cursor, const int* episode_end, const float* bid_px, const float* ask_px, const float* regime,
    const int* position_before, const int* fill_lots, const long long* fill_price_lots,
    const long long* fill_close_price_lots, const float* isv, float* unit_entry, float* unit_best_mid, int* unit_age,
    int* unit_lots, float* unit_initial_r, float* unit_trail, unsigned char* unit_marked, int latency,
    float tick_value_usd, int t, int B) {
    int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= B) return;
    long long at = (long long)t * B + b, unit = (long long)b * MAX_UNITS, decision = (long long)cursor[b] + t;
    long long traded = fill_snapshot(decision, latency, decision + 1 >= episode_end[b]);
    UnitRow row = {unit_entry + unit, unit_best_mid + unit, unit_initial_r + unit, unit_trail + unit,
                   unit_age + unit,   unit_lots + unit,     unit_marked + unit};
    Fill fill = {fill_lots[at], fill_price_lots[at], fill_close_price_lots[at], 0.0f, 0.0f, 0};
    unit_state_update_row(row, position_before[at], fill, book_mid(bid_px, ask_px, traded), regime + traded * N_REGIME,
                          book_mid(bid_px, ask_px, decision + 1), isv, tick_value_usd);
}

// rl_trade_context_update: slice t + 1 of what the heads see of the trade, at the mid of cursor + t + 1:
//   context = [time in trade / 256, unrealised R, drawdown from the trade's best mid / mean initial R (>= 0)],
// the last two within +-CONTEXT_R_BOUND; zeros when flat; position_class = signed lots + lot_limit.
// launch: threads B, block 64
extern "C" __global__ void rl_trade_context_update(
    const int* cursor, const float* bid_px, const float* ask_px, const int* position_lots, const int* trade_open_step,
    const float* trade_best_mid, const float* unit_entry, const float* unit_initial_r, const int* unit_lots,
    float* context, int* position_class, int lot_limit, int t, int B) {
    int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= B) return;
    long long at = (long long)(t + 1) * B + b, unit = (long long)b * MAX_UNITS;
    float mid = book_mid(bid_px, ask_px, (long long)cursor[b] + t + 1);
    trade_context_update_row(mid, position_lots[b], trade_open_step[b], trade_best_mid[b], unit_entry + unit,
                             unit_initial_r + unit, unit_lots + unit, context + at * HEAD_CONTEXT_DIM);
    position_class[at] = position_lots[b] + lot_limit;
}

// rl_recent_outcome_update: on a close, the row's EMA of sign(trade PnL), in [-1, 1].
// The first outcome is taken as it is, a trade of exactly zero PnL counts as 0. Reads slot OUTCOME_ALPHA.
// launch: threads B, block 64
// updates: outcome_ema
extern "C" __global__ void rl_recent_outcome_update(
    const unsigned char* closed, const float* closed_trade_pnl_usd, const float* isv, float* outcome_ema, int t,
    int B) {
    int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= B) return;
    long long at = (long long)t * B + b;
    recent_outcome_update_row(closed[at] != 0, closed_trade_pnl_usd[at], isv, outcome_ema + b);
}
