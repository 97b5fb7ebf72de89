// First and last word on a step's action: an order under way, the minimum hold, and the market target.
// One thread a row; a slice t of every [T, B] array is read and written at t*B + b.
#include "env/actions.cuh"

// rl_action_begin: the executed action starts as the drawn one; a row with an order under way holds.
// Reads action_drawn [T,B], pending_steps [B]. Writes action, override_reason [T,B], slice t.
// launch: threads B, block 64
extern "C" __global__ void rl_action_begin(
    const signed char* action_drawn, const int* pending_steps, signed char* action, unsigned char* override_reason,
    int t, int B) {
    int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= B) return;
    long long at = (long long)t * B + b;
    action_begin_row(action_drawn[at], pending_steps[b], action + at, override_reason + at);
}

// rl_min_hold_check: a policy exit (3, 4, 9, 10 on its own side) earlier than MIN_HOLD_STEPS becomes Hold.
// The age is that of the open trade, or with since_close (preset seed) the steps since the row's last close.
// Comes before the stops, so safety is never blocked. A reversal is not an exit. Reads slot MIN_HOLD_STEPS.
// launch: threads B, block 64
// updates: action, override_reason
extern "C" __global__ void rl_min_hold_check(
    const int* position_lots, const int* trade_open_step, const int* steps_since_close, const float* isv,
    signed char* action, unsigned char* override_reason, int since_close, int t, int B) {
    int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= B) return;
    long long at = (long long)t * B + b;
    int age = since_close ? steps_since_close[b] : trade_open_step[b];
    min_hold_check_row(position_lots[b], age, isv, action + at, override_reason + at);
}

// actions_to_market_targets: target position of the executed action, in lots within +-lot_limit.
// Sizes are anti-martingale (outcome_ema of the row). An add with PYRAMID_MAX_UNITS units is no change. HalfFlat closes
// half the position rounded up; made by the trail stop it closes the marked lots; a policy's own HalfFlat never closes
// less than the marked lots. A row with an order under way keeps its position as target.
// Reads slots SIZE_SMALL, SIZE_LARGE, ANTI_MARTINGALE_GAIN, PYRAMID_MAX_UNITS. Writes market_target, overridden, slice
// t.
// launch: threads B, block 64
extern "C" __global__ void actions_to_market_targets(
    const signed char* action, const signed char* action_drawn, const unsigned char* override_reason,
    const int* position_lots, const int* unit_lots, const unsigned char* unit_marked, const float* outcome_ema,
    const float* isv, int* market_target, unsigned char* overridden, int lot_limit, int t, int B) {
    int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= B) return;
    long long at = (long long)t * B + b, unit = (long long)b * MAX_UNITS;
    market_target[at] =
        actions_to_market_targets_row(action[at], override_reason[at], position_lots[b], unit_lots + unit,
                                      unit_marked + unit, outcome_ema[b], isv, lot_limit);
    overridden[at] = action[at] != action_drawn[at];
}
