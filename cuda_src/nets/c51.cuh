// The categorical value distribution (Bellemare 2017): atoms, softmax, projection, cross-entropy.
//
// A head's logits are [rows, P, 11, 21], class-major; "pair" is class * 11 + action. One thread owns a pair: its 21
// atoms live in registers, no barrier, nothing shared. Local arrays have C51_PADDED elements, the pad holding 0, and
// sums go over eight lanes and then pairwise: three whole vectors on a CPU, independent chains on a GPU, and an order of
// addition that is the same on both.
#pragma once
#include "generated/isv_slots.cuh"
#include "generated/structure.cuh"
#include "include/math.cuh"

#define C51_ATOMS 21
#define C51_LANES 8
#define C51_PADDED 24          // three times the lanes
#define C51_EDGE_SLACK 1e-4f   // atoms; mass this near beyond an end of the span is not called clipped
#define C51_EXP_FLOOR -87.0f   // e^-87 = 1.6e-38 is the least that c51_exp gives

// Class of a position for a head of P blocks; one block (context in the encoder) serves every position.
static __device__ inline int head_class(int lots, int P) { return P == 1 ? 0 : lots + (P - 1) / 2; }

// The value of atom i on linspace(v_min, v_max); the ends are exact.
static __device__ inline float c51_atom(int i, float v_min, float v_max) {
    return i == C51_ATOMS - 1 ? v_max : fmaf((v_max - v_min) / (C51_ATOMS - 1), (float)i, v_min);
}

// e^x for x <= 0 by Cody-Waite reduction and a polynomial (Cephes expf, 2 ulp): fmaf and integer shifts only, so that a
// loop over atoms vectorises and the bits are the same on every device. NaN stays NaN. The double build takes exp.
static __device__ inline float c51_exp(float x) {
#ifdef FOXHUNT_DOUBLE
    return expf(x);
#else
    x = x < C51_EXP_FLOOR ? C51_EXP_FLOOR : x;
    const float shifted = fmaf(x, 1.44269504f, 12582912.0f);  // round(x / ln 2) in the low bits of the mantissa
    const float n = shifted - 12582912.0f;
    const float r = fmaf(n, 2.12194440e-4f, fmaf(n, -0.693359375f, x));
    float y = fmaf(r, 1.9875691500e-4f, 1.3981999507e-3f);
    y = fmaf(y, r, 8.3334519073e-3f);
    y = fmaf(y, r, 4.1665795894e-2f);
    y = fmaf(y, r, 1.6666665459e-1f);
    y = fmaf(y, r, 5.0000001201e-1f);
    y = fmaf(y, r * r, r) + 1.0f;
    return y * __int_as_float((int)(((unsigned int)__float_as_int(shifted) << 23) + 0x3f800000u));
#endif
}

