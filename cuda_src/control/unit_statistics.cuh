// What the kernels in unit_statistics.cu do, as functions that a fused kernel may call as well.
#pragma once
#include "env/signal.cuh"
#include "generated/isv_slots.cuh"
#include "generated/structure.cuh"

#define UNIT_FIGURES 4  // rows that hold the unit, |lots|, trail, age
#define UNIT_COLUMNS (MAX_UNITS * UNIT_FIGURES)

// rl_unit_statistics.
static __device__ inline void unit_statistics_block(const int* unit_lots, const float* unit_trail, const int* unit_age,
                                                    float* isv, int B) {
    __shared__ float table[UNIT_COLUMNS * SIGNAL_PAD];
    __shared__ float totals[UNIT_COLUMNS];
    float sums[UNIT_COLUMNS] = {0.0f};
    for (int b = threadIdx.x; b < B; b += SIGNAL_BLOCK) {
        for (int u = 0; u < MAX_UNITS; ++u) {
            const long long at = (long long)b * MAX_UNITS + u;
            if (unit_lots[at] == 0) continue;
            float* mine = sums + u * UNIT_FIGURES;
            mine[0] += 1.0f;
            mine[1] += fabsf((float)unit_lots[at]);
            mine[2] += unit_trail[at];
            mine[3] += (float)unit_age[at];
        }
    }
    block_columns_sum(sums, UNIT_COLUMNS, table, totals);
    if (threadIdx.x != 0) return;
    for (int u = 0; u < MAX_UNITS; ++u) {
        const float* all = totals + u * UNIT_FIGURES;
        isv[ISV_UNIT_ACTIVE_0 + u] = all[0] / (float)B;
        if (!(all[0] > 0.0f)) continue;
        isv[ISV_UNIT_LOTS_0 + u] = all[1] / all[0];
        isv[ISV_UNIT_TRAIL_0 + u] = all[2] / all[0];
        isv[ISV_UNIT_AGE_0 + u] = all[3] / all[0];
    }
}
