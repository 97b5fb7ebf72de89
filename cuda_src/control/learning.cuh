// What the kernels in learning.cu do, as functions that a fused kernel may call as well.
#pragma once
#include "control/controller.cuh"

#define N_GROUPS 5            // BCE, Q, PI, V, AUX, in slot order; element of adam_step
#define ADAM_GROUPS 6         // elements of a row of adam_step: IQN's is the last
#define N_PLATEAU_HEADS 3     // Q, PI, V: groups 1 to 3
#define PLATEAU_STATE 4       // slots a head: LOSS_EMA, LOSS_BEST, PLATEAU_COUNT, LR_STEP
#define LOSS_EMA_RATE 0.05f   // per iteration with an update
#define LOSS_NOISE 1e-6f      // a loss this near 0 is rounding: the surrogate of a single pass is 0 by construction
#define BEST_FLOOR 1e-3f      // under |best| in the improvement it takes: a loss may be near 0
#define LR_MIN 1e-5f
#define LR_MAX 1e-3f          // or the seed, where a user asks for more
#define HALVINGS_MAX 16u      // far below LR_MIN; keeps the factor a normal number

// A loss that says something: finite, and more than rounding.
static __device__ inline bool is_loss(float loss) { return is_finite(loss) && fabsf(loss) > LOSS_NOISE; }

// Share of the rate after `updates` updates: linear, 1 from warmup - 1 on (the rate is that of the next update).
static __device__ inline float warm_up(unsigned int updates, float warmup) {
    const float next = (float)updates + 1.0f;
    return next < warmup ? next / warmup : 1.0f;
}

// Share of the rate by the clock: linear from 1 at the start to LR_FINAL_SHARE at RUN_STEPS, constant behind it.
static __device__ inline float run_share(const float* isv) {
    const float step = isv[ISV_TRAIN_STEP], end = isv[ISV_RUN_STEPS];
    return fmaf(isv[ISV_LR_FINAL_SHARE] - 1.0f, step < end ? step / end : 1.0f, 1.0f);
}

// Loss average, best and plateau count of one head; counts a halving after PLATEAU_PATIENCE updates that did not
// bring the average below best - (1 - IMPROVEMENT_THRESHOLD) max(|best|, 1e-3). Nothing moves without an update, nor
// without a loss; an average and a best of 0 mean that there was none so far.
static __device__ inline void plateau_step(const float* isv, float loss, unsigned int updates, float* state,
                                           unsigned int* halvings) {
    const float fresh = (float)updates - state[3];
    if (!(fresh > 0.0f)) return;
    state[3] = (float)updates;
    if (!is_loss(loss)) return;
    const bool first = state[0] == 0.0f && state[1] == 0.0f;
    state[0] = first ? loss : ema(state[0], loss, LOSS_EMA_RATE);
    const float size = fabsf(state[1]) > BEST_FLOOR ? fabsf(state[1]) : BEST_FLOOR;
    if (first || state[0] < state[1] - (1.0f - isv[ISV_IMPROVEMENT_THRESHOLD]) * size) {
        state[1] = state[0];
        state[2] = 0.0f;
        return;
    }
    if ((float)updates <= isv[ISV_LR_WARMUP_STEPS]) return;  // a rising rate is no plateau
    state[2] += fresh;
    if (state[2] < isv[ISV_PLATEAU_PATIENCE]) return;
    state[2] = 0.0f;
    if (*halvings < HALVINGS_MAX) ++*halvings;
}

// min(1, 1 / norm): a head whose gradients are large gets a smaller rate. The sentinel 0 asks for nothing.
static __device__ inline float trust(float norm_ema) {
    return is_live(norm_ema) && norm_ema > 1.0f ? 1.0f / norm_ema : 1.0f;
}

