// Signals and statistics of the market side, once an iteration: one block walks over [T, B] arrays; counts and sums add up
// in a fixed order (include/columns.cuh), so a run repeats bit for bit. No atomics.
#include "control/signals.cuh"

// action_entropy_per_step: shares of the executed actions, their entropy, the share of drawn actions overridden.
// ACTION_SHARE_*, aliases of Hold merged; ACTION_ENTROPY_EMA; OVERRIDDEN_SHARE. The entropy is that of action_share_ema
// [N_ACTIONS], the EMA of the shares: with few rows an iteration's own histogram has no entropy, however mixed the
// behaviour (B = T = 1 gives 0 always). H = - sum p ln p, nats.
// launch: blocks 1, block 128
// updates: isv, action_share_ema
extern "C" __global__ void action_entropy_per_step(const signed char* action, const unsigned char* overridden,
                                                   const int* position_before, const int* market_target,
                                                   float* action_share_ema, float* isv, int T, int B) {
    action_entropy_per_step_block(action, overridden, position_before, market_target, action_share_ema, isv, T, B);
}

// rl_event_counters: moments of this iteration at which each gate or stop changed the action.
// Slots *_FIRED, from the bits of override_reason [T, B].
// launch: blocks 1, block 128
extern "C" __global__ void rl_event_counters(const unsigned char* override_reason, float* isv, int T, int B) {
    event_counters_block(override_reason, isv, T, B);
}

// rl_market_statistics: positions, trades, PnL, fees and equity of the iteration, for people.
// Over the moments [T, B]: mean position and mean |position| after the fill (POSITION_MEAN, POSITION_ABS_MEAN), trades
// closed, wins, net PnL (PNL_STEP_USD), fees (FEES_STEP_USD), unfilled lots. Over the rows at its end: mean and least
// equity (EQUITY_*), mean age of the open trades (HOLD_STEPS_MEAN; no open trade: left alone).
// launch: blocks 1, block 128
// updates: isv
extern "C" __global__ void rl_market_statistics(const int* position_after, const int* fill_lots,
                                                const int* unfilled_lots, const unsigned char* closed,
                                                const float* closed_trade_pnl_usd, const float* pnl_step_usd,
                                                const float* equity_usd, const int* position_lots,
                                                const int* trade_open_step, float* isv, float fee_usd, int T, int B) {
    market_statistics_block(position_after, fill_lots, unfilled_lots, closed, closed_trade_pnl_usd, pnl_step_usd,
                            equity_usd, position_lots, trade_open_step, isv, fee_usd, T, B);
}

// ema_update_on_done: EMAs over closed trades, from the means of this iteration's closes.
// Steps open (MEAN_TRADE_DURATION_EMA), |PnL| (MEAN_ABS_PNL_EMA), largest |lots| (CLOSED_LOTS_EMA), share of wins
// (OUTCOME_WIN_RATE), mean win (OUTCOME_AVG_WIN), mean loss (OUTCOME_AVG_LOSS, <= 0). Sparse: no close, no update; no
// win, no update of the mean win; no loss, none of the mean loss. A trade of exactly zero PnL is neither.
// launch: blocks 1, block 128
// updates: isv
extern "C" __global__ void ema_update_on_done(const unsigned char* closed, const float* closed_trade_pnl_usd,
                                              const int* closed_trade_steps, const int* closed_trade_lots, float* isv,
                                              int T, int B) {
    ema_update_on_done_block(closed, closed_trade_pnl_usd, closed_trade_steps, closed_trade_lots, isv, T, B);
}

// rl_dones_ema: EMA of the share of rows that close a trade in a step.
// DONES_EMA, from the mean of closed [T, B]. Every iteration is an observation here: no close means a share of zero.
// launch: blocks 1, block 128
// updates: isv
extern "C" __global__ void rl_dones_ema(const unsigned char* closed, float* isv, int T, int B) {
    dones_ema_block(closed, isv, T, B);
}

// rl_step_counter_update: TRAIN_STEP counts environment steps of a row: + T an iteration. Exact to 2^24.
// launch: threads 1, block 32
// updates: isv
extern "C" __global__ void rl_step_counter_update(float* isv, int T) {
    if (blockIdx.x * blockDim.x + threadIdx.x == 0) step_counter_update_thread(isv, T);
}
