// The categorical value distribution (Bellemare 2017): atoms, softmax, projection, cross-entropy.
//
// A head's logits are [rows, P, 11, 21], class-major; "pair" is class * 11 + action. One thread owns a pair: its 21
// atoms live in registers (arrays padded to a multiple of the vector width), no barrier, nothing shared.
#pragma once
#include "generated/isv_slots.cuh"
#include "generated/structure.cuh"
#include "include/math.cuh"

#define C51_ATOMS 21
#define C51_PADDED 24          // atoms in a local array: 3 vectors of 8
#define C51_EDGE_SLACK 1e-4f   // atoms; mass this near beyond an end of the span is not called clipped

// Class of a position for a head of P blocks; one block (context in the encoder) serves every position.
static __device__ inline int head_class(int lots, int P) { return P == 1 ? 0 : lots + (P - 1) / 2; }

// The value of atom i on linspace(v_min, v_max); the ends are exact.
static __device__ inline float c51_atom(int i, float v_min, float v_max) {
    return i == C51_ATOMS - 1 ? v_max : fmaf((v_max - v_min) / (C51_ATOMS - 1), (float)i, v_min);
}

// prob = softmax(logits + bias); returns the log of its normaliser, so that log p_i = logits_i + bias_i - result.
static __device__ inline float c51_softmax(const float* logits, const float* bias, float* prob) {
    float top = logits[0] + bias[0];
    for (int i = 0; i < C51_ATOMS; ++i) {
        prob[i] = logits[i] + bias[i];
        top = prob[i] > top ? prob[i] : top;
    }
    float sum = 0.0f;
    for (int i = 0; i < C51_ATOMS; ++i) {
        prob[i] = expf(prob[i] - top);
        sum += prob[i];
    }
    const float inverse = 1.0f / sum;
    for (int i = 0; i < C51_ATOMS; ++i) prob[i] *= inverse;
    return top + logf(sum);
}

// Expectation of the atoms under prob.
static __device__ inline float c51_mean(const float* prob, float v_min, float v_max) {
    const float width = (v_max - v_min) / (C51_ATOMS - 1);
    float index = 0.0f, mass = 0.0f;
    for (int i = 0; i < C51_ATOMS; ++i) {
        index = fmaf((float)i, prob[i], index);
        mass += prob[i];
    }
    return fmaf(width, index, v_min * mass);
}

// target[C51_PADDED] = the distribution of reward + keep z, z ~ next_prob, on the atoms: what lands between two atoms
// is split linearly, what lands outside goes to the end. Every atom of the source meets every atom of the target with
// weight max(0, 1 - distance); the two weights of a landing place sum to 1, on an atom, between two or at an end, so
// mass is conserved. v_min = v_max: all atoms coincide, the first holds the mass. NaN spreads to every atom.
// Returns the mass that landed outside the span.
static __device__ inline float c51_project(const float* next_prob, float reward, float keep, float v_min, float v_max,
                                           float* target) {
    const float width = (v_max - v_min) / (C51_ATOMS - 1);
    const float inverse = v_max > v_min ? 1.0f / width : 0.0f;
    const float base = (fmaf(keep, v_min, reward) - v_min) * inverse;  // where atom 0 lands, in atoms
    const float last = (float)(C51_ATOMS - 1);
    float clipped = 0.0f;
    for (int i = 0; i < C51_PADDED; ++i) target[i] = 0.0f;
    for (int j = 0; j < C51_ATOMS; ++j) {
        const float landed = v_max > v_min ? fmaf(keep, (float)j, base) : base;
        const float inside = clampf(landed, 0.0f, last), p = next_prob[j];
        clipped += landed < -C51_EDGE_SLACK || landed > last + C51_EDGE_SLACK ? p : 0.0f;
        for (int i = 0; i < C51_PADDED; ++i) {
            const float weight = 1.0f - fabsf(inside - (float)i);
            target[i] = fmaf(weight < 0.0f ? 0.0f : weight, p, target[i]);
        }
    }
    return clipped;
}

// -sum target_i log p_i of p = softmax(logits + bias), prob = p; *mass = sum of target.
static __device__ inline float c51_cross_entropy(const float* logits, const float* bias, const float* target,
                                                 float* prob, float* mass) {
    const float log_sum = c51_softmax(logits, bias, prob);
    float dot = 0.0f, total = 0.0f;
    for (int i = 0; i < C51_ATOMS; ++i) {
        dot = fmaf(target[i], logits[i] + bias[i], dot);
        total += target[i];
    }
    *mass = total;
    return fmaf(log_sum, total, -dot);
}
