// The priority of a transition, and of a batch's the largest.
#pragma once
#include "generated/isv_slots.cuh"
#include "include/math.cuh"

#define PRIORITY_FLOOR 1.0e-6f     // added to every priority: a learned transition can be drawn again
#define MAX_PRIORITY_DECAY 0.999f  // an update: the largest priority forgets an outlier

// |TD|^alpha + 1e-6; alpha is applied here and nowhere else.
static __device__ inline float priority_of(float td, float alpha) { return powf(fabsf(td), alpha) + PRIORITY_FLOOR; }

// The largest priority behind an update: of the batch, or the faded one.
static __device__ inline float largest_priority(float of_batch, float before) {
    const float faded = MAX_PRIORITY_DECAY * before;
    return of_batch > faded ? of_batch : faded;
}
