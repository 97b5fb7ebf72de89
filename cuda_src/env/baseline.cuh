// Row of the kernel in baseline.cu.
// See actions.cuh for what a row function is.
#pragma once
#include "generated/structure.cuh"

// rl_signal_action: side 1 long, -1 short, 0 flat, 2 keep; lots: signed position.
static __device__ inline int signal_action_row(int side, int lots, int lot_limit) {
    if (side == 1 && lots < lot_limit) return ACTION_LONG_LARGE;
    if (side == -1 && lots > -lot_limit) return ACTION_SHORT_LARGE;
    if (side == 0 && lots > 0) return ACTION_FLAT_FROM_LONG;
    if (side == 0 && lots < 0) return ACTION_FLAT_FROM_SHORT;
    return ACTION_HOLD;
}
