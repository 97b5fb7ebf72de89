// The categorical value distribution (Bellemare 2017): atoms, softmax, projection, cross-entropy.
//
// A head's logits are [rows, P, 11, 21], class-major; "pair" is class * 11 + action. One thread owns a pair: its 21
// atoms live in registers, no barrier, nothing shared. They are held as three groups of eight: atoms 0 to 7, 8 to 15 and
// 13 to 20. The last group overlaps the one before, so that groups are whole vectors of the row in memory, with nothing
// read beyond it; sums leave the three doubled atoms out. The order of addition is the same on every device.
#pragma once
#include "generated/isv_slots.cuh"
#include "generated/structure.cuh"
#include "include/eight.cuh"
#include "include/math.cuh"

#define C51_ATOMS 21
#define C51_MIDDLE EIGHT               // first atom of the middle group
#define C51_HIGH (C51_ATOMS - EIGHT)   // first atom of the last group
#define C51_EDGE_SLACK 1e-4f           // atoms; mass this near beyond an end of the span is not called clipped
#define C51_EXP_FLOOR -87.0f           // e^-87 = 1.6e-38 is the least that c51_exp gives

// Named members, not an array: a compiler keeps them in registers only then.
struct C51Row {
    eight low, middle, high;
};

// Class of a position for a head of P blocks; one block (context in the encoder) serves every position.
static __device__ inline int head_class(int lots, int P) { return P == 1 ? 0 : lots + (P - 1) / 2; }

// The value of atom i on linspace(v_min, v_max); the ends are exact.
static __device__ inline float c51_atom(int i, float v_min, float v_max) {
    return i == C51_ATOMS - 1 ? v_max : fmaf((v_max - v_min) / (C51_ATOMS - 1), (float)i, v_min);
}

// e^x for x <= 0 by Cody-Waite reduction and a polynomial (Cephes expf, 2 ulp): fmaf and integer shifts only, so that
// the bits are the same on every device. NaN stays NaN. The double build takes exp.
static __device__ inline eight c51_exp(eight x) {
#ifdef FOXHUNT_DOUBLE
    for (int u = 0; u < EIGHT; ++u) x[u] = expf(x[u]);
    return x;
#else
    x = eight_max(eight_of(C51_EXP_FLOOR), x);
    const eight shifted = eight_fma(x, eight_of(1.44269504f), eight_of(12582912.0f));  // round(x / ln 2) in the low bits
    const eight n = shifted - 12582912.0f;
    const eight r = eight_fma(n, eight_of(2.12194440e-4f), eight_fma(n, eight_of(-0.693359375f), x));
    eight y = eight_fma(r, eight_of(1.9875691500e-4f), eight_of(1.3981999507e-3f));
    y = eight_fma(y, r, eight_of(8.3334519073e-3f));
    y = eight_fma(y, r, eight_of(4.1665795894e-2f));
    y = eight_fma(y, r, eight_of(1.6666665459e-1f));
    y = eight_fma(y, r, eight_of(5.0000001201e-1f));
    y = eight_fma(y, r * r, r) + 1.0f;
    return y * eight_power_of_two(shifted);
#endif
}

static __device__ inline C51Row c51_load(const float* memory) {
    return C51Row{eight_load(memory), eight_load(memory + C51_MIDDLE), eight_load(memory + C51_HIGH)};
}

static __device__ inline void c51_store(float* memory, C51Row row) {
    eight_store(memory, row.low);
    eight_store(memory + C51_MIDDLE, row.middle);
    eight_store(memory + C51_HIGH, row.high);
}

// 0, 1, ..., 20
static __device__ inline C51Row c51_indices() {
    return C51Row{eight_ramp(0.0f), eight_ramp((float)C51_MIDDLE), eight_ramp((float)C51_HIGH)};
}

static __device__ inline C51Row operator+(C51Row a, C51Row b) {
    return C51Row{a.low + b.low, a.middle + b.middle, a.high + b.high};
}

static __device__ inline C51Row operator*(C51Row a, C51Row b) {
    return C51Row{a.low * b.low, a.middle * b.middle, a.high * b.high};
}

static __device__ inline C51Row operator+(C51Row a, float b) { return C51Row{a.low + b, a.middle + b, a.high + b}; }

static __device__ inline C51Row operator*(C51Row a, float b) { return C51Row{a.low * b, a.middle * b, a.high * b}; }

// Sum over the 21 atoms.
static __device__ inline float c51_sum(C51Row row) {
    return eight_sum((row.low + row.middle) + eight_without(row.high, C51_MIDDLE + EIGHT - C51_HIGH));
}

