// What the kernels in reward.cu do, as functions that a fused kernel may call as well.
#pragma once
#include "env/signal.cuh"
#include "generated/isv_slots.cuh"

// Shaping of one moment in USD; all terms vanish at the neutral slots 0, 1, 0, 0.
//   - ENTRY_COST on opening (from flat, or by a flip; an add is not an opening)
//   - (1 - SHORT_HOLD_PENALTY) x win at a close earlier than SHORT_HOLD_STEPS
//   + HOLD_BONUS x sqrt(steps held) in a step that begins in profit
//   + DRAWDOWN_RATE x min(0, unrealised R) x initial R in USD (= min(0, unrealised USD)), at the start of the step
static __device__ inline float shaping_usd(const float* isv, bool opened, bool closed, float trade_pnl, int trade_steps,
                                           float unrealised, int held) {
    float sum = opened ? -isv[ISV_ENTRY_COST_USD] : 0.0f;
    if (closed && trade_pnl > 0.0f && (float)trade_steps < isv[ISV_SHORT_HOLD_STEPS]) {
        sum -= (1.0f - isv[ISV_SHORT_HOLD_PENALTY]) * trade_pnl;
    }
    if (unrealised > 0.0f) sum += isv[ISV_HOLD_BONUS_USD] * sqrtf((float)held);
    if (unrealised < 0.0f) sum += isv[ISV_DRAWDOWN_RATE] * unrealised;
    return sum;
}

// What the reward of one moment is made of, and the reward: USD, scaled, clamped.
struct RewardMoment {
    bool closed;
    int before, after, trade_steps, held;
    float step_pnl, trade_pnl, unrealised;
};

struct MomentReward {
    float usd, scaled, clamped;
};

// rl_fused_reward_pipeline, one moment.
static __device__ inline MomentReward fused_reward_pipeline_item(const RewardMoment& m, const float* isv,
                                                                 int realised_reward) {
    bool opened = m.after != 0 && (m.before == 0 || (m.before > 0) != (m.after > 0));
    float base = realised_reward ? m.trade_pnl : m.step_pnl;
    float usd = base + shaping_usd(isv, opened, m.closed, m.trade_pnl, m.trade_steps, m.unrealised, m.held);
    float scaled = usd * isv[ISV_REWARD_SCALE];
    return {usd, scaled, clampf(scaled, -isv[ISV_REWARD_CLAMP_LOSS], isv[ISV_REWARD_CLAMP_WIN])};
}

#define REWARD_SUMS 2   // moments that count, those of them that the clamp changed
#define REWARD_MAXES 2  // scaled reward, and negated

// rl_reward_statistics: what a moment adds, what becomes of the totals (one thread), both by one block. largest
// [REWARD_MAXES].
static __device__ inline void reward_statistics_row(float scaled, float reward, bool counts, float* sums,
                                                    float* largest) {
    largest[0] = max_keep_nan(largest[0], scaled);
    largest[1] = max_keep_nan(largest[1], -scaled);
    if (!counts) return;
    sums[0] += 1.0f;
    sums[1] += reward != scaled ? 1.0f : 0.0f;
}

static __device__ inline void reward_statistics_finish(const float* totals, const float* largest, float* isv) {
    const float highest = max_keep_nan(largest[0], 0.0f), lowest = max_keep_nan(largest[1], 0.0f);
    isv[ISV_REWARD_SCALED_ABS_MAX] = max_keep_nan(highest, lowest);
    isv[ISV_POS_SCALED_MAX] = highest;
    isv[ISV_NEG_SCALED_MAX] = lowest;
    if (highest > 0.0f) isv[ISV_POS_SCALED_MAX_EMA] = ema_first(isv[ISV_POS_SCALED_MAX_EMA], highest, SIGNAL_ALPHA);
    if (lowest > 0.0f) isv[ISV_NEG_SCALED_MAX_EMA] = ema_first(isv[ISV_NEG_SCALED_MAX_EMA], lowest, SIGNAL_ALPHA);
    if (totals[0] > 0.0f) {
        isv[ISV_REWARD_CLIP_RATE_EMA] = ema_first(isv[ISV_REWARD_CLIP_RATE_EMA], totals[1] / totals[0], SIGNAL_ALPHA);
    }
}

static __device__ inline void reward_statistics_block(const float* reward_scaled, const float* reward,
                                                      const unsigned char* closed, float* isv, int realised_reward,
                                                      int T, int B) {
    __shared__ Columns<REWARD_SUMS, REWARD_MAXES> columns;
    columns_of_rows(columns, (long long)T * B, SIGNAL_PART, [&](long long at, float* sums) {
        reward_statistics_row(reward_scaled[at], reward[at], !realised_reward || closed[at], sums, sums + REWARD_SUMS);
    });
    if (threadIdx.x == 0) reward_statistics_finish(columns.totals, columns.totals + REWARD_SUMS, isv);
}
