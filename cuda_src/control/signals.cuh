// What the kernels in signals.cu do, as functions that a fused kernel may call as well.
#pragma once
#include "env/reasons.cuh"
#include "env/signal.cuh"
#include "generated/isv_slots.cuh"
#include "generated/structure.cuh"

#define ENTROPY_COLUMNS 12  // N_ACTIONS shares and the overridden count

// The executed action with aliases of Hold merged: an action that asks for the position there is, or moves trails where
// there is no unit, does what Hold does.
static __device__ inline int effective_action(int action, int position, int target) {
    bool trail = action == ACTION_TRAIL_TIGHTEN || action == ACTION_TRAIL_LOOSEN;
    bool acts = trail ? position != 0 : target != position;
    return acts ? action : ACTION_HOLD;
}

// action_entropy_per_step.
static __device__ inline void action_entropy_per_step_block(const signed char* action, const unsigned char* overridden,
                                                            const int* position_before, const int* market_target,
                                                            float* action_share_ema, float* isv, int T, int B) {
    __shared__ float table[ENTROPY_COLUMNS * SIGNAL_PAD];
    __shared__ float totals[ENTROPY_COLUMNS];
    float counts[ENTROPY_COLUMNS] = {0.0f};
    for (long long at = threadIdx.x; at < (long long)T * B; at += SIGNAL_BLOCK) {
        int effective = effective_action(action[at], position_before[at], market_target[at]);
        for (int a = 0; a < N_ACTIONS; ++a) counts[a] += effective == a ? 1.0f : 0.0f;
        counts[N_ACTIONS] += overridden[at] ? 1.0f : 0.0f;
    }
    block_columns_sum(counts, ENTROPY_COLUMNS, table, totals);
    if (threadIdx.x != 0) return;
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

#define EVENT_COLUMNS 6

// rl_event_counters.
static __device__ inline void event_counters_block(const unsigned char* override_reason, float* isv, int T, int B) {
    __shared__ float table[EVENT_COLUMNS * SIGNAL_PAD];
    __shared__ float totals[EVENT_COLUMNS];
    float counts[EVENT_COLUMNS] = {0.0f};
    for (long long at = threadIdx.x; at < (long long)T * B; at += SIGNAL_BLOCK) {
        int bits = override_reason[at];
        counts[0] += bits & REASON_HEAT_CAP ? 1.0f : 0.0f;
        counts[1] += bits & REASON_TRAIL_STOP ? 1.0f : 0.0f;
        counts[2] += bits & REASON_MIN_HOLD ? 1.0f : 0.0f;
        counts[3] += bits & REASON_CONFIDENCE ? 1.0f : 0.0f;
        counts[4] += bits & REASON_FRD ? 1.0f : 0.0f;
        counts[5] += bits & REASON_DRAWDOWN_STOP ? 1.0f : 0.0f;
    }
    block_columns_sum(counts, EVENT_COLUMNS, table, totals);
    if (threadIdx.x != 0) return;
    isv[ISV_HEAT_CAP_FIRED] = totals[0];
    isv[ISV_TRAIL_STOP_FIRED] = totals[1];
    isv[ISV_MIN_HOLD_FIRED] = totals[2];
    isv[ISV_CONF_GATE_FIRED] = totals[3];
    isv[ISV_FRD_GATE_FIRED] = totals[4];
    isv[ISV_DRAWDOWN_STOP_FIRED] = totals[5];
}

#define MARKET_COLUMNS 10

// rl_market_statistics.
static __device__ inline void market_statistics_block(const int* position_after, const int* fill_lots,
                                                      const int* unfilled_lots, const unsigned char* closed,
                                                      const float* closed_trade_pnl_usd, const float* pnl_step_usd,
                                                      const float* equity_usd, const int* position_lots,
                                                      const int* trade_open_step, float* isv, float fee_usd, int T,
                                                      int B) {
    __shared__ float table[MARKET_COLUMNS * SIGNAL_PAD];
    __shared__ float totals[MARKET_COLUMNS];
    __shared__ float extreme[1];
    float sums[MARKET_COLUMNS] = {0.0f};
    for (long long at = threadIdx.x; at < (long long)T * B; at += SIGNAL_BLOCK) {
        sums[0] += (float)position_after[at];
        sums[1] += fabsf((float)position_after[at]);
        sums[2] += closed[at] ? 1.0f : 0.0f;
        sums[3] += closed[at] && closed_trade_pnl_usd[at] > 0.0f ? 1.0f : 0.0f;
        sums[4] += pnl_step_usd[at];
        sums[5] += fabsf((float)fill_lots[at]);
        sums[6] += (float)unfilled_lots[at];
    }
    float worst[1] = {-MATH_FLOAT_MAX};  // largest negated equity
    for (int b = threadIdx.x; b < B; b += SIGNAL_BLOCK) {
        sums[7] += equity_usd[b];
        worst[0] = max_keep_nan(worst[0], -equity_usd[b]);
        sums[8] += position_lots[b] != 0 ? 1.0f : 0.0f;
        sums[9] += position_lots[b] != 0 ? (float)trade_open_step[b] : 0.0f;
    }
    block_columns_max(worst, 1, table, extreme);
    block_columns_sum(sums, MARKET_COLUMNS, table, totals);
    if (threadIdx.x != 0) return;
    float moments = (float)T * (float)B;
    isv[ISV_POSITION_MEAN] = totals[0] / moments;
    isv[ISV_POSITION_ABS_MEAN] = totals[1] / moments;
    isv[ISV_TRADES_CLOSED] = totals[2];
    isv[ISV_WINS] = totals[3];
    isv[ISV_PNL_STEP_USD] = totals[4];
    isv[ISV_FEES_STEP_USD] = totals[5] * fee_usd;
    isv[ISV_UNFILLED_LOTS] = totals[6];
    isv[ISV_EQUITY_MEAN] = totals[7] / (float)B;
    isv[ISV_EQUITY_MIN] = -extreme[0];
    if (totals[8] > 0.0f) isv[ISV_HOLD_STEPS_MEAN] = totals[9] / totals[8];
}

#define DONE_COLUMNS 8

// ema_update_on_done.
static __device__ inline void ema_update_on_done_block(const unsigned char* closed, const float* closed_trade_pnl_usd,
                                                       const int* closed_trade_steps, const int* closed_trade_lots,
                                                       float* isv, int T, int B) {
    __shared__ float table[DONE_COLUMNS * SIGNAL_PAD];
    __shared__ float totals[DONE_COLUMNS];
    float sums[DONE_COLUMNS] = {0.0f};
    for (long long at = threadIdx.x; at < (long long)T * B; at += SIGNAL_BLOCK) {
        if (!closed[at]) continue;
        float pnl = closed_trade_pnl_usd[at];
        sums[0] += 1.0f;
        sums[1] += (float)closed_trade_steps[at];
        sums[2] += fabsf(pnl);
        sums[3] += (float)closed_trade_lots[at];
        sums[4] += pnl > 0.0f ? 1.0f : 0.0f;
        sums[5] += pnl > 0.0f ? pnl : 0.0f;
        sums[6] += pnl < 0.0f ? 1.0f : 0.0f;
        sums[7] += pnl < 0.0f ? pnl : 0.0f;
    }
    block_columns_sum(sums, DONE_COLUMNS, table, totals);
    if (threadIdx.x != 0 || !(totals[0] > 0.0f)) return;
    float trades = totals[0];
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

// rl_dones_ema.
static __device__ inline void dones_ema_block(const unsigned char* closed, float* isv, int T, int B) {
    __shared__ float table[SIGNAL_PAD];
    __shared__ float totals[1];
    float count[1] = {0.0f};
    for (long long at = threadIdx.x; at < (long long)T * B; at += SIGNAL_BLOCK) count[0] += closed[at] ? 1.0f : 0.0f;
    block_columns_sum(count, 1, table, totals);
    if (threadIdx.x != 0) return;
    isv[ISV_DONES_EMA] = ema_first(isv[ISV_DONES_EMA], totals[0] / ((float)T * (float)B), SIGNAL_ALPHA);
}

// rl_step_counter_update.
static __device__ inline void step_counter_update_thread(float* isv, int T) {
    isv[ISV_TRAIN_STEP] += (float)T;
}
