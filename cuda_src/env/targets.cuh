// What an action does to the position: the table of actions as integer functions, shared by the market targets, the
// heat cap and the path targets of the replay.
#pragma once
#include "generated/isv_slots.cuh"
#include "generated/structure.cuh"
#include "include/math.cuh"

// +1 for actions that buy lots to open or add, -1 for those that sell, 0 for the rest.
static __device__ inline int action_side(int action) {
    if (action == ACTION_LONG_SMALL || action == ACTION_LONG_LARGE) return 1;
    if (action == ACTION_SHORT_SMALL || action == ACTION_SHORT_LARGE) return -1;
    return 0;
}

// Anti-martingale size: rint(base x (1 + gain x outcome)), at least one lot. outcome in [-1, 1].
static __device__ inline int order_size(float base, float gain, float outcome) {
    float size = rintf(base * (1.0f + gain * outcome));
    return size < 1.0f ? 1 : (int)size;
}

// Size of action's order for a row, read from the slots.
static __device__ inline int action_size(int action, const float* isv, float outcome) {
    bool large = action == ACTION_LONG_LARGE || action == ACTION_SHORT_LARGE;
    return order_size(isv[large ? ISV_SIZE_LARGE : ISV_SIZE_SMALL], isv[ISV_ANTI_MARTINGALE_GAIN], outcome);
}

// Lots that a HalfFlat without a stop closes: half the position, rounded up.
static __device__ inline int half_of(int position) { return ((position < 0 ? -position : position) + 1) / 2; }

// Full flat of the side held.
static __device__ inline int full_flat(int position) {
    return position > 0 ? ACTION_FLAT_FROM_LONG : ACTION_FLAT_FROM_SHORT;
}

static __device__ inline int half_flat(int position) {
    return position > 0 ? ACTION_HALF_FLAT_LONG : ACTION_HALF_FLAT_SHORT;
}

// Target position after an action. size: lots of an opening action; may_add: a free unit is left; half_lots: what a
// HalfFlat closes. The result is within +-lot_limit; an action of the other side, or without effect, returns position.
static __device__ inline int action_target(int action, int position, int size, int lot_limit, bool may_add,
                                           int half_lots) {
    int side = action_side(action);
    if (side != 0) {
        bool adds = position * side > 0;
        if (adds && !may_add) return position;
        return clampi((adds ? position : 0) + side * size, -lot_limit, lot_limit);
    }
    if (action == ACTION_FLAT_FROM_LONG) return position > 0 ? 0 : position;
    if (action == ACTION_FLAT_FROM_SHORT) return position < 0 ? 0 : position;
    if (action == ACTION_HALF_FLAT_LONG && position > 0) return position > half_lots ? position - half_lots : 0;
    if (action == ACTION_HALF_FLAT_SHORT && position < 0) return -position > half_lots ? position + half_lots : 0;
    return position;
}
