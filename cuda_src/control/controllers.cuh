// What the kernels in controllers.cu do, as functions that a fused kernel may call as well.
#pragma once
#include "control/controller.cuh"

// rl_controller_gamma.
static __device__ inline void controller_gamma_thread(float* isv, unsigned int* controller_age) {
    const float duration = isv[ISV_MEAN_TRADE_DURATION_EMA];
    if (!is_live(duration)) return;
    const float target = 1.0f - 1.0f / (duration > 2.0f ? duration : 2.0f);
    isv[ISV_GAMMA] = controller_blend(isv[ISV_GAMMA], target, 0.9f, 0.999f, controller_age + AGE_GAMMA);
}

// rl_controller_target_tau.
static __device__ inline void controller_target_tau_thread(float* isv, unsigned int* controller_age) {
    const float divergence = isv[ISV_Q_DIVERGENCE_EMA], tau = isv[ISV_TARGET_TAU];
    if (!is_live(divergence)) return;
    const float ratio = clampf(divergence / isv[ISV_DIV_TARGET], 1.0f / STEP_TOLERANCE, STEP_TOLERANCE);
    isv[ISV_TARGET_TAU] = controller_blend(tau, tau * ratio, 0.001f, 0.05f, controller_age + AGE_TARGET_TAU);
}

// rl_controller_ppo_clip.
static __device__ inline void controller_ppo_clip_thread(float* isv, unsigned int* controller_age) {
    const float kl = isv[ISV_KL_PI_EMA], eps = isv[ISV_PPO_CLIP_EPS];
    if (!is_live(kl)) return;
    const float target = stepped(eps, -step_side(kl, isv[ISV_KL_TARGET]), STEP_RATE);
    isv[ISV_PPO_CLIP_EPS] = controller_blend(eps, target, 0.05f, 0.3f, controller_age + AGE_PPO_CLIP);
}

// rl_controller_ppo_ratio_clamp.
static __device__ inline void controller_ppo_ratio_clamp_thread(float* isv, const float* isv_seed,
                                                                unsigned int* controller_age) {
    const float eps = isv[ISV_PPO_CLIP_EPS], now = isv[ISV_PPO_RATIO_CLAMP_MAX];
    if (!is_finite(eps) || (eps == isv_seed[ISV_PPO_CLIP_EPS] && controller_age[AGE_RATIO_CLAMP] == 0u)) return;
    const float target = (1.0f + eps) * isv[ISV_PPO_CLAMP_MARGIN];
    isv[ISV_PPO_RATIO_CLAMP_MAX] = controller_blend(now, target, 2.0f, 1000.0f, controller_age + AGE_RATIO_CLAMP);
}

// Upper edge of the entropy band: 1.5 x target, or half way to ln 11 where that is nearer: an entropy of 1.5 x target
// does not exist for targets above two thirds of ln 11, and the coefficient could only ever grow.
static __device__ inline float entropy_high(float target) {
    const float half_way = 0.5f * (target + ENTROPY_MAX), step = STEP_TOLERANCE * target;
    return half_way < step ? half_way : step;
}

// rl_controller_entropy_coef.
static __device__ inline void controller_entropy_coef_thread(float* isv, unsigned int* controller_age) {
    const float entropy = isv[ISV_ENTROPY_OBSERVED_EMA], now = isv[ISV_ENTROPY_COEF];
    if (!is_live(entropy)) return;
    const float wanted = isv[ISV_ENTROPY_TARGET_FRAC] * ENTROPY_MAX;
    const int side = band_side(entropy, wanted / STEP_TOLERANCE, entropy_high(wanted));
    const float target = stepped(now, -side, STEP_RATE);
    isv[ISV_ENTROPY_COEF] = controller_blend(now, target, 1e-4f, 0.1f, controller_age + AGE_ENTROPY_COEF);
}

#define ROLLOUT_UNIT 2048.0f   // slot value of one pass
#define ADV_RATIO_TARGET 5.0f  // advantage variance over |mean| that one pass is enough for
#define PASSES_MAX 4.0f

// rl_controller_rollout_steps.
static __device__ inline void controller_rollout_steps_thread(float* isv, unsigned int* controller_age) {
    const float ratio = isv[ISV_ADVANTAGE_VAR_RATIO_EMA], top = ROLLOUT_UNIT * PASSES_MAX;
    if (!is_live(ratio)) return;
    const float target = ROLLOUT_UNIT * clampf(ratio / ADV_RATIO_TARGET, 1.0f, PASSES_MAX);
    isv[ISV_ROLLOUT_STEPS] =
        controller_blend(isv[ISV_ROLLOUT_STEPS], target, ROLLOUT_UNIT, top, controller_age + AGE_ROLLOUT_STEPS);
}

#define KURTOSIS_GAUSS 3.0f
#define PER_ALPHA_MIN 0.4f
#define PER_ALPHA_LIFT 0.5f

