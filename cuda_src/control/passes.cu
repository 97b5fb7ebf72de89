// How often an iteration's rows are learned from.
#include "generated/isv_slots.cuh"
#include "include/math.cuh"

#define STEPS_A_PASS 2048.0f  // of slot ROLLOUT_STEPS

// rl_open_passes: which further passes over the on-policy rows this iteration has: slot / 2048, rounded, 1 to 4.
// launch: threads 1, block 1
// pass_2, pass_3, pass_4 [1] = 1 where there is a pass of that number, else 0; a slot that is not finite gives one pass.
// Slot read: ROLLOUT_STEPS.
extern "C" __global__ void rl_open_passes(const float* isv, int* pass_2, int* pass_3, int* pass_4) {
    const float passes = floorf(isv[ISV_ROLLOUT_STEPS] / STEPS_A_PASS + 0.5f);
    const bool known = is_finite(passes);
    pass_2[0] = known && passes >= 2.0f ? 1 : 0;
    pass_3[0] = known && passes >= 3.0f ? 1 : 0;
    pass_4[0] = known && passes >= 4.0f ? 1 : 0;
}
