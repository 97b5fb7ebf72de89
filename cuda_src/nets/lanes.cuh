// exp, sigmoid, tanh and SiLU without branches or calls: on the CPU device a loop over threads or columns that uses
// them becomes vector instructions (expf and tanhf of libm cost 6 and 23 ns an element there, these 1 to 2).
//
// Accurate to 2 ulp (exp, sigmoid) and 3 ulp (tanh); the same bits on both devices, being made of + - * / and fmaf.
// NaN stays NaN. exp saturates at e^-87.3 and e^88 instead of 0 and infinity, so that sigmoid and tanh are never NaN
// for an infinite argument. In the CPU device's double build the exact functions are used.
// Polynomials: S. Moshier, Cephes, expf and tanhf.
#pragma once
#include "include/math.cuh"

#define LANES_DOUBLE (sizeof(float) == sizeof(double))
#define LANES_EXP_LOW -87.3f            // e^-87.3 is still a normal number
#define LANES_EXP_HIGH 88.0f
#define LANES_LOG2_E 1.44269504f
#define LANES_ROUNDER 12582912.0f       // 1.5 * 2^23: adding it rounds to an integer, which then fills the low bits
#define LANES_LN2_HIGH 0.693359375f     // ln 2 in two parts, the first with few bits
#define LANES_LN2_LOW -2.12194440e-4f
#define LANES_ONE_BITS 0x3F800000u      // bits of 1.0f
#define LANES_TANH_SPLIT 0.625f         // below it tanh is a polynomial: no cancellation near 0

static __device__ inline float lanes_exp(float x) {
    if (LANES_DOUBLE) return expf(x);
    x = x < LANES_EXP_LOW ? LANES_EXP_LOW : x;
    x = x > LANES_EXP_HIGH ? LANES_EXP_HIGH : x;
    const float shifted = fmaf(x, LANES_LOG2_E, LANES_ROUNDER);
    const float n = shifted - LANES_ROUNDER;
    const float r = fmaf(-n, LANES_LN2_LOW, fmaf(-n, LANES_LN2_HIGH, x));
    float p = fmaf(1.9875691500e-4f, r, 1.3981999507e-3f);
    p = fmaf(p, r, 8.3334519073e-3f);
    p = fmaf(p, r, 4.1665795894e-2f);
    p = fmaf(p, r, 1.6666665459e-1f);
    p = fmaf(p, r, 5.0000001201e-1f);
    p = fmaf(p, r * r, r) + 1.0f;
    return p * __uint_as_float((__float_as_uint(shifted) << 23) + LANES_ONE_BITS);
}

static __device__ inline float lanes_sigmoid(float x) { return 1.0f / (1.0f + lanes_exp(-x)); }

static __device__ inline float lanes_silu(float x) { return x * lanes_sigmoid(x); }

// d silu / dx.
static __device__ inline float lanes_silu_slope(float x) {
    const float s = lanes_sigmoid(x);
    return s * fmaf(x, 1.0f - s, 1.0f);
}

static __device__ inline float lanes_tanh(float x) {
    if (LANES_DOUBLE) return tanhf(x);
    const float a = fabsf(x), z = x * x;
    float p = fmaf(-5.70498872745e-3f, z, 2.06390887954e-2f);
    p = fmaf(p, z, -5.37397155531e-2f);
    p = fmaf(p, z, 1.33314422036e-1f);
    p = fmaf(p, z, -3.33332819422e-1f);
    const float small = fmaf(p * z, x, x);
    const float large = copysignf(1.0f - 2.0f / (lanes_exp(2.0f * a) + 1.0f), x);
    return a < LANES_TANH_SPLIT ? small : large;
}
