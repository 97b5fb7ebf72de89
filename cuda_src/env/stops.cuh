// Rows of the kernels in stops.cu.
// See actions.cuh for what a row function is. mid: of the decision's snapshot, ticks.
#pragma once
#include "env/book.cuh"
#include "env/reasons.cuh"
#include "env/targets.cuh"
#include "env/units.cuh"

static __device__ inline void override_action(signed char* action, unsigned char* reason, int wanted, int bit) {
    if (*action == wanted) return;
    *action = (signed char)wanted;
    *reason |= (unsigned char)bit;
}

// rl_trail_mutate.
static __device__ inline void trail_mutate_row(int action, const int* unit_lots, const float* isv, float* unit_trail) {
    if (action != ACTION_TRAIL_TIGHTEN && action != ACTION_TRAIL_LOOSEN) return;
    float rate = isv[ISV_TRAIL_ADJUST_RATE], low = isv[ISV_TRAIL_MIN], high = isv[ISV_TRAIL_MAX];
    for (int u = 0; u < MAX_UNITS; ++u) {
        if (unit_lots[u] <= 0) continue;
        float trail = action == ACTION_TRAIL_TIGHTEN ? unit_trail[u] * rate : unit_trail[u] / rate;
        unit_trail[u] = clampf(trail, low, high);
    }
}

// Marks the units whose stop the mid is beyond; returns their number. Stop of a long: max(entry, best mid) - trail,
// without the ratchet entry - trail; a short mirrors it. On the stop itself nothing is marked.
static __device__ inline int mark_units(const float* entry, const float* best, const float* trail, const int* lots,
                                        unsigned char* marked, int direction, float mid, bool ratchet) {
    int count = 0;
    for (int u = 0; u < MAX_UNITS; ++u) {
        float from = (float)direction * entry[u], highest = (float)direction * best[u];
        float anchor = ratchet && highest > from ? highest : from;
        bool beyond = lots[u] > 0 && (float)direction * mid < anchor - trail[u];
        marked[u] = beyond;
        count += beyond;
    }
    return count;
}

// rl_trail_stop_check.
static __device__ inline void trail_stop_check_row(float mid, int position, int pending_steps, const float* unit_entry,
                                                   const float* unit_best_mid, const float* unit_trail,
                                                   const int* unit_lots, unsigned char* unit_marked,
                                                   signed char* action, unsigned char* override_reason, int ratchet) {
    if (pending_steps > 0) return;
    int direction = position > 0 ? 1 : -1;
    int marked =
        mark_units(unit_entry, unit_best_mid, unit_trail, unit_lots, unit_marked, direction, mid, ratchet != 0);
    if (marked == 0) return;
    if (marked == units_active(unit_lots)) {
        override_action(action, override_reason, full_flat(position), REASON_TRAIL_STOP);
        return;
    }
    int a = *action;
    bool closes_as_much = a == full_flat(position) || action_side(a) * direction < 0;
    if (!closes_as_much) override_action(action, override_reason, half_flat(position), REASON_TRAIL_STOP);
}

// rl_drawdown_stop.
static __device__ inline void drawdown_stop_row(float mid, int position, int pending_steps, int trade_open_step,
                                                const float* unit_entry, const float* unit_initial_r,
                                                const int* unit_lots, const float* isv, float* unrealised_usd,
                                                int* held_steps, signed char* action, unsigned char* override_reason,
                                                float tick_value_usd) {
    int direction = position > 0 ? 1 : -1;
    float unrealised = units_unrealised(unit_entry, unit_lots, direction, mid);
    *unrealised_usd = position != 0 ? unrealised * tick_value_usd : 0.0f;
    *held_steps = position != 0 ? trade_open_step : 0;
    if (position == 0 || pending_steps > 0) return;
    float r = units_unrealised_r(unrealised, units_weighted(unit_initial_r, unit_lots));
    if (r < -isv[ISV_HARD_STOP_R]) {
        override_action(action, override_reason, full_flat(position), REASON_DRAWDOWN_STOP);
    }
}

// Lots that an action would open, and the side's lots it keeps: keeps = false for a reversal.
static __device__ inline int lots_opened(int position, int target, bool* keeps) {
    *keeps = position * target > 0 || target == 0;
    int opened = *keeps ? (target - position) * (position > 0 ? 1 : -1) : (target < 0 ? -target : target);
    return opened > 0 ? opened : 0;
}

// rl_heat_cap. regime: of the decision's snapshot.
static __device__ inline void heat_cap_row(const float* regime, int position, int pending_steps,
                                           const float* unit_trail, const int* unit_lots, float outcome,
                                           const float* isv, signed char* action, unsigned char* override_reason,
                                           float tick_value_usd, int lot_limit) {
    if (pending_steps > 0) return;
    int a = *action;
    float cap = isv[ISV_HEAT_CAP_USD], heat = units_weighted(unit_trail, unit_lots) * tick_value_usd;
    if (position != 0 && heat > cap) {
        override_action(action, override_reason, full_flat(position), REASON_HEAT_CAP);
        return;
    }
    if (action_side(a) == 0) return;
    bool may_add = (float)units_active(unit_lots) < isv[ISV_PYRAMID_MAX_UNITS], keeps;
    int target = action_target(a, position, action_size(a, isv, outcome), lot_limit, may_add, 0);
    int opened = lots_opened(position, target, &keeps);
    float trail = initial_trail(isv, regime[REGIME_VOLATILITY_10S], tick_value_usd);
    float added = (float)opened * trail * tick_value_usd;
    if ((keeps ? heat : 0.0f) + added > cap) {
        override_action(action, override_reason, ACTION_HOLD, REASON_HEAT_CAP);
    }
}