// rl_controller_per_alpha.
static __device__ inline void controller_per_alpha_thread(float* isv, unsigned int* controller_age) {
    const float kurtosis = isv[ISV_TD_KURTOSIS_EMA];
    if (!is_live(kurtosis)) return;
    const float lift = clampf((kurtosis - KURTOSIS_GAUSS) / isv[ISV_KURT_LIFT_SCALE], 0.0f, 1.0f);
    isv[ISV_PER_ALPHA] =
        controller_blend(isv[ISV_PER_ALPHA], fmaf(PER_ALPHA_LIFT, lift, PER_ALPHA_MIN), PER_ALPHA_MIN,
                         PER_ALPHA_MIN + PER_ALPHA_LIFT, controller_age + AGE_PER_ALPHA);
}

// rl_controller_per_beta.
static __device__ inline void controller_per_beta_thread(float* isv, const float* isv_seed) {
    const float step = isv[ISV_TRAIN_STEP], end = isv[ISV_RUN_STEPS], start = isv_seed[ISV_PER_BETA];
    isv[ISV_PER_BETA] = step >= end ? 1.0f : fmaf(1.0f - start, step / end, start);
}

// rl_controller_n_step.
static __device__ inline void controller_n_step_thread(float* isv, const float* isv_seed) {
    const float step = isv[ISV_TRAIN_STEP], over = isv[ISV_N_STEP_ANNEAL_STEPS];
    const float start = isv[ISV_N_STEP_START], end = isv_seed[ISV_N_STEP];
    isv[ISV_N_STEP] = rintf(step >= over ? end : fmaf(end - start, step / over, start));
}

// rl_controller_reward_scale.
static __device__ inline void controller_reward_scale_thread(float* isv, unsigned int* controller_age) {
    const float pnl = isv[ISV_MEAN_ABS_PNL_EMA];
    if (!is_live(pnl)) return;
    const float target = 1.0f / (pnl > DIVISOR_FLOOR ? pnl : DIVISOR_FLOOR);
    isv[ISV_REWARD_SCALE] = controller_blend(isv[ISV_REWARD_SCALE], target, isv[ISV_REWARD_SCALE_MIN],
                                             isv[ISV_REWARD_SCALE_MAX], controller_age + AGE_REWARD_SCALE);
}

#define CLAMP_MIN 1.0f
#define CLAMP_WIN_MAX 20.0f
#define CLAMP_LOSS_MAX 60.0f
#define CLAMP_LOSS_MARGIN 1.1f  // of the largest losses over the largest wins

// rl_controller_reward_clamp.
static __device__ inline void controller_reward_clamp_thread(float* isv, unsigned int* controller_age) {
    const float win_now = isv[ISV_POS_SCALED_MAX], loss_now = isv[ISV_NEG_SCALED_MAX];
    const float win = isv[ISV_POS_SCALED_MAX_EMA], loss = isv[ISV_NEG_SCALED_MAX_EMA];
    const float old_win = isv[ISV_REWARD_CLAMP_WIN], old_loss = isv[ISV_REWARD_CLAMP_LOSS];
    if (!is_live(win)) return;
    if (win_now > 0.0f) {
        isv[ISV_REWARD_CLAMP_WIN] = controller_blend(old_win, isv[ISV_REWARD_CLAMP_MARGIN] * win, CLAMP_MIN,
                                                     CLAMP_WIN_MAX, controller_age + AGE_CLAMP_WIN);
    }
    if (!is_live(loss) || !(win_now > 0.0f || loss_now > 0.0f)) return;
    const float floored = win > DIVISOR_FLOOR ? win : DIVISOR_FLOOR;
    const float ratio = clampf(loss / floored * CLAMP_LOSS_MARGIN, 1.0f, isv[ISV_REWARD_CLAMP_RATIO]);
    isv[ISV_REWARD_CLAMP_LOSS] = controller_blend(old_loss, isv[ISV_REWARD_CLAMP_WIN] * ratio, CLAMP_MIN,
                                                  CLAMP_LOSS_MAX, controller_age + AGE_CLAMP_LOSS);
}

#define SPAN_WINDOW 100.0f       // iterations of targets between two decisions
#define SPAN_CLIP_LIMIT 0.001f   // share of target mass outside the span that is too much
#define SPAN_GROWTH 1.5f
#define SPAN_LIMIT 1e6f

