// What the kernels in unit_statistics.cu do, as functions that a fused kernel may call as well.
#pragma once
#include "env/signal.cuh"
#include "generated/isv_slots.cuh"
#include "generated/structure.cuh"

#define UNIT_FIGURES 4  // rows that hold the unit, |lots|, trail, age
#define UNIT_SUMS (MAX_UNITS * UNIT_FIGURES)

// rl_unit_statistics: what row b adds, what becomes of the totals (one thread), both by one block.
static __device__ inline void unit_statistics_row(const int* unit_lots, const float* unit_trail, const int* unit_age,
                                                  long long b, float* sums) {
#pragma unroll
    for (int u = 0; u < MAX_UNITS; ++u) {
        const long long at = b * MAX_UNITS + u;
        const float lots = fabsf((float)unit_lots[at]), trail = unit_trail[at], age = (float)unit_age[at];
        const bool held = lots != 0.0f;
        float* mine = sums + u * UNIT_FIGURES;
        mine[0] += held ? 1.0f : 0.0f;
        mine[1] += held ? lots : 0.0f;
        mine[2] += held ? trail : 0.0f;
        mine[3] += held ? age : 0.0f;
    }
}

static __device__ inline void unit_statistics_finish(const float* totals, float* isv, int B) {
    for (int u = 0; u < MAX_UNITS; ++u) {
        const float* all = totals + u * UNIT_FIGURES;
        isv[ISV_UNIT_ACTIVE_0 + u] = all[0] / (float)B;
        if (!(all[0] > 0.0f)) continue;
        isv[ISV_UNIT_LOTS_0 + u] = all[1] / all[0];
        isv[ISV_UNIT_TRAIL_0 + u] = all[2] / all[0];
        isv[ISV_UNIT_AGE_0 + u] = all[3] / all[0];
    }
}

static __device__ inline void unit_statistics_block(const int* unit_lots, const float* unit_trail, const int* unit_age,
                                                    float* isv, int B) {
    __shared__ Columns<UNIT_SUMS> columns;
    columns_of_rows(columns, B, SIGNAL_PART, [&](long long b, float* sums) {
        unit_statistics_row(unit_lots, unit_trail, unit_age, b, sums);
    });
    if (threadIdx.x == 0) unit_statistics_finish(columns.totals, isv, B);
}
