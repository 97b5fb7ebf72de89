// half.cuh for the CPU device: the same functions, the instruction as exchanges among the lanes of a warp.
#pragma once
#include "include/half_bits.cuh"

static __attribute__((noinline)) float half_value(unsigned int bits) {
    const unsigned int exponent = bits >> 10 & 31u, fraction = bits & 0x3FFu;
    float v = exponent ? __uint_as_float((exponent + 112u) << 23 | fraction << 13) : (float)fraction * 5.9604644775390625e-8f;
    if (exponent == 31u) v = __uint_as_float(0x7F800000u | fraction << 13);
    return bits & 0x8000u ? -v : v;
}

static inline unsigned int to_halves(float low, float high) { return pack_halves(low, high); }

static inline float power_of_two(float x) { return x < -126.0f ? 0.0f : exp2f(x); }

static __attribute__((noinline)) void mma_half(float* d, const unsigned int* a, unsigned int b0, unsigned int b1) {
    const int lane = threadIdx.x & 31, g = lane / 4, t = lane % 4;
    const unsigned long long pairs = b0 | (unsigned long long)b1 << 32;
    const unsigned long long upper = a[0] | (unsigned long long)a[1] << 32, lower = a[2] | (unsigned long long)a[3] << 32;
    for (int k = 0; k < 4; ++k) {  // the lanes that hold inputs 2 k, 2 k + 1, 2 k + 8 and 2 k + 9
        const unsigned long long first = __shfl_sync(~0u, upper, 4 * g + k), second = __shfl_sync(~0u, lower, 4 * g + k);
        for (int n = 0; n < 2; ++n) {
            const unsigned long long column = __shfl_sync(~0u, pairs, 4 * (2 * t + n) + k);
            for (int half = 0; half < 64; half += 16) {
                const unsigned long long weights = half < 32 ? first : second;  // outputs g and g + 8 of two inputs
                const float b = half_value(column >> half & 0xFFFFu);
                d[n] += half_value(weights >> half % 32 & 0xFFFFu) * b;
                d[2 + n] += half_value(weights >> (32 + half % 32) & 0xFFFFu) * b;
            }
        }
    }
}