// rl_controller_learning_rate.
static __device__ inline void controller_learning_rate_thread(float* isv, const float* isv_seed,
                                                              const unsigned int* adam_step, unsigned int* lr_halvings,
                                                              int plateau) {
    const float loss[N_PLATEAU_HEADS] = {isv[ISV_LOSS_Q], isv[ISV_LOSS_PI], isv[ISV_LOSS_V]}, share = run_share(isv);
    const float norm[] = {isv[ISV_Q_GRAD_NORM_EMA], isv[ISV_PI_GRAD_NORM_EMA], isv[ISV_V_GRAD_NORM_EMA]};
    isv[ISV_IQN_LR] = isv_seed[ISV_IQN_LR] * share;
    for (int g = 0; g < N_GROUPS; ++g) {
        const float seed = isv_seed[ISV_LR_BCE + g];
        const unsigned int updates = adam_step[g] + adam_step[ADAM_GROUPS + g];  // one of the two optimisers has it
        float rate = seed * share * warm_up(updates, isv[ISV_LR_WARMUP_STEPS]);
        const int head = g - 1;
        if (head >= 0 && head < N_PLATEAU_HEADS) {
            float* state = isv + ISV_Q_LOSS_EMA + head * PLATEAU_STATE;
            plateau_step(isv, loss[head], updates, state, lr_halvings + head);
            if (plateau) rate /= (float)(1u << lr_halvings[head]);
            rate *= trust(norm[head]);
        }
        isv[ISV_LR_BCE + g] = clampf(rate, LR_MIN, seed > LR_MAX ? seed : LR_MAX);
    }
}

#define LOSS_FLOOR 0.05f       // under the average |loss|
#define LOSS_LAMBDA_MIN 0.1f
#define LOSS_LAMBDA_MAX 10.0f

// Sparse average of |loss|: one that has not been measured, or is rounding, or is not finite is no observation.
static __device__ inline float magnitude_ema(float state, float loss) {
    if (!is_loss(loss)) return state;
    return state == 0.0f ? fabsf(loss) : ema(state, fabsf(loss), LOSS_EMA_RATE);
}

// rl_controller_loss_balance.
static __device__ inline void controller_loss_balance_thread(float* isv, unsigned int* controller_age,
                                                             float* loss_abs_ema) {
    isv[ISV_LOSS_BCE_EMA] = magnitude_ema(isv[ISV_LOSS_BCE_EMA], isv[ISV_LOSS_BCE]);
    isv[ISV_LOSS_AUX_EMA] = magnitude_ema(isv[ISV_LOSS_AUX_EMA], isv[ISV_LOSS_FRD] + isv[ISV_LOSS_OUTCOME]);
    loss_abs_ema[0] = magnitude_ema(loss_abs_ema[0], isv[ISV_LOSS_Q] + isv[ISV_LOSS_IQN]);
    loss_abs_ema[1] = magnitude_ema(loss_abs_ema[1], isv[ISV_LOSS_PI]);
    loss_abs_ema[2] = magnitude_ema(loss_abs_ema[2], isv[ISV_LOSS_V]);
    const float size[N_GROUPS] = {isv[ISV_LOSS_BCE_EMA], loss_abs_ema[0], loss_abs_ema[1], loss_abs_ema[2],
                                  isv[ISV_LOSS_AUX_EMA]};
    float sum = 0.0f, live = 0.0f;
    for (int g = 0; g < N_GROUPS; ++g) {
        if (size[g] == 0.0f) continue;
        sum += 1.0f / (size[g] > LOSS_FLOOR ? size[g] : LOSS_FLOOR);
        live += 1.0f;
    }
    for (int g = 0; g < N_GROUPS; ++g) {
        if (size[g] == 0.0f) continue;
        const float target = live / (sum * (size[g] > LOSS_FLOOR ? size[g] : LOSS_FLOOR));
        isv[ISV_LOSS_LAMBDA_BCE + g] = controller_blend(isv[ISV_LOSS_LAMBDA_BCE + g], target, LOSS_LAMBDA_MIN,
                                                        LOSS_LAMBDA_MAX, controller_age + AGE_LOSS_LAMBDA + g);
    }
}
