// What the kernels in signals.cu do, as functions that a fused kernel may call as well: what a row adds (*_row), what
// becomes of the totals (*_finish, one thread), and both by one block (*_block).
#pragma once
#include "env/reasons.cuh"
#include "env/signal.cuh"
#include "generated/isv_slots.cuh"
#include "generated/structure.cuh"

// The executed action with aliases of Hold merged: an action that asks for the position there is, or moves trails where
// there is no unit, does what Hold does.
static __device__ inline int effective_action(int action, int position, int target) {
    bool trail = action == ACTION_TRAIL_TIGHTEN || action == ACTION_TRAIL_LOOSEN;
    bool acts = trail ? position != 0 : target != position;
    return acts ? action : ACTION_HOLD;
}

#define ENTROPY_SUMS 12  // N_ACTIONS shares and the overridden count

// action_entropy_per_step.
static __device__ inline void action_entropy_per_step_row(int action, bool overridden, int before, int target,
                                                          float* sums) {
    const int effective = effective_action(action, before, target);
    for (int a = 0; a < N_ACTIONS; ++a) sums[a] += effective == a ? 1.0f : 0.0f;
    sums[N_ACTIONS] += overridden ? 1.0f : 0.0f;
}

static __device__ inline void action_entropy_per_step_finish(const float* totals, float* action_share_ema, float* isv, int T,
                                                    int B) {
    float moments = (float)T * (float)B, seen = 0.0f, entropy = 0.0f;
    for (int a = 0; a < N_ACTIONS; ++a) seen += action_share_ema[a];
    for (int a = 0; a < N_ACTIONS; ++a) {
        float share = totals[a] / moments;
        float smooth = seen > 0.0f ? ema(action_share_ema[a], share, SIGNAL_ALPHA) : share;
        action_share_ema[a] = smooth;
        isv[ISV_ACTION_SHARE_0 + a] = share;
        if (smooth > 0.0f) entropy -= smooth * logf(smooth);
    }
    isv[ISV_ACTION_ENTROPY_EMA] = entropy;
    isv[ISV_OVERRIDDEN_SHARE] = totals[N_ACTIONS] / moments;
}

static __device__ inline void action_entropy_per_step_block(const signed char* action, const unsigned char* overridden,
                                                            const int* position_before, const int* market_target,
                                                            float* action_share_ema, float* isv, int T, int B) {
    __shared__ Columns<ENTROPY_SUMS> columns;
    columns_of_rows(columns, (long long)T * B, SIGNAL_PART, [&](long long at, float* sums) {
        action_entropy_per_step_row(action[at], overridden[at] != 0, position_before[at], market_target[at], sums);
    });
    if (threadIdx.x == 0) action_entropy_per_step_finish(columns.totals, action_share_ema, isv, T, B);
}

#define EVENT_SUMS 6

// rl_event_counters.
static __device__ inline void event_counters_row(int bits, float* sums) {
    sums[0] += bits & REASON_HEAT_CAP ? 1.0f : 0.0f;
    sums[1] += bits & REASON_TRAIL_STOP ? 1.0f : 0.0f;
    sums[2] += bits & REASON_MIN_HOLD ? 1.0f : 0.0f;
    sums[3] += bits & REASON_CONFIDENCE ? 1.0f : 0.0f;
    sums[4] += bits & REASON_FRD ? 1.0f : 0.0f;
    sums[5] += bits & REASON_DRAWDOWN_STOP ? 1.0f : 0.0f;
}

static __device__ inline void event_counters_finish(const float* totals, float* isv) {
    isv[ISV_HEAT_CAP_FIRED] = totals[0];
    isv[ISV_TRAIL_STOP_FIRED] = totals[1];
    isv[ISV_MIN_HOLD_FIRED] = totals[2];
    isv[ISV_CONF_GATE_FIRED] = totals[3];
    isv[ISV_FRD_GATE_FIRED] = totals[4];
    isv[ISV_DRAWDOWN_STOP_FIRED] = totals[5];
}

static __device__ inline void event_counters_block(const unsigned char* override_reason, float* isv, int T, int B) {
    __shared__ Columns<EVENT_SUMS> columns;
    columns_of_rows(columns, (long long)T * B, SIGNAL_PART,
                    [&](long long at, float* sums) { event_counters_row(override_reason[at], sums); });
    if (threadIdx.x == 0) event_counters_finish(columns.totals, isv);
}

#define MARKET_SUMS 10

// rl_market_statistics: what a moment adds, and what a row at the end of the iteration. worst: largest negated equity.
static __device__ inline void market_statistics_row(int after, int fill, int unfilled, bool closes, float trade_pnl,
                                                    float step_pnl, float* sums) {
    sums[0] += (float)after;
    sums[1] += fabsf((float)after);
    sums[2] += closes ? 1.0f : 0.0f;
    sums[3] += closes && trade_pnl > 0.0f ? 1.0f : 0.0f;
    sums[4] += step_pnl;
    sums[5] += fabsf((float)fill);
    sums[6] += (float)unfilled;
}

static __device__ inline void market_statistics_end(float equity, bool open, int open_steps, float* sums, float* worst) {
    sums[7] += equity;
    sums[8] += open ? 1.0f : 0.0f;
    sums[9] += open ? (float)open_steps : 0.0f;
    *worst = max_keep_nan(*worst, -equity);
}

