// What a critic update tells of its targets: the slots Q_TARGET_* and Q_BIAS_EMA.
#pragma once
#include "generated/isv_slots.cuh"
#include "include/math.cuh"
#include "include/reduce.cuh"

#define Q_BIAS_RATE 0.05f  // EMA rate per update

// rl_q_target_statistics, from the extremes of an update's targets and the share of their mass that was clipped: update
// = 0 starts anew, later updates widen the extremes and average the share.
static __device__ inline void q_target_statistics_finish(float top, float low, float clipped, int update, float* isv) {
    if (update > 0) {
        top = max_keep_nan(top, isv[ISV_Q_TARGET_MAX]);
        low = min_keep_nan(low, isv[ISV_Q_TARGET_MIN]);
        clipped = ema(isv[ISV_Q_TARGET_CLIP_RATE], clipped, 1.0f / (update + 1));
    }
    isv[ISV_Q_TARGET_MAX] = top;
    isv[ISV_Q_TARGET_MIN] = low;
    isv[ISV_Q_TARGET_CLIP_RATE] = clipped;
}

// rl_q_bias, from the rows' mean gap; the first observation replaces 0.
static __device__ inline void q_bias_finish(float gap, float* isv) {
    isv[ISV_Q_BIAS_EMA] = isv[ISV_Q_BIAS_EMA] == 0.0f ? gap : ema(isv[ISV_Q_BIAS_EMA], gap, Q_BIAS_RATE);
}
