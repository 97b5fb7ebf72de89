// Random numbers: xorshift32 (Marsaglia 2003, triple 13, 17, 5), one state per thread or row.
//
// The states live in a uint32 buffer that the host fills once (foxhunt_cli/device/rng.py: splitmix64 of seed,
// stream name and index) and a checkpoint keeps. Nothing else is random on a device. A kernel loads its state,
// draws, and writes it back. A state is never zero (zero is the one fixed point of xorshift); xorshift32 repairs
// it all the same, so that a buffer someone forgot to seed gives numbers and not an endless zero.
// Compiles with NVRTC and as C++ on the CPU device: no standard headers.
#pragma once

#define RNG_ZERO_STATE_SUBSTITUTE 0x9E3779B9u

// The next 32 bits; advances *state.
static __device__ inline unsigned int xorshift32(unsigned int* state) {
    unsigned int x = *state;
    if (x == 0u) x = RNG_ZERO_STATE_SUBSTITUTE;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    *state = x;
    return x;
}

// Uniform in [0, 1) on a grid of 2^-24: every value is exact in float32 and 1 cannot come out.
static __device__ inline float uniform01(unsigned int* state) {
    return (float)(xorshift32(state) >> 8) * (1.0f / 16777216.0f);
}

// Uniform in the open interval (0, 1), safe under logf and as a quantile: cell centres of a grid of 2^-23.
static __device__ inline float uniform_open(unsigned int* state) {
    return ((float)(xorshift32(state) >> 9) + 0.5f) * (1.0f / 8388608.0f);
}

// Uniform integer in [0, n), n >= 1, by the high half of a product (bias below n / 2^32).
static __device__ inline unsigned int uniform_below(unsigned int* state, unsigned int n) {
    return (unsigned int)(((unsigned long long)xorshift32(state) * n) >> 32);
}

// Standard normal by Box-Muller; two draws each (the sine half is dropped: one state, one number, no cache).
static __device__ inline float normal01(unsigned int* state) {
    float radius = sqrtf(-2.0f * logf(uniform_open(state)));
    float angle = 6.283185307179586f * uniform01(state);
    return radius * cosf(angle);
}
