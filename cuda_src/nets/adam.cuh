// One step of Adam on some parameters, and what decides it.
#pragma once
#include "generated/isv_slots.cuh"
#include "include/eight.cuh"
#include "include/math.cuh"

#define CHUNK 32              // parameters per code byte (nets/params.py)
#define N_BRANCHES 5
#define N_GROUPS 6
#define N_NONFINITE_PARTS 8   // counters of losses that were not finite, by stage (nets/target.py)
#define GROUP_Q 1
#define GROUP_PI 2
#define GROUP_V 3
#define GROUP_IQN 5
#define BRANCH_HEADS 4
#define HUGE_GRADIENT 1.0e18f // its square times a chunk is still a float32
#define FAULT_LIMIT 3u        // updates in a row that were not finite before updating stops for good

// Learning rate of a group under a branch's multiplier.
static __device__ inline float adam_rate(const float* isv, int group, int branch) {
    const float base = group == GROUP_IQN ? isv[ISV_IQN_LR] : isv[ISV_LR_BCE + group];
    return base * isv[ISV_BRANCH_LR_MULT_VSN + branch];
}

// Bias corrections of a group's n-th update: 1 / (1 - beta1^n) and 1 / sqrt(1 - beta2^n).
static __device__ inline void adam_corrections(const float* isv, float n, float* first, float* second) {
    *first = 1.0f / (1.0f - powf(isv[ISV_ADAM_BETA1], n));
    *second = 1.0f / sqrtf(1.0f - powf(isv[ISV_ADAM_BETA2], n));
}

// What a step needs beside gradient and moments; read from the slots once a thread.
struct AdamRule {
    float rate, beta1, beta2, eps, decay, first, second;
};

static __device__ inline AdamRule adam_rule(const float* isv, const float* update_control, int group, int branch) {
    return AdamRule{adam_rate(isv, group, branch), isv[ISV_ADAM_BETA1], isv[ISV_ADAM_BETA2], isv[ISV_ADAM_EPS],
                    isv[ISV_WEIGHT_DECAY], update_control[2 + 2 * group], update_control[3 + 2 * group]};
}

// One formula for one parameter and for eight at once.
static __device__ inline float each_of(float x, float) { return x; }
static __device__ inline eight each_of(float x, eight) { return eight_of(x); }
static __device__ inline float each_fma(float a, float b, float c) { return fmaf(a, b, c); }
static __device__ inline eight each_fma(eight a, eight b, eight c) { return eight_fma(a, b, c); }
static __device__ inline float each_sqrt(float a) { return sqrtf(a); }
static __device__ inline eight each_sqrt(eight a) { return eight_sqrt(a); }

//   w -= rate (m^ / (sqrt(v^) + eps) + decay w);  T: float or eight
template <class T>
static __device__ inline T adam_step(const AdamRule& rule, T w, T g, T* m, T* v) {
    *m = each_fma(each_of(rule.beta1, w), *m, (1.0f - rule.beta1) * g);
    *v = each_fma(each_of(rule.beta2, w), *v, (1.0f - rule.beta2) * g * g);
    const T step = *m * rule.first / each_fma(each_sqrt(*v), each_of(rule.second, w), each_of(rule.eps, w));
    return w - rule.rate * each_fma(each_of(rule.decay, w), w, step);
}