static __device__ inline float c51_largest(C51Row x) {
    return eight_largest(eight_max(x.high, eight_max(x.low, x.middle)));
}

// e^(x - top), top >= x.
static __device__ inline C51Row c51_weights(C51Row x, float top) {
    return C51Row{c51_exp(x.low - top), c51_exp(x.middle - top), c51_exp(x.high - top)};
}

// prob = softmax(x); returns the log of the normaliser: log p_i = x_i - result.
static __device__ inline float c51_softmax(C51Row x, C51Row* prob) {
    const float top = c51_largest(x);
    const C51Row weights = c51_weights(x, top);
    const float sum = c51_sum(weights);
    *prob = weights * (1.0f / sum);
    return top + logf(sum);
}

// Expectation of the atoms under prob.
static __device__ inline float c51_mean(C51Row prob, float v_min, float v_max) {
    return fmaf((v_max - v_min) / (C51_ATOMS - 1), c51_sum(prob * c51_indices()), v_min * c51_sum(prob));
}

// Expectation of the atoms under softmax(x), which is not formed: one division instead of 21 products.
static __device__ inline float c51_expectation(C51Row x, float v_min, float v_max) {
    const C51Row weights = c51_weights(x, c51_largest(x));
    return fmaf((v_max - v_min) / (C51_ATOMS - 1), c51_sum(weights * c51_indices()) / c51_sum(weights), v_min);
}

// v kept on [0, 20]; NaN stays NaN.
static __device__ inline eight c51_on_span(eight v) {
    return eight_min(eight_of((float)(C51_ATOMS - 1)), eight_max(eight_of(0.0f), v));
}

// mass where landed is outside [0, 20], 0 elsewhere.
static __device__ inline eight c51_outside(eight mass, eight landed) {
    const eight beyond = eight_abs(landed - c51_on_span(landed));
    return eight_where_above(beyond, eight_of(C51_EDGE_SLACK), mass, eight_of(0.0f));
}

// sum + what an atom i of eight gathers from a mass that lands at place: mass (1 - |place - i|), nothing from afar.
static __device__ inline eight c51_share(eight mass, eight place, eight i, eight sum) {
    return eight_fma(mass, 1.0f - eight_min(eight_of(1.0f), eight_abs(place - i)), sum);
}

// The distribution of reward + keep z on the atoms, z ~ next.
struct C51Target {
    C51Row mass;    // of each atom
    float total;    // its sum, 1 to rounding
    float mean;     // before clipping
    float clipped;  // mass that landed outside the span
};

// next [21] in memory. What lands between two atoms is split linearly, what lands outside goes to the end; the shares
// of a mass add up to it, to rounding. v_min = v_max: all atoms coincide, the first holds the mass. NaN shows.
static __device__ inline C51Target c51_target_of(const float* next, float reward, float keep, float v_min, float v_max) {
    const float inverse = v_max > v_min ? (C51_ATOMS - 1) / (v_max - v_min) : 0.0f;
    const float start = (fmaf(keep, v_min, reward) - v_min) * inverse;  // where atom 0 lands, in atoms
    const C51Row prob = c51_load(next), i = c51_indices();
    const C51Row landed = i * (v_max > v_min ? keep : 0.0f) + start;

    float place[C51_ATOMS];
    c51_store(place, C51Row{c51_on_span(landed.low), c51_on_span(landed.middle), c51_on_span(landed.high)});
    C51Target target;
    target.mass = C51Row{eight_of(0.0f), eight_of(0.0f), eight_of(0.0f)};
#pragma unroll
    for (int j = 0; j < C51_ATOMS; ++j) {
        const eight mass = eight_of(next[j]), at = eight_of(place[j]);
        target.mass.low = c51_share(mass, at, i.low, target.mass.low);
        target.mass.middle = c51_share(mass, at, i.middle, target.mass.middle);
        target.mass.high = c51_share(mass, at, i.high, target.mass.high);
    }
    target.total = c51_sum(target.mass);
    target.mean = fmaf(keep, c51_mean(prob, v_min, v_max), reward);
    target.clipped = c51_sum(C51Row{c51_outside(prob.low, landed.low), c51_outside(prob.middle, landed.middle),
                                    c51_outside(prob.high, landed.high)});
    return target;
}

// Cross-entropy -sum target_i log p_i of prob = softmax(x).
static __device__ inline float c51_cross_entropy(C51Row x, const C51Target& target, C51Row* prob) {
    return fmaf(c51_softmax(x, prob), target.total, -c51_sum(target.mass * x));
}

// Its gradient by x, times scale.
static __device__ inline C51Row c51_slope(C51Row prob, const C51Target& target, float scale) {
    return (prob * target.total + target.mass * -1.0f) * scale;
}
