// Rule-based baselines drive the same environment as the policy: they only replace its draw.
#include "env/baseline.cuh"

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
    const int side = signal[cursor[b] + t];
    action_drawn[row] = (signed char)signal_action_row(side, position_class[row] - lot_limit, lot_limit);
}
