// Trails and stops: mutate, trail stop, drawdown stop, heat cap. Each later override wins; none acts while an order is
// under way. One thread a row; the mid is that of the decision's snapshot, cursor + t. A stop is an order into the
// book like any other: it never fills at its trigger.
#include "env/stops.cuh"

// rl_trail_mutate: the actions that move the trails of all active units.
// TrailTighten multiplies them by TRAIL_ADJUST_RATE, not below TRAIL_MIN; TrailLoosen divides, not above TRAIL_MAX. Reads slots TRAIL_MIN, TRAIL_MAX, TRAIL_ADJUST_RATE.
// launch: threads B, block 64
// updates: unit_trail
extern "C" __global__ void rl_trail_mutate(
    const signed char* action, const int* unit_lots, const float* isv, float* unit_trail, int t, int B) {
    int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= B) return;
    long long unit = (long long)b * MAX_UNITS;
    trail_mutate_row(action[(long long)t * B + b], unit_lots + unit, isv, unit_trail + unit);
}

// rl_trail_stop_check: marks the units whose trail is breached, and closes them.
// All marked -> full flat, some -> HalfFlat with the marked lots as its size. A partial breach leaves a policy action
// that closes at least as much (full flat, HalfFlat, reversal) as it is: a stop never weakens an exit. Marks last until
// the order they made is filled.
// launch: threads B, block 64
// updates: unit_marked, action, override_reason
extern "C" __global__ void rl_trail_stop_check(
    const int* cursor, const float* bid_px, const float* ask_px, const int* position_lots, const int* pending_steps,
    const float* unit_entry, const float* unit_best_mid, const float* unit_trail, const int* unit_lots,
    unsigned char* unit_marked, signed char* action, unsigned char* override_reason, int ratchet, int t, int B) {
    int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= B) return;
    long long at = (long long)t * B + b, unit = (long long)b * MAX_UNITS;
    float mid = book_mid(bid_px, ask_px, (long long)cursor[b] + t);
    trail_stop_check_row(mid, position_lots[b], pending_steps[b], unit_entry + unit, unit_best_mid + unit,
                         unit_trail + unit, unit_lots + unit, unit_marked + unit, action + at, override_reason + at,
                         ratchet);
}

// rl_drawdown_stop: unrealised R (lot-weighted over units) below -HARD_STOP_R -> full flat.
// Also records what the reward's shaping needs, before the fill: unrealised_usd [T,B] (0 when flat) and held_steps
// [T,B] (age of the open trade, 0 when flat). Reads slot HARD_STOP_R.
// launch: threads B, block 64
// updates: action, override_reason
extern "C" __global__ void rl_drawdown_stop(
    const int* cursor, const float* bid_px, const float* ask_px, const int* position_lots, const int* pending_steps,
    const int* trade_open_step, const float* unit_entry, const float* unit_initial_r, const int* unit_lots,
    const float* isv, float* unrealised_usd, int* held_steps, signed char* action, unsigned char* override_reason,
    float tick_value_usd, int t, int B) {
    int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= B) return;
    long long at = (long long)t * B + b, unit = (long long)b * MAX_UNITS;
    float mid = book_mid(bid_px, ask_px, (long long)cursor[b] + t);
    drawdown_stop_row(mid, position_lots[b], pending_steps[b], trade_open_step[b], unit_entry + unit,
                      unit_initial_r + unit, unit_lots + unit, isv, unrealised_usd + at, held_steps + at, action + at,
                      override_reason + at, tick_value_usd);
}

// rl_heat_cap: keeps the heat, what the trails leave at risk, under its cap.
// Heat = sum of lots x trail x tick value. Above HEAT_CAP_USD -> full flat, over any partial close. An opening
// action (0, 1, 5, 6) whose new unit, at the trail it would get now, takes the heat above the cap -> Hold; after a
// reversal only the new unit counts. Reads slots HEAT_CAP_USD, PYRAMID_MAX_UNITS, sizes, trail slots.
// launch: threads B, block 64
// updates: action, override_reason
extern "C" __global__ void rl_heat_cap(
    const int* cursor, const float* regime, const int* position_lots, const int* pending_steps, const float* unit_trail,
    const int* unit_lots, const float* outcome_ema, const float* isv, signed char* action,
    unsigned char* override_reason, float tick_value_usd, int lot_limit, int t, int B) {
    int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= B) return;
    long long at = (long long)t * B + b, unit = (long long)b * MAX_UNITS;
    const float* now = regime + ((long long)cursor[b] + t) * N_REGIME;
    heat_cap_row(now, position_lots[b], pending_steps[b], unit_trail + unit, unit_lots + unit, outcome_ema[b], isv,
                 action + at, override_reason + at, tick_value_usd, lot_limit);
}
