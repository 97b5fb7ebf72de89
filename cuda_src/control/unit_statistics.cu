// What the pyramid units of all rows look like at the end of an iteration, for people.
#include "control/unit_statistics.cuh"

// rl_unit_statistics: of each pyramid unit, the share of rows that hold it and their mean |lots|, trail and age.
// Slots UNIT_*; lots, ticks, steps. Where no row holds a unit, its three means are left alone.
// launch: blocks 1, block 128
// updates: isv
// One block strides over the rows, fixed order. unit_lots (0 = not held), unit_trail, unit_age [B, MAX_UNITS].
extern "C" __global__ void rl_unit_statistics(const int* unit_lots, const float* unit_trail, const int* unit_age,
                                              float* isv, int B) {
    unit_statistics_block(unit_lots, unit_trail, unit_age, isv, B);
}
