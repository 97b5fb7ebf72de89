// Rows of the kernels in gates.cu.
// See env/actions.cuh for what a row function is.
#pragma once
#include "env/reasons.cuh"
#include "generated/isv_slots.cuh"
#include "generated/structure.cuh"
#include "include/rng.cuh"

static __device__ inline bool is_long_opening(int action) {
    return action == ACTION_LONG_SMALL || action == ACTION_LONG_LARGE;
}

static __device__ inline bool is_short_opening(int action) {
    return action == ACTION_SHORT_SMALL || action == ACTION_SHORT_LARGE;
}

// What the gates look at: a flat row that opens and does not ignore them.
static __device__ inline bool gate_judges(bool open, int position, int action) {
    return !open && position == 0 && (is_long_opening(action) || is_short_opening(action));
}

// rl_gate_open. evaluation: no draw.
static __device__ inline bool gate_open_row(const float* isv, int t, bool evaluation, unsigned int* rng) {
    if (evaluation) return false;
    const bool warm_up = isv[ISV_TRAIN_STEP] + (float)t < isv[ISV_GATE_WARMUP_STEPS];
    const bool bypass = uniform01(rng) < isv[ISV_GATE_BYPASS];
    return warm_up || bypass;
}

// rl_confidence_gate, where the gate judges. mean, sigma: of the action's value.
static __device__ inline void confidence_gate_row(float mean, float sigma, const float* isv, signed char* action,
                                                  unsigned char* override_reason) {
    const float bound = (mean - isv[ISV_CONF_GATE_LAMBDA] * sigma) / isv[ISV_CONF_GATE_SIGMA_NORM];
    if (bound >= isv[ISV_CONF_GATE_THRESHOLD]) return;
    *action = ACTION_HOLD;
    *override_reason |= REASON_CONFIDENCE;
}

#define MEDIUM_HORIZON 1
#define TAIL_SIGMA 0.5f  // favourable: a forward return beyond this

// rl_frd_gate, where the gate judges. prob [N_HORIZONS, N_BUCKETS] of the row.
static __device__ inline void frd_gate_row(const float* prob, const float* isv, signed char* action,
                                           unsigned char* override_reason) {
    const bool is_long = is_long_opening(*action);
    const float span = isv[ISV_FRD_SIGMA_SPAN], side = is_long ? 1.0f : -1.0f;
    const float* medium = prob + MEDIUM_HORIZON * N_BUCKETS;
    float mass = 0.0f;
    for (int k = 0; k < N_BUCKETS; ++k) {
        const float centre = span * (2.0f * (float)k / (float)(N_BUCKETS - 1) - 1.0f);
        if (side * centre > TAIL_SIGMA) mass += medium[k];
    }
    if (mass >= isv[is_long ? ISV_FRD_GATE_THR_LONG : ISV_FRD_GATE_THR_SHORT]) return;
    *action = ACTION_HOLD;
    *override_reason |= REASON_FRD;
}
