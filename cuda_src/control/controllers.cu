// The adaptive controllers: each reads measured signals from the ISV and writes the slots it owns, once an iteration.
//
// Every kernel here but rl_atom_span_reproject is one thread (launch 1 x 1) on a handful of slots; controller.cuh has
// the rules they share. Inputs from the learning phase are those of the iteration before: one iteration of lag by
// design. isv_seed [640] is the ISV as it was when the run started; controller_age [32] counts live updates.
#include "control/controllers.cuh"

// rl_controller_gamma: the discount looks as far as a trade lasts.
// target = 1 - 1 / max(2, mean trade duration). Reads MEAN_TRADE_DURATION_EMA. Writes GAMMA, 0.9 .. 0.999.
// launch: threads 1, block 1
// updates: isv, controller_age
extern "C" __global__ void rl_controller_gamma(float* isv, unsigned int* controller_age) {
    controller_gamma_thread(isv, controller_age);
}

// rl_controller_target_tau: the target network follows faster when it has fallen behind.
// target = tau x clamp(divergence / DIV_TARGET, 1/1.5, 1.5). Reads Q_DIVERGENCE_EMA, DIV_TARGET. Writes TARGET_TAU,
// 0.001 .. 0.05.
// launch: threads 1, block 1
// updates: isv, controller_age
extern "C" __global__ void rl_controller_target_tau(float* isv, unsigned int* controller_age) {
    controller_target_tau_thread(isv, controller_age);
}

// rl_controller_ppo_clip: policy moved too far -> narrower clip, too little -> wider (bounded step on KL_TARGET).
// Reads KL_PI_EMA (its estimate may be negative: too little), KL_TARGET. Writes PPO_CLIP_EPS, 0.05 .. 0.3.
// launch: threads 1, block 1
// updates: isv, controller_age
extern "C" __global__ void rl_controller_ppo_clip(float* isv, unsigned int* controller_age) {
    controller_ppo_clip_thread(isv, controller_age);
}

// rl_controller_ppo_ratio_clamp: the bound of the probability ratio is a margin around the clip.
// target = (1 + eps) x PPO_CLAMP_MARGIN. Reads PPO_CLIP_EPS: live once it has left its seed. Writes
// PPO_RATIO_CLAMP_MAX, 2 .. 1000. Runs after rl_controller_ppo_clip.
// launch: threads 1, block 1
// updates: isv, controller_age
extern "C" __global__ void rl_controller_ppo_ratio_clamp(float* isv, const float* isv_seed,
                                                         unsigned int* controller_age) {
    controller_ppo_ratio_clamp_thread(isv, isv_seed, controller_age);
}

// rl_controller_entropy_coef: policy too sure -> larger entropy bonus, too random -> smaller.
// Entropy below target / 1.5 -> x 1.2, above entropy_high(target) -> / 1.2; target = ENTROPY_TARGET_FRAC ln 11.
// Reads ENTROPY_OBSERVED_EMA, ENTROPY_TARGET_FRAC. Writes ENTROPY_COEF, 1e-4 .. 0.1.
// launch: threads 1, block 1
// updates: isv, controller_age
extern "C" __global__ void rl_controller_entropy_coef(float* isv, unsigned int* controller_age) {
    controller_entropy_coef_thread(isv, controller_age);
}

// rl_controller_rollout_steps: noisy advantages get more passes over the on-policy batch.
// target = 2048 x clamp(ratio / 5, 1, 4). Reads ADVANTAGE_VAR_RATIO_EMA. Writes ROLLOUT_STEPS, 2048 .. 8192.
// launch: threads 1, block 1
// updates: isv, controller_age
extern "C" __global__ void rl_controller_rollout_steps(float* isv, unsigned int* controller_age) {
    controller_rollout_steps_thread(isv, controller_age);
}

// rl_controller_per_alpha: heavy-tailed TD errors are prioritised more sharply.
// target = 0.4 + 0.5 clamp((kurtosis - 3) / KURT_LIFT_SCALE, 0, 1). Reads TD_KURTOSIS_EMA, KURT_LIFT_SCALE. Writes
// PER_ALPHA, 0.4 .. 0.9.
// launch: threads 1, block 1
// updates: isv, controller_age
extern "C" __global__ void rl_controller_per_alpha(float* isv, unsigned int* controller_age) {
    controller_per_alpha_thread(isv, controller_age);
}

// rl_controller_per_beta: the importance exponent of replay, linear from its seed to exactly 1 at RUN_STEPS.
// No blend: a schedule. Reads TRAIN_STEP (already this iteration's), RUN_STEPS, isv_seed. Writes PER_BETA.
// launch: threads 1, block 1
// updates: isv
extern "C" __global__ void rl_controller_per_beta(float* isv, const float* isv_seed) {
    controller_per_beta_thread(isv, isv_seed);
}

