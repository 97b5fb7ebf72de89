// Pyramid units of one row. Every function takes pointers to the row's MAX_UNITS adjacent elements, in global memory
// or in registers. Invariants: active units (lots > 0) come first, the oldest first; their lots add up to |position|.
#pragma once
#include "generated/isv_slots.cuh"
#include "generated/structure.cuh"
#include "include/math.cuh"

#define UNIT_RISK_FLOOR 1.0e-6f      // ticks x lots; floor under a division by initial risk
#define VOLATILITY_HORIZON_ROOT 3.16227766f  // sqrt(10 s): ticks/sqrt(s) -> ticks over 10 s
#define REGIME_VOLATILITY_10S 0      // index into regime

static __device__ inline int units_active(const int* lots) {
    int count = 0;
    for (int u = 0; u < MAX_UNITS; ++u) count += lots[u] > 0;
    return count;
}

static __device__ inline int units_marked_lots(const int* lots, const unsigned char* marked) {
    int sum = 0;
    for (int u = 0; u < MAX_UNITS; ++u) sum += marked[u] ? lots[u] : 0;
    return sum;
}

// Unrealised PnL in ticks x lots; direction +1 long, -1 short.
static __device__ inline float units_unrealised(const float* entry, const int* lots, int direction, float mid) {
    float sum = 0.0f;
    for (int u = 0; u < MAX_UNITS; ++u) {
        if (lots[u] > 0) sum += (float)(lots[u] * direction) * (mid - entry[u]);
    }
    return sum;
}

// Sum of lots x distance over active units, ticks x lots: initial risk or, with the trails, heat.
static __device__ inline float units_weighted(const float* distance, const int* lots) {
    float sum = 0.0f;
    for (int u = 0; u < MAX_UNITS; ++u) {
        if (lots[u] > 0) sum += (float)lots[u] * distance[u];
    }
    return sum;
}

// Unrealised R, lot-weighted: unrealised over initial risk, so that R x risk is the unrealised PnL again.
static __device__ inline float units_unrealised_r(float unrealised, float risk) {
    return unrealised / fmaxf(risk, UNIT_RISK_FLOOR);
}

// Trail of a unit opened now, ticks: TRAIL_K_INIT x the mean |trade PnL| in ticks a lot once both EMAs are live; before
// that TRAIL_K_INIT x the 10-s volatility (ticks/sqrt(s)) over 10 s. Always within the trail bounds.
static __device__ inline float initial_trail(const float* isv, float volatility, float tick_value_usd) {
    float pnl = isv[ISV_MEAN_ABS_PNL_EMA], lots = isv[ISV_CLOSED_LOTS_EMA];
    bool live = pnl > 0.0f && lots > 0.0f;
    float trail = isv[ISV_TRAIL_K_INIT] * (live ? pnl / (tick_value_usd * lots) : volatility * VOLATILITY_HORIZON_ROOT);
    return clampf(trail, isv[ISV_TRAIL_MIN], isv[ISV_TRAIL_MAX]);
}

// Takes `close` lots out: marked units first, then the oldest.
static __device__ inline void units_close(int* lots, const unsigned char* marked, int close) {
    for (int pass = 0; pass < 2; ++pass) {
        for (int u = 0; u < MAX_UNITS; ++u) {
            if (pass == 0 && !marked[u]) continue;
            int take = lots[u] < close ? lots[u] : close;
            lots[u] -= take;
            close -= take;
        }
    }
}

// The row's units as pointers to its MAX_UNITS elements.
struct UnitRow {
    float *entry, *best, *initial_r, *trail;
    int *age, *lots;
    unsigned char* marked;
};

static __device__ inline void unit_open(UnitRow row, int u, float price, float mid, float trail) {
    row.entry[u] = price;
    row.best[u] = mid;
    row.initial_r[u] = row.trail[u] = trail;
    row.age[u] = row.lots[u] = 0;
}

// Everything of an inactive unit is zero, but for its mark.
static __device__ inline void unit_clear(UnitRow row, int u) { unit_open(row, u, 0.0f, 0.0f, 0.0f); }

static __device__ inline void unit_move(UnitRow row, int from, int to) {
    row.entry[to] = row.entry[from];
    row.best[to] = row.best[from];
    row.initial_r[to] = row.initial_r[from];
    row.trail[to] = row.trail[from];
    row.age[to] = row.age[from];
    row.lots[to] = row.lots[from];
    unit_clear(row, from);
}

// Moves active units to the front, order kept, and clears the rest. Indices are known to the compiler: units in
// registers stay there.
static __device__ inline void units_compact(UnitRow row) {
    for (int pass = 1; pass < MAX_UNITS; ++pass) {
        for (int u = 1; u < MAX_UNITS; ++u) {
            if (row.lots[u - 1] <= 0 && row.lots[u] > 0) unit_move(row, u, u - 1);
        }
    }
    for (int u = 0; u < MAX_UNITS; ++u) {
        if (row.lots[u] <= 0) unit_clear(row, u);
    }
}
