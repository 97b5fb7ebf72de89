// Rule-based baselines drive the same environment as the policy: they only replace its draw.
#include "generated/structure.cuh"

// rl_signal_action: the action that brings a row to the side its rule wants.
// launch: threads B, block 64
// One thread a row. signal [N_SNAP]: 1 long, -1 short, 0 flat, 2 keep; cursor [B]; position_class [T+1, B];
// action_drawn [T, B]. Rules trade up to the lot limit, as the policy may: a wanted side is reversed to and added to
// with the large size until the limit holds.
extern "C" __global__ void rl_signal_action(const signed char* signal, const int* cursor, const int* position_class,
                                            signed char* action_drawn, int B, int t, int lot_limit) {
    int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= B) return;
    const long long row = (long long)t * B + b;
    const int lots = position_class[row] - lot_limit;
    const int side = signal[cursor[b] + t];
    int action = ACTION_HOLD;
    if (side == 1 && lots < lot_limit) action = ACTION_LONG_LARGE;
    if (side == -1 && lots > -lot_limit) action = ACTION_SHORT_LARGE;
    if (side == 0 && lots > 0) action = ACTION_FLAT_FROM_LONG;
    if (side == 0 && lots < 0) action = ACTION_FLAT_FROM_SHORT;
    action_drawn[row] = (signed char)action;
}