static __device__ inline float c51_sum(const float* v) {
    float s[C51_LANES];
#pragma unroll
    for (int u = 0; u < C51_LANES; ++u) s[u] = (v[u] + v[C51_LANES + u]) + v[2 * C51_LANES + u];
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

// sum a_i b_i
static __device__ inline float c51_dot(const float* a, const float* b) {
    float product[C51_PADDED];
#pragma unroll
    for (int i = 0; i < C51_PADDED; ++i) product[i] = a[i] * b[i];
    return c51_sum(product);
}

// Sum of a distribution's atoms by index: sum i prob_i.
static __device__ inline float c51_mean_index(const float* prob) {
    float product[C51_PADDED];
#pragma unroll
    for (int i = 0; i < C51_PADDED; ++i) product[i] = (float)i * prob[i];
    return c51_sum(product);
}

// 21 numbers of global memory, pad 0.
static __device__ inline void c51_load(const float* memory, float* local) {
#pragma unroll
    for (int i = 0; i < C51_ATOMS; ++i) local[i] = memory[i];
#pragma unroll
    for (int i = C51_ATOMS; i < C51_PADDED; ++i) local[i] = 0.0f;
}

// x = logits + bias, prob = softmax(x), pads 0; returns the log of the normaliser: log p_i = x_i - result.
static __device__ inline float c51_softmax(const float* logits, const float* bias, float* x, float* prob) {
    float added[C51_PADDED], top[C51_LANES];
    c51_load(logits, x);
    c51_load(bias, added);
#pragma unroll
    for (int i = 0; i < C51_PADDED; ++i) x[i] += added[i];
#pragma unroll
    for (int u = 0; u < C51_LANES; ++u) {
        const float last = 2 * C51_LANES + u < C51_ATOMS ? x[2 * C51_LANES + u] : x[u];
        top[u] = x[u] > x[C51_LANES + u] ? x[u] : x[C51_LANES + u];
        top[u] = last > top[u] ? last : top[u];
    }
#pragma unroll
    for (int step = C51_LANES / 2; step > 0; step >>= 1) {
#pragma unroll
        for (int u = 0; u < step; ++u) top[u] = top[u] > top[u + step] ? top[u] : top[u + step];
    }
#pragma unroll
    for (int i = 0; i < C51_PADDED; ++i) prob[i] = c51_exp(x[i] - top[0]);
#pragma unroll
    for (int i = C51_ATOMS; i < C51_PADDED; ++i) prob[i] = 0.0f;
    const float sum = c51_sum(prob), inverse = 1.0f / sum;
#pragma unroll
    for (int i = 0; i < C51_PADDED; ++i) prob[i] *= inverse;
    return top[0] + logf(sum);
}

// Expectation of the atoms under prob (padded).
static __device__ inline float c51_mean(const float* prob, float v_min, float v_max) {
    return fmaf((v_max - v_min) / (C51_ATOMS - 1), c51_mean_index(prob), v_min * c51_sum(prob));
}

// target (padded) = the distribution of reward + keep z, z ~ prob (padded), on the atoms: what lands between two atoms is
// split linearly, what lands outside goes to the end. The two shares of an atom add up to its mass by construction, on an
// atom, between two or at an end, so mass is conserved for every span. v_min = v_max: all atoms coincide, the first holds
// the mass. A NaN place or mass shows in the target. Returns the mass that landed outside the span.
static __device__ inline float c51_project(const float* prob, float reward, float keep, float v_min, float v_max,
                                           float* target) {
    const float inverse = v_max > v_min ? (C51_ATOMS - 1) / (v_max - v_min) : 0.0f;
    const float base = (fmaf(keep, v_min, reward) - v_min) * inverse;  // where atom 0 lands, in atoms
    const float stretch = v_max > v_min ? keep : 0.0f, last = (float)(C51_ATOMS - 1);
    float share[C51_PADDED], outside[C51_PADDED];
    int below[C51_PADDED];
    for (int j = 0; j < C51_PADDED; ++j) {
        const float landed = fmaf(stretch, (float)j, base);
        const float positive = landed < 0.0f ? 0.0f : landed;
        const float place = positive > last ? last : positive;
        outside[j] = fabsf(landed - place) > C51_EDGE_SLACK ? prob[j] : 0.0f;
        const float held = place > 0.0f ? place : 0.0f;  // a NaN place is no index
        below[j] = held < last - 1.0f ? (int)held : C51_ATOMS - 2;
        share[j] = (place - (float)below[j]) * prob[j];  // goes to the atom above
        target[j] = 0.0f;
    }
    for (int j = 0; j < C51_ATOMS; ++j) {
        target[below[j]] += prob[j] - share[j];
        target[below[j] + 1] += share[j];
    }
    return c51_sum(outside);
}

// -sum target_i log p_i of prob = softmax(logits + bias); target padded; *mass = sum of target.
static __device__ inline float c51_cross_entropy(const float* logits, const float* bias, const float* target,
                                                 float* prob, float* mass) {
    float x[C51_PADDED];
    const float log_sum = c51_softmax(logits, bias, x, prob);
    *mass = c51_sum(target);
    return fmaf(log_sum, *mass, -c51_dot(target, x));
}
