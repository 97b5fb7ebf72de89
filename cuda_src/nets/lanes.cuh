// exp, sigmoid, tanh and SiLU without branches or calls, for kernels that need many of them.
//
// On the CPU device a loop over threads or columns that uses them becomes vector instructions (expf and tanhf of libm
// cost 6 and 23 ns an element there, these 1 to 2). On a GPU they use its special function unit: a sigmoid is 11
// instructions, a third of what the polynomial and a rounded division take.
//
// Accurate to 2 ulp (exp), 3 ulp (sigmoid) and 4 ulp (tanh); the two devices differ by that much. NaN stays NaN. exp
// saturates at e^-87.3 and e^88 instead of 0 and infinity, so that sigmoid and tanh are never NaN for an infinite
// argument. In the CPU device's double build the exact functions are used.
// Polynomials: S. Moshier, Cephes, expf and tanhf.
#pragma once
#include "include/math.cuh"

#define LANES_DOUBLE (sizeof(float) == sizeof(double))
#define LANES_EXP_LOW -87.3f            // e^-87.3 is still a normal number
#define LANES_EXP_HIGH 88.0f
#define LANES_LOG2_E 1.44269504f
#define LANES_LOG2_E_REST 1.92596303e-8f    // log2 e - LANES_LOG2_E
#define LANES_ROUNDER 12582912.0f       // 1.5 * 2^23: adding it rounds to an integer, which then fills the low bits
#define LANES_LN2_HIGH 0.693359375f     // ln 2 in two parts, the first with few bits
#define LANES_LN2_LOW -2.12194440e-4f
#define LANES_ONE_BITS 0x3F800000u      // bits of 1.0f
#define LANES_TANH_SPLIT 0.625f         // below it tanh is a polynomial: no cancellation near 0

#ifdef __CUDACC_RTC__

// x kept in the range of lanes_exp; NaN stays NaN.
static __device__ __forceinline__ float lanes_in_range(float x) {
#if __CUDA_ARCH__ >= 800
    asm("max.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(LANES_EXP_LOW));
    asm("min.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(LANES_EXP_HIGH));
    return x;
#else
    return clampf(x, LANES_EXP_LOW, LANES_EXP_HIGH);
#endif
}

// e^x = 2^t (1 + rest ln 2): t = x log2 e rounded, rest what the rounding lost.
static __device__ __forceinline__ float lanes_exp(float x) {
    x = lanes_in_range(x);
    const float t = x * LANES_LOG2_E, rest = fmaf(x, LANES_LOG2_E_REST, fmaf(x, LANES_LOG2_E, -t));
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(t));
    return fmaf(power * rest, MATH_LN2, power);
}

// 2^x, 2 ulp; 0 below the normal numbers, infinity above.
static __device__ __forceinline__ float lanes_exp2(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

// 1 / x; 0 where that is below the normal numbers.
static __device__ __forceinline__ float lanes_reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#else

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

static __device__ inline float lanes_exp2(float x) { return exp2f(x); }

static __device__ inline float lanes_reciprocal(float x) { return 1.0f / x; }

#endif

static __device__ inline float lanes_sigmoid(float x) { return lanes_reciprocal(1.0f + lanes_exp(-x)); }

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
    const float large = copysignf(1.0f - 2.0f * lanes_reciprocal(lanes_exp(2.0f * a) + 1.0f), x);
    return a < LANES_TANH_SPLIT ? small : large;
}