static __device__ inline void market_statistics_finish(const float* totals, float worst, float* isv, float fee_usd,
                                                       int T, int B) {
    float moments = (float)T * (float)B;
    isv[ISV_POSITION_MEAN] = totals[0] / moments;
    isv[ISV_POSITION_ABS_MEAN] = totals[1] / moments;
    isv[ISV_TRADES_CLOSED] = totals[2];
    isv[ISV_WINS] = totals[3];
    isv[ISV_PNL_STEP_USD] = totals[4];
    isv[ISV_FEES_STEP_USD] = totals[5] * fee_usd;
    isv[ISV_UNFILLED_LOTS] = totals[6];
    isv[ISV_EQUITY_MEAN] = totals[7] / (float)B;
    isv[ISV_EQUITY_MIN] = -worst;
    if (totals[8] > 0.0f) isv[ISV_HOLD_STEPS_MEAN] = totals[9] / totals[8];
}

static __device__ inline void market_statistics_block(const int* position_after, const int* fill_lots,
                                                      const int* unfilled_lots, const unsigned char* closed,
                                                      const float* closed_trade_pnl_usd, const float* pnl_step_usd,
                                                      const float* equity_usd, const int* position_lots,
                                                      const int* trade_open_step, float* isv, float fee_usd, int T,
                                                      int B) {
    __shared__ Columns<MARKET_SUMS, 1> columns;
    columns_of_rows(columns, (long long)T * B, SIGNAL_PART, [&](long long at, float* sums) {
        market_statistics_row(position_after[at], fill_lots[at], unfilled_lots[at], closed[at] != 0,
                              closed_trade_pnl_usd[at], pnl_step_usd[at], sums);
        if (at >= B) return;
        market_statistics_end(equity_usd[at], position_lots[at] != 0, trade_open_step[at], sums, sums + MARKET_SUMS);
    });
    if (threadIdx.x != 0) return;
    market_statistics_finish(columns.totals, columns.totals[MARKET_SUMS], isv, fee_usd, T, B);
}

#define DONE_SUMS 8

// ema_update_on_done.
static __device__ inline void ema_update_on_done_row(bool closes, float pnl, int steps, int lots, float* sums) {
    const bool wins = closes && pnl > 0.0f, loses = closes && pnl < 0.0f;
    sums[0] += closes ? 1.0f : 0.0f;
    sums[1] += closes ? (float)steps : 0.0f;
    sums[2] += closes ? fabsf(pnl) : 0.0f;
    sums[3] += closes ? (float)lots : 0.0f;
    sums[4] += wins ? 1.0f : 0.0f;
    sums[5] += wins ? pnl : 0.0f;
    sums[6] += loses ? 1.0f : 0.0f;
    sums[7] += loses ? pnl : 0.0f;
}

static __device__ inline void ema_update_on_done_finish(const float* totals, float* isv) {
    float trades = totals[0];
    if (!(trades > 0.0f)) return;
    isv[ISV_MEAN_TRADE_DURATION_EMA] = ema_first(isv[ISV_MEAN_TRADE_DURATION_EMA], totals[1] / trades, SIGNAL_ALPHA);
    isv[ISV_MEAN_ABS_PNL_EMA] = ema_first(isv[ISV_MEAN_ABS_PNL_EMA], totals[2] / trades, SIGNAL_ALPHA);
    isv[ISV_CLOSED_LOTS_EMA] = ema_first(isv[ISV_CLOSED_LOTS_EMA], totals[3] / trades, SIGNAL_ALPHA);
    isv[ISV_OUTCOME_WIN_RATE] = ema_first(isv[ISV_OUTCOME_WIN_RATE], totals[4] / trades, SIGNAL_ALPHA);
    if (totals[4] > 0.0f) {
        isv[ISV_OUTCOME_AVG_WIN] = ema_first(isv[ISV_OUTCOME_AVG_WIN], totals[5] / totals[4], SIGNAL_ALPHA);
    }
    if (totals[6] > 0.0f) {
        isv[ISV_OUTCOME_AVG_LOSS] = ema_first(isv[ISV_OUTCOME_AVG_LOSS], totals[7] / totals[6], SIGNAL_ALPHA);
    }
}

static __device__ inline void ema_update_on_done_block(const unsigned char* closed, const float* closed_trade_pnl_usd,
                                                       const int* closed_trade_steps, const int* closed_trade_lots,
                                                       float* isv, int T, int B) {
    __shared__ Columns<DONE_SUMS> columns;
    columns_of_rows(columns, (long long)T * B, SIGNAL_PART, [&](long long at, float* sums) {
        ema_update_on_done_row(closed[at] != 0, closed_trade_pnl_usd[at], closed_trade_steps[at], closed_trade_lots[at],
                               sums);
    });
    if (threadIdx.x == 0) ema_update_on_done_finish(columns.totals, isv);
}

// rl_dones_ema; closes: rows that closed a trade.
static __device__ inline void dones_ema_finish(float closes, float* isv, int T, int B) {
    isv[ISV_DONES_EMA] = ema_first(isv[ISV_DONES_EMA], closes / ((float)T * (float)B), SIGNAL_ALPHA);
}

static __device__ inline void dones_ema_block(const unsigned char* closed, float* isv, int T, int B) {
    __shared__ Columns<1> columns;
    columns_of_rows(columns, (long long)T * B, SIGNAL_PART,
                    [&](long long at, float* sums) { sums[0] += closed[at] ? 1.0f : 0.0f; });
    if (threadIdx.x == 0) dones_ema_finish(columns.totals[0], isv, T, B);
}

// rl_step_counter_update.
static __device__ inline void step_counter_update_thread(float* isv, int T) {
    isv[ISV_TRAIN_STEP] += (float)T;
}
