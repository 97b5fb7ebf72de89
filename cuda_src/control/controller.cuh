// What the controllers share: when an input is live, how a slot moves to its target, the bounded step.
//
// A controller holds its bootstrap (the slot's seed) while its input is the sentinel 0. Its first live target replaces
// the slot, then the slot blends: c += max(0.4, 1/n) (target - c), n = live updates of the controller. The floor is
// there because the inputs are not stationary: a rate of 1/n would end up deaf. Target and result are kept in bounds.
// n lives in controller_age [N_CONTROLLER_AGES], one element a controlled slot, so that a run resumes bit for bit.
// An input that is not finite moves nothing: it shows in its own slot, and the controlled slot keeps its last value.
// Schedules and ratchets (learning rate, importance exponent, atom span) and the gates, whose rate is a slot of its
// own, do not blend.
#pragma once
#include "generated/isv_slots.cuh"
#include "generated/structure.cuh"
#include "include/math.cuh"

#define BLEND_RATE_FLOOR 0.4f   // least share of the way to the target in one update
#define STEP_TOLERANCE 1.5f     // bounded step: holds inside [target / 1.5, target x 1.5] (Schulman 2017)
#define STEP_RATE 1.2f          // bounded step: factor of one step
#define DIVISOR_FLOOR 1e-6f     // under every measured divisor
#define ENTROPY_MAX 2.397895273f  // ln N_ACTIONS, nats

// Elements of controller_age (foxhunt_cli/buffers/control.py sizes it).
#define AGE_GAMMA 0
#define AGE_TARGET_TAU 1
#define AGE_PPO_CLIP 2
#define AGE_ENTROPY_COEF 3
#define AGE_ROLLOUT_STEPS 4
#define AGE_PER_ALPHA 5
#define AGE_REWARD_SCALE 6
#define AGE_CLAMP_WIN 7
#define AGE_CLAMP_LOSS 8
#define AGE_RATIO_CLAMP 9
#define AGE_DISTILL_LAMBDA 10
#define AGE_DISTILL_TEMPERATURE 11
#define AGE_LOSS_LAMBDA 12      // five: BCE, Q, PI, V, AUX

// A measured input that has been seen. The sentinel 0 and non-finite values are not.
static __device__ inline bool is_live(float input) { return is_finite(input) && input != 0.0f; }

// The controlled slot after one live update towards target; counts the update.
static __device__ inline float controller_blend(float current, float target, float low, float high,
                                                unsigned int* age) {
    const unsigned int n = ++*age;
    const float aim = clampf(target, low, high);
    if (n == 1u) return aim;
    const float rate = 1.0f / (float)n;
    return clampf(ema(current, aim, rate > BLEND_RATE_FLOOR ? rate : BLEND_RATE_FLOOR), low, high);
}

// +1 above the band [low, high], -1 below it, 0 inside.
static __device__ inline int band_side(float observed, float low, float high) {
    return observed > high ? 1 : (observed < low ? -1 : 0);
}

// Which side of the Schulman band around a target the observation is on.
static __device__ inline int step_side(float observed, float target) {
    return band_side(observed, target / STEP_TOLERANCE, target * STEP_TOLERANCE);
}

// value x rate for side > 0, value / rate for side < 0.
static __device__ inline float stepped(float value, int side, float rate) {
    return side > 0 ? value * rate : (side < 0 ? value / rate : value);
}
