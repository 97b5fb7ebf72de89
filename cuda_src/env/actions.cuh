// Rows of the kernels in actions.cu.
// Every row function does one row of one environment step on the buffers of that step: the kernels call them one by
// one, a fused rollout can call them in a loop over t.
#pragma once
#include "env/reasons.cuh"
#include "env/targets.cuh"
#include "env/units.cuh"

// rl_action_begin, row b.
static __device__ inline void action_begin_row(
    const signed char* action_drawn, const int* pending_steps, signed char* action, unsigned char* override_reason,
    int t, int B, int b) {
    long long at = (long long)t * B + b;
    bool pending = pending_steps[b] > 0;
    bool held_back = pending && action_drawn[at] != ACTION_HOLD;
    action[at] = pending ? (signed char)ACTION_HOLD : action_drawn[at];
    override_reason[at] = held_back ? REASON_PENDING : 0;
}

// An exit of the policy that would act on the position.
static __device__ inline bool is_exit(int action, int position) {
    if (position > 0) return action == ACTION_FLAT_FROM_LONG || action == ACTION_HALF_FLAT_LONG;
    if (position < 0) return action == ACTION_FLAT_FROM_SHORT || action == ACTION_HALF_FLAT_SHORT;
    return false;
}

// rl_min_hold_check, row b.
static __device__ inline void min_hold_check_row(
    const int* position_lots, const int* trade_open_step, const int* steps_since_close, const float* isv,
    signed char* action, unsigned char* override_reason, int since_close, int t, int B, int b) {
    long long at = (long long)t * B + b;
    int age = since_close ? steps_since_close[b] : trade_open_step[b];
    if (!is_exit(action[at], position_lots[b]) || !((float)age < isv[ISV_MIN_HOLD_STEPS])) return;
    action[at] = ACTION_HOLD;
    override_reason[at] |= REASON_MIN_HOLD;
}

// actions_to_market_targets, row b.
static __device__ inline void actions_to_market_targets_row(
    const signed char* action, const signed char* action_drawn, const unsigned char* override_reason,
    const int* position_lots, const int* unit_lots, const unsigned char* unit_marked, const float* outcome_ema,
    const float* isv, int* market_target, unsigned char* overridden, int lot_limit, int t, int B, int b) {
    long long at = (long long)t * B + b, unit = (long long)b * MAX_UNITS;
    int position = position_lots[b], executed = action[at];
    int marked = units_marked_lots(unit_lots + unit, unit_marked + unit);
    int half = half_of(position);
    if (override_reason[at] & REASON_TRAIL_STOP) half = marked;
    if (marked > half) half = marked;
    bool may_add = (float)units_active(unit_lots + unit) < isv[ISV_PYRAMID_MAX_UNITS];
    int size = action_size(executed, isv, outcome_ema[b]);
    market_target[at] = action_target(executed, position, size, lot_limit, may_add, half);
    overridden[at] = executed != action_drawn[at];
}
