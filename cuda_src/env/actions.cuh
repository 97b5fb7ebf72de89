// Rows of the kernels in actions.cu.
// A row function does what one kernel does for one row of one environment step. What it reads comes by value; what it
// changes by pointer to the row's own element: memory for the kernels one by one, registers for a fused rollout. Arrays
// of units are pointers to the row's MAX_UNITS elements. Both callers so compute the same bits.
#pragma once
#include "env/reasons.cuh"
#include "env/targets.cuh"
#include "env/units.cuh"

// rl_action_begin.
static __device__ inline void action_begin_row(int drawn, int pending_steps, signed char* action,
                                               unsigned char* override_reason) {
    bool pending = pending_steps > 0;
    *action = (signed char)(pending ? ACTION_HOLD : drawn);
    *override_reason = pending && drawn != ACTION_HOLD ? REASON_PENDING : 0;
}

// An exit of the policy that would act on the position.
static __device__ inline bool is_exit(int action, int position) {
    if (position > 0) return action == ACTION_FLAT_FROM_LONG || action == ACTION_HALF_FLAT_LONG;
    if (position < 0) return action == ACTION_FLAT_FROM_SHORT || action == ACTION_HALF_FLAT_SHORT;
    return false;
}

// rl_min_hold_check. age: of the open trade, or steps since the last close.
static __device__ inline void min_hold_check_row(int position, int age, const float* isv, signed char* action,
                                                 unsigned char* override_reason) {
    if (!is_exit(*action, position) || !((float)age < isv[ISV_MIN_HOLD_STEPS])) return;
    *action = ACTION_HOLD;
    *override_reason |= REASON_MIN_HOLD;
}

// actions_to_market_targets: the target position.
static __device__ inline int actions_to_market_targets_row(int executed, int override_reason, int position,
                                                           const int* unit_lots, const unsigned char* unit_marked,
                                                           float outcome, const float* isv, int lot_limit) {
    int marked = units_marked_lots(unit_lots, unit_marked), half = half_of(position);
    if (override_reason & REASON_TRAIL_STOP) half = marked;
    if (marked > half) half = marked;
    bool may_add = (float)units_active(unit_lots) < isv[ISV_PYRAMID_MAX_UNITS];
    return action_target(executed, position, action_size(executed, isv, outcome), lot_limit, may_add, half);
}
