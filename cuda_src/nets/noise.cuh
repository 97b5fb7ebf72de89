// Factorised Gaussian noise of noisy linear layers (Fortunato 2018): W = w + sw (f(e_in) x f(e_out)), b + sb f(e_out).
#pragma once
#include "include/math.cuh"
#include "include/rng.cuh"

// f(e) = sign(e) sqrt(|e|) of a standard normal; advances the state.
static __device__ inline float noise_factor(unsigned int* state) {
    const float e = normal01(state);
    return signf(e) * sqrtf(fabsf(e));
}

static __device__ inline float noisy_weight(float w, float sw, float in_factor, float out_factor) {
    return fmaf(sw, in_factor * out_factor, w);
}

static __device__ inline float noisy_bias(float b, float sb, float out_factor) { return fmaf(sb, out_factor, b); }
