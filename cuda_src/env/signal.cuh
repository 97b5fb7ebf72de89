// Averages of measured signals, and how rows of [T, B] are dealt where sums over them are taken.
#pragma once
#include "include/columns.cuh"
#include "include/math.cuh"
#include "include/reduce.cuh"

#define SIGNAL_ALPHA 0.05f  // rate of every signal EMA; a constant, so it never falls to zero
#define SIGNAL_PART 512     // rows of a part

// EMA whose state 0 means "nothing seen yet": the first non-zero observation is taken as it is.
static __device__ inline float ema_first(float state, float observation, float alpha) {
    return state == 0.0f ? observation : ema(state, observation, alpha);
}