// rl_controller_atom_span.
static __device__ inline void controller_atom_span_thread(float* isv, float* atom_span_window, float* atom_span_before,
                                                          int realised_reward) {
    const float v_max = isv[ISV_C51_V_MAX], v_min = isv[ISV_C51_V_MIN];
    atom_span_before[0] = v_min;
    atom_span_before[1] = v_max;
    if (realised_reward) {
        const float win = isv[ISV_REWARD_CLAMP_WIN], loss = isv[ISV_REWARD_CLAMP_LOSS];
        const float high = win > 1.0f ? win : 1.0f, low = loss > 1.0f ? -loss : -1.0f;
        isv[ISV_C51_V_MAX] = high > v_max ? high : v_max;
        isv[ISV_C51_V_MIN] = low < v_min ? low : v_min;
        return;
    }
    if (isv[ISV_Q_TARGET_MAX] == 0.0f && isv[ISV_Q_TARGET_MIN] == 0.0f) return;  // no target yet
    atom_span_window[0] += isv[ISV_Q_TARGET_CLIP_RATE];
    atom_span_window[1] += 1.0f;
    if (atom_span_window[1] < SPAN_WINDOW) return;
    const bool grow = atom_span_window[0] / SPAN_WINDOW > SPAN_CLIP_LIMIT && v_max * SPAN_GROWTH <= SPAN_LIMIT;
    atom_span_window[0] = 0.0f;
    atom_span_window[1] = 0.0f;
    if (!grow) return;
    isv[ISV_C51_V_MAX] = v_max * SPAN_GROWTH;
    isv[ISV_C51_V_MIN] = v_min * SPAN_GROWTH;
}

// rl_controller_distill_lambda.
static __device__ inline void controller_distill_lambda_thread(float* isv, unsigned int* controller_age) {
    const float kl = isv[ISV_Q_DISTILL_KL_EMA], now = isv[ISV_Q_DISTILL_LAMBDA];
    if (!is_live(kl)) return;
    const float target = stepped(now, step_side(kl, isv[ISV_Q_DISTILL_KL_TARGET]), STEP_RATE);
    isv[ISV_Q_DISTILL_LAMBDA] = controller_blend(now, target, 0.001f, 1.0f, controller_age + AGE_DISTILL_LAMBDA);
}

#define TEMPERATURE_GAIN 0.01f  // per nat and update

// rl_controller_distill_temperature.
static __device__ inline void controller_distill_temperature_thread(float* isv, unsigned int* controller_age) {
    const float entropy = isv[ISV_ACTION_ENTROPY_EMA], now = isv[ISV_Q_DISTILL_TEMPERATURE];
    if (!is_live(entropy)) return;
    const float target = now * expf(TEMPERATURE_GAIN * (isv[ISV_ENTROPY_TARGET_FRAC] * ENTROPY_MAX - entropy));
    isv[ISV_Q_DISTILL_TEMPERATURE] =
        controller_blend(now, target, 0.02f, 10.0f, controller_age + AGE_DISTILL_TEMPERATURE);
}

#define GATE_BAND 2.0f           // dones outside [target / 2, target x 2] move the gates
#define GATE_LAMBDA_SMALL 0.01f  // lambda below it is 0: a product alone would neither reach 0 nor come back
#define GATE_FLOOR_TINY 1e-6f    // a threshold's floor where its lower bound is 0

// rl_controller_gates.
static __device__ inline void controller_gates_thread(float* isv, const float* isv_seed) {
    const float dones = isv[ISV_DONES_EMA], wanted = isv[ISV_GATE_TARGET_DONES], rate = isv[ISV_GATE_ADJUST_RATE];
    const int side = -band_side(dones, wanted / GATE_BAND, wanted * GATE_BAND);  // +1: relax
    if (isv[ISV_TRAIN_STEP] < isv[ISV_GATE_WARMUP_STEPS] || side == 0) return;
    const float conf_min = isv[ISV_CONF_GATE_MIN], conf = isv[ISV_CONF_GATE_THRESHOLD];
    const float floor = conf_min > GATE_FLOOR_TINY ? conf_min : GATE_FLOOR_TINY;
    const float lambda = isv[ISV_CONF_GATE_LAMBDA], lambda_top = isv_seed[ISV_CONF_GATE_LAMBDA];
    if (side > 0 && conf <= floor) {
        const float next = lambda * rate;
        isv[ISV_CONF_GATE_LAMBDA] = next < GATE_LAMBDA_SMALL ? 0.0f : next;
    } else if (side < 0 && lambda < lambda_top) {
        const float next = lambda < GATE_LAMBDA_SMALL ? GATE_LAMBDA_SMALL : lambda / rate;
        isv[ISV_CONF_GATE_LAMBDA] = next < lambda_top ? next : lambda_top;
    } else {
        isv[ISV_CONF_GATE_THRESHOLD] = clampf(stepped(conf, side, rate), floor, isv[ISV_CONF_GATE_MAX]);
    }
    const float low = isv[ISV_FRD_GATE_MIN], high = isv[ISV_FRD_GATE_MAX];
    isv[ISV_FRD_GATE_THR_LONG] = clampf(stepped(isv[ISV_FRD_GATE_THR_LONG], side, rate), low, high);
    isv[ISV_FRD_GATE_THR_SHORT] = clampf(stepped(isv[ISV_FRD_GATE_THR_SHORT], side, rate), low, high);
}
