// Averages of measured signals, and sums over a whole [T, B] array by one block in a fixed order.
#pragma once
#include "include/math.cuh"
#include "include/reduce.cuh"

#define SIGNAL_BLOCK 128      // threads of a signal kernel: one block strides over the array
#define SIGNAL_ALPHA 0.05f    // rate of every signal EMA; a constant, so it never falls to zero
#define SIGNAL_PAD 129        // row length of the shared table: neighbouring columns in different banks

// EMA whose state 0 means "nothing seen yet": the first non-zero observation is taken as it is.
static __device__ inline float ema_first(float state, float observation, float alpha) {
    return state == 0.0f ? observation : ema(state, observation, alpha);
}

// Every thread brings values[0..columns); column by column, one thread adds them up in order of the threads. All
// threads call; totals (shared, `columns` floats) is complete for all after it. table: shared, columns x SIGNAL_PAD
// floats. Two barriers in all: much cheaper than a shuffle reduction a column, where threads are fibers.
static __device__ inline void block_columns_sum(const float* values, int columns, float* table, float* totals) {
    for (int c = 0; c < columns; ++c) table[c * SIGNAL_PAD + threadIdx.x] = values[c];
    __syncthreads();
    for (int c = threadIdx.x; c < columns; c += SIGNAL_BLOCK) {
        float sum = 0.0f;
        for (int i = 0; i < SIGNAL_BLOCK; ++i) sum += table[c * SIGNAL_PAD + i];
        totals[c] = sum;
    }
    __syncthreads();
}

// The same with the largest value; a NaN wins.
static __device__ inline void block_columns_max(const float* values, int columns, float* table, float* totals) {
    for (int c = 0; c < columns; ++c) table[c * SIGNAL_PAD + threadIdx.x] = values[c];
    __syncthreads();
    for (int c = threadIdx.x; c < columns; c += SIGNAL_BLOCK) {
        float best = table[c * SIGNAL_PAD];
        for (int i = 1; i < SIGNAL_BLOCK; ++i) best = max_keep_nan(best, table[c * SIGNAL_PAD + i]);
        totals[c] = best;
    }
    __syncthreads();
}
