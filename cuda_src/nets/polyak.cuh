// Sums of squares of long vectors in a fixed order, and the EMA that norms go into.
#pragma once
#include "include/math.cuh"

#define NORM_GROUP 8           // elements a thread takes at a time: one 32-byte sector
#define NORM_EMA_RATE 0.05f    // per update

// Sum of a_i^2 (DIFFERENCE: of (a_i - b_i)^2) over the groups part, part + parts, ... : coalesced on a GPU, whole
// cache lines on a CPU. Eight independent accumulators, then pairwise: the order depends on n and parts only.
template <bool DIFFERENCE>
static __device__ inline float norm_part(const float* a, const float* b, int part, int parts, int n) {
    float sum[NORM_GROUP];
    for (int u = 0; u < NORM_GROUP; ++u) sum[u] = 0.0f;
    for (long long base = (long long)part * NORM_GROUP; base < n; base += (long long)parts * NORM_GROUP) {
        for (int u = 0; u < NORM_GROUP; ++u) {
            if (base + u >= n) break;
            const float v = DIFFERENCE ? a[base + u] - b[base + u] : a[base + u];
            sum[u] = fmaf(v, v, sum[u]);
        }
    }
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

// The first observation replaces the sentinel 0.
static __device__ inline float norm_ema(float old, float sample) {
    return old == 0.0f ? sample : ema(old, sample, NORM_EMA_RATE);
}