// rl_controller_n_step: the n of replay windows, a schedule over the environment steps of a run.
// Linear from N_STEP_START to its seed over N_STEP_ANNEAL_STEPS, in whole steps; then its seed. No blend. Runs where an
// iteration begins: all of it has one n, and TRAIN_STEP is that of the iterations before. Windows that wait while n
// falls are pushed with the n they have reached. Reads TRAIN_STEP, N_STEP_START, N_STEP_ANNEAL_STEPS, isv_seed. Writes
// N_STEP.
// launch: threads 1, block 1
// updates: isv
extern "C" __global__ void rl_controller_n_step(float* isv, const float* isv_seed) {
    controller_n_step_thread(isv, isv_seed);
}

// rl_controller_reward_scale: the mean closed trade becomes a reward of 1.
// target = 1 / mean |trade PnL|. Reads MEAN_ABS_PNL_EMA. Writes REWARD_SCALE, REWARD_SCALE_MIN .. REWARD_SCALE_MAX.
// Runs between the trade averages and the reward.
// launch: threads 1, block 1
// updates: isv, controller_age
extern "C" __global__ void rl_controller_reward_scale(float* isv, unsigned int* controller_age) {
    controller_reward_scale_thread(isv, controller_age);
}

// rl_controller_reward_clamp: the clamp leaves room for the wins and losses that happen.
// WIN -> clamp(MARGIN x pos EMA, 1, 20); LOSS -> WIN x clamp(1.1 neg EMA / pos EMA, 1, RATIO), at most 60. Sparse: an
// iteration without a win does not move WIN; LOSS needs a reward of either sign now and both EMAs live.
// Reads POS_SCALED_MAX(_EMA), NEG_SCALED_MAX(_EMA), REWARD_CLAMP_MARGIN, REWARD_CLAMP_RATIO.
// Writes REWARD_CLAMP_WIN, REWARD_CLAMP_LOSS.
// launch: threads 1, block 1
// updates: isv, controller_age
extern "C" __global__ void rl_controller_reward_clamp(float* isv, unsigned int* controller_age) {
    controller_reward_clamp_thread(isv, controller_age);
}

// rl_controller_atom_span: the value range the atoms cover only ever grows.
// realised_reward 1: V_MAX = max(V_MAX, WIN, 1), V_MIN = min(V_MIN, -LOSS, -1). realised_reward 0: the symmetric span
// set at the start grows x 1.5 when the mean clip rate of 100 iterations with targets is above 0.1 %.
// Reads REWARD_CLAMP_WIN, REWARD_CLAMP_LOSS, Q_TARGET_MAX, Q_TARGET_MIN, Q_TARGET_CLIP_RATE. Writes C51_V_MAX,
// C51_V_MIN; atom_span_before [2] = V_MIN, V_MAX as they were; atom_span_window [2] = sum of clip rates, iterations.
// launch: threads 1, block 1
// updates: isv, atom_span_window
extern "C" __global__ void rl_controller_atom_span(float* isv, float* atom_span_window, float* atom_span_before,
                                                   int realised_reward) {
    controller_atom_span_thread(isv, atom_span_window, atom_span_before, realised_reward);
}

// rl_controller_distill_lambda: policy far from what the critic knows -> pull harder, near -> relax (bounded step).
// Reads Q_DISTILL_KL_EMA, Q_DISTILL_KL_TARGET. Writes Q_DISTILL_LAMBDA, 0.001 .. 1.
// launch: threads 1, block 1
// updates: isv, controller_age
extern "C" __global__ void rl_controller_distill_lambda(float* isv, unsigned int* controller_age) {
    controller_distill_lambda_thread(isv, controller_age);
}

// rl_controller_distill_temperature: executed actions too uniform in kind -> softer distillation target, and back.
// target = tau x exp(0.01 (H_target - H_executed)), H_target = ENTROPY_TARGET_FRAC ln 11. The executed entropy is read,
// not the policy's: a gate that forces Hold hides the policy's own entropy from the market.
// Reads ACTION_ENTROPY_EMA, ENTROPY_TARGET_FRAC. Writes Q_DISTILL_TEMPERATURE, 0.02 .. 10.
// launch: threads 1, block 1
// updates: isv, controller_age
extern "C" __global__ void rl_controller_distill_temperature(float* isv, unsigned int* controller_age) {
    controller_distill_temperature_thread(isv, controller_age);
}

// rl_controller_gates: too few trades open the entry gates, too many close them.
// After GATE_WARMUP_STEPS: share of rows closing a trade < GATE_TARGET_DONES / 2 -> thresholds x GATE_ADJUST_RATE,
// > 2 x target -> / rate, within CONF_GATE_MIN .. MAX and FRD_GATE_MIN .. MAX. With the confidence threshold on its
// floor and still too few trades, CONF_GATE_LAMBDA goes x rate towards 0; on the way back it returns to its seed
// before the threshold moves. A share of 0 is an observation here (no trade at all), not the sentinel.
// Reads DONES_EMA, TRAIN_STEP. Writes CONF_GATE_THRESHOLD, CONF_GATE_LAMBDA, FRD_GATE_THR_LONG, FRD_GATE_THR_SHORT.
// launch: threads 1, block 1
// updates: isv
extern "C" __global__ void rl_controller_gates(float* isv, const float* isv_seed) {
    controller_gates_thread(isv, isv_seed);
}
