// Eight floats that are worked on together: one vector register on the CPU device, eight registers on a GPU.
//
// A compiler finds vectors in plain loops only while the data comes from arrays in memory; a value that lives in between
// (logits, probabilities of a row) goes to the stack and back. This type keeps it in a register. The order of every
// operation is written here, so both devices give the same bits.
// + - * / and unary - take an eight and an eight or a float. Compiles with NVRTC and as C++ on the CPU device.
#pragma once

#define EIGHT 8

#ifdef __FOXHUNT_CPU__
typedef float eight __attribute__((vector_size(EIGHT * sizeof(float))));
typedef float eight_in_memory __attribute__((vector_size(EIGHT * sizeof(float)), aligned(sizeof(float)), may_alias));

// from[0..7]; needs no alignment.
static inline eight eight_load(const float* from) { return *(const eight_in_memory*)from; }
static inline void eight_store(float* to, eight v) { *(eight_in_memory*)to = v; }
// The larger of two; b where one is NaN. The instruction says just that, but the compiler makes two of it.
#if defined(__AVX__) && !defined(FOXHUNT_DOUBLE)
static inline eight eight_max(eight a, eight b) { return __builtin_ia32_maxps256(a, b); }
static inline eight eight_min(eight a, eight b) { return __builtin_ia32_minps256(a, b); }
#else
static inline eight eight_max(eight a, eight b) { return a > b ? a : b; }
static inline eight eight_min(eight a, eight b) { return a < b ? a : b; }
#endif
// yes where a > b, else no; no where one is NaN.
static inline eight eight_where_above(eight a, eight b, eight yes, eight no) { return a > b ? yes : no; }

#ifndef FOXHUNT_DOUBLE
typedef unsigned int eight_bits __attribute__((vector_size(EIGHT * sizeof(unsigned int))));
// 2^n of floats n + 1.5 * 2^23: the low bits of their mantissa are n.
static inline eight eight_power_of_two(eight shifted) { return (eight)(((eight_bits)shifted << 23) + 0x3f800000u); }
#endif

typedef float eight_half __attribute__((vector_size(EIGHT / 2 * sizeof(float))));
static inline eight_half eight_low(eight v) { return eight_half{v[0], v[1], v[2], v[3]}; }
static inline eight_half eight_high(eight v) { return eight_half{v[4], v[5], v[6], v[7]}; }
// The sum of the lanes: halves, then quarters, then the last pair.
static inline float eight_sum(eight v) {
    const eight_half h = eight_low(v) + eight_high(v);
    return (h[0] + h[2]) + (h[1] + h[3]);
}
// The largest lane; unspecified where one is NaN.
static inline float eight_largest(eight v) {
    const eight_half a = eight_low(v), b = eight_high(v), h = a > b ? a : b;
    const float even = h[0] > h[2] ? h[0] : h[2], odd = h[1] > h[3] ? h[1] : h[3];
    return even > odd ? even : odd;
}
#else
struct eight {
    float lane[EIGHT];
    __device__ float& operator[](int u) { return lane[u]; }
    __device__ float operator[](int u) const { return lane[u]; }
};
#define EIGHT_LANES _Pragma("unroll") for (int u = 0; u < EIGHT; ++u)
#define EIGHT_OPERATOR(op) \
    static __device__ inline eight operator op(eight a, eight b) { \
        EIGHT_LANES a[u] = a[u] op b[u]; \
        return a; \
    } \
    static __device__ inline eight operator op(eight a, float b) { \
        EIGHT_LANES a[u] = a[u] op b; \
        return a; \
    } \
    static __device__ inline eight operator op(float a, eight b) { \
        EIGHT_LANES b[u] = a op b[u]; \
        return b; \
    }
EIGHT_OPERATOR(+)
EIGHT_OPERATOR(-)
EIGHT_OPERATOR(*)
EIGHT_OPERATOR(/)
static __device__ inline eight operator-(eight a) {
    EIGHT_LANES a[u] = -a[u];
    return a;
}
static __device__ inline eight eight_load(const float* from) {
    eight v;
    EIGHT_LANES v[u] = from[u];
    return v;
}
static __device__ inline void eight_store(float* to, eight v) { EIGHT_LANES to[u] = v[u]; }
static __device__ inline eight eight_max(eight a, eight b) {
    EIGHT_LANES a[u] = a[u] > b[u] ? a[u] : b[u];
    return a;
}
static __device__ inline eight eight_min(eight a, eight b) {
    EIGHT_LANES a[u] = a[u] < b[u] ? a[u] : b[u];
    return a;
}
static __device__ inline eight eight_where_above(eight a, eight b, eight yes, eight no) {
    EIGHT_LANES no[u] = a[u] > b[u] ? yes[u] : no[u];
    return no;
}
static __device__ inline eight eight_power_of_two(eight v) {
    EIGHT_LANES v[u] = __uint_as_float((__float_as_uint(v[u]) << 23) + 0x3f800000u);
    return v;
}
static __device__ inline float eight_sum(eight v) {
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}
static __device__ inline float eight_largest(eight v) {
    const float a = v[0] > v[4] ? v[0] : v[4], b = v[1] > v[5] ? v[1] : v[5];
    const float c = v[2] > v[6] ? v[2] : v[6], d = v[3] > v[7] ? v[3] : v[7];
    const float e = a > c ? a : c, f = b > d ? b : d;
    return e > f ? e : f;
}
#endif

static __device__ inline eight eight_of(float x) { return eight{x, x, x, x, x, x, x, x}; }

// first, first + 1, ..., first + 7
static __device__ inline eight eight_ramp(float first) {
    return eight{0.0f, 1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f, 7.0f} + first;
}

// a b + c, rounded once.
static __device__ inline eight eight_fma(eight a, eight b, eight c) {
#pragma unroll
    for (int u = 0; u < EIGHT; ++u) a[u] = fmaf(a[u], b[u], c[u]);
    return a;
}

static __device__ inline eight eight_sqrt(eight a) {
#pragma unroll
    for (int u = 0; u < EIGHT; ++u) a[u] = sqrtf(a[u]);
    return a;
}

static __device__ inline eight eight_abs(eight a) {
#pragma unroll
    for (int u = 0; u < EIGHT; ++u) a[u] = fabsf(a[u]);
    return a;
}

// v with its first `count` lanes 0.
static __device__ inline eight eight_without(eight v, int count) {
#pragma unroll
    for (int u = 0; u < EIGHT; ++u) v[u] = u < count ? 0.0f : v[u];
    return v;
}
