// The rollout in one kernel: the critic's own choices, for evaluation. See rollout.cuh.
#include "fused/rollout.cuh"
#include "nets/policy.cuh"

// rl_rollout_value: all T environment steps of a row, each by the critic's greatest value.
// launch: threads B, block 4
// One thread a row. Parameters are those of the kernels that it stands for, with all T steps.
// fuses: rl_q_action_kernel, rl_action_begin, rl_min_hold_check, rl_trail_mutate, rl_trail_stop_check
// fuses: rl_drawdown_stop, rl_heat_cap, actions_to_market_targets, lobsim_fill, extract_realized_pnl_delta
// fuses: rl_unit_state_update, rl_trade_context_update, rl_recent_outcome_update
// updates: position_lots, entry_basis, cash_ticks, fee_sides, trade_pnl_usd, trade_open_step, trade_lots_max
// updates: trade_best_mid, trade_entry_mid, steps_since_close, pending_target, pending_steps, outcome_ema, unit_entry
// updates: unit_best_mid, unit_age, unit_lots, unit_initial_r, unit_trail, unit_marked, context
extern "C" __global__ void rl_rollout_value(
    const float* __restrict__ ensemble_q, const signed char* __restrict__ next_class, const int* __restrict__ cursor, const int* __restrict__ episode_end,
    const float* __restrict__ bid_px, const float* __restrict__ bid_sz, const float* __restrict__ ask_px,
    const float* __restrict__ ask_sz, const float* __restrict__ regime, const float* __restrict__ isv,
    signed char* __restrict__ action_drawn, int* __restrict__ position_lots, double* __restrict__ entry_basis,
    long long* __restrict__ cash_ticks, long long* __restrict__ fee_sides, float* __restrict__ trade_pnl_usd,
    int* __restrict__ trade_open_step, int* __restrict__ trade_lots_max, float* __restrict__ trade_best_mid,
    float* __restrict__ trade_entry_mid, int* __restrict__ steps_since_close, int* __restrict__ pending_target,
    int* __restrict__ pending_steps, float* __restrict__ outcome_ema, float* __restrict__ unit_entry,
    float* __restrict__ unit_best_mid, int* __restrict__ unit_age, int* __restrict__ unit_lots,
    float* __restrict__ unit_initial_r, float* __restrict__ unit_trail, unsigned char* __restrict__ unit_marked,
    float* __restrict__ entry_vwap, float* __restrict__ realised_usd, float* __restrict__ fees_usd,
    float* __restrict__ equity_usd, float* __restrict__ context, int* __restrict__ position_class,
    signed char* __restrict__ action, unsigned char* __restrict__ override_reason,
    unsigned char* __restrict__ overridden, float* __restrict__ unrealised_usd, int* __restrict__ held_steps,
    int* __restrict__ market_target, int* __restrict__ position_before, int* __restrict__ fill_lots,
    long long* __restrict__ fill_price_lots, long long* __restrict__ fill_close_price_lots,
    float* __restrict__ fill_vwap, float* __restrict__ fill_cost_usd, int* __restrict__ unfilled_lots,
    int* __restrict__ position_after, float* __restrict__ realised_delta_usd, float* __restrict__ pnl_step_usd,
    unsigned char* __restrict__ closed, unsigned char* __restrict__ terminal, unsigned char* __restrict__ truncated,
    float* __restrict__ closed_trade_pnl_usd, int* __restrict__ closed_trade_steps, int* __restrict__ closed_trade_lots,
    float* __restrict__ closed_excursion_usd, int latency, float tick_value_usd, float fee_usd, int lot_limit,
    int ratchet, int since_close, int realised_reward, int by_position, int P, int T, int B) {
    const int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= B) return;
    const Environment env = ROLLOUT_ENVIRONMENT;
    const Rules rules = ROLLOUT_RULES;
    RolloutRow row = rollout_load(env, 0, B, b);
    for (int t = 0; t < T; ++t) {
        const long long at = (long long)t * B + b;
        const BestPrices next = book_best(bid_px, ask_px, row.cursor + t + 1);
        const int block = head_block(row.account.position + lot_limit, P);
        const int drawn = q_action_row(ensemble_q + (at * P + block) * N_ACTIONS, next_class + block * N_ACTIONS,
                                       by_position != 0);
        action_drawn[at] = (signed char)drawn;
        rollout_step(env, rules, &row, next, drawn, t, b);
    }
    rollout_store(env, rules, row, b);
}
