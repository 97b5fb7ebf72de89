// Scalar functions that several kernels share, with their derivatives beside them.
//
// Every function lets NaN through: a kernel counts a NaN, it never turns it into a number. Overflow-safe over the
// whole of float32. NVRTC compiles with --fmad=false: a*b+c rounds twice unless fmaf is written.
// Compiles with NVRTC and as C++ on the CPU device: no standard headers, no INFINITY.
#pragma once

#define MATH_PI 3.14159265358979f
#define MATH_LN2 0.693147180559945f
#define MATH_FLOAT_MAX 3.402823466e38f    // start of a minimum; -MATH_FLOAT_MAX starts a maximum
#define MATH_FLOAT_TINY 1.17549435e-38f   // smallest normal number: the floor under a logarithm

static __device__ inline float clampf(float v, float lo, float hi) { return v < lo ? lo : (v > hi ? hi : v); }

static __device__ inline int clampi(int v, int lo, int hi) { return v < lo ? lo : (v > hi ? hi : v); }

// -1, 0 or 1; NaN stays NaN.
static __device__ inline float signf(float v) { return v > 0.0f ? 1.0f : (v < 0.0f ? -1.0f : v); }

// False for NaN and for both infinities.
static __device__ inline bool is_finite(float v) { return v - v == 0.0f; }

// 1 / (1 + e^-x), from the side where the exponential cannot overflow.
static __device__ inline float sigmoid(float x) {
    float e = expf(-fabsf(x));
    return x >= 0.0f ? 1.0f / (1.0f + e) : e / (1.0f + e);
}

// d sigmoid / dx as a function of s = sigmoid(x).
static __device__ inline float sigmoid_slope(float s) { return s * (1.0f - s); }

// ln(1 + e^x); its derivative is sigmoid(x).
static __device__ inline float softplus(float x) { return (x > 0.0f ? x : 0.0f) + log1pf(expf(-fabsf(x))); }

// x * sigmoid(x) (also called swish).
static __device__ inline float silu(float x) { return x * sigmoid(x); }

// d silu / dx.
static __device__ inline float silu_slope(float x) {
    float s = sigmoid(x);
    return s * fmaf(x, 1.0f - s, 1.0f);
}

// d tanh / dx as a function of y = tanhf(x).
static __device__ inline float tanh_slope(float y) { return fmaf(-y, y, 1.0f); }

// sign(x) ln(1 + |x|): odd, slope 1 at zero, logarithmic in the tails.
static __device__ inline float signed_log1p(float x) { return signf(x) * log1pf(fabsf(x)); }

// Huber loss: d^2 / 2 inside |d| <= kappa, kappa (|d| - kappa / 2) outside.
static __device__ inline float huber(float d, float kappa) {
    float a = fabsf(d);
    return a <= kappa ? 0.5f * d * d : kappa * (a - 0.5f * kappa);
}

// d huber / dd.
static __device__ inline float huber_slope(float d, float kappa) { return clampf(d, -kappa, kappa); }

// Exponential moving average: old + rate * (sample - old).
static __device__ inline float ema(float old, float sample, float rate) { return fmaf(rate, sample - old, old); }
