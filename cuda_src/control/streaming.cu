// Signals of the learning phase on the time axis: streaming moments, generic average, KL and log-ratio of the policy.
// One block walks over the rows; sums add up in a fixed order. An observation that is not finite shows in the slot of
// what it came from (ADV_ABS_MEAN, LOSS_Q, PPO_LOG_RATIO_ABS_MAX) and leaves the averages alone.
#include "control/streaming.cuh"

// rl_var_over_abs_mean_streaming: how noisy the advantages are, variance over |mean| of a streaming window.
// mean += a (m - mean), M2 += a (mean of s - M2), a = 0.05, first observations as they are (M2: the first that is not
// 0); ratio = M2 / max(|mean|, 1e-6), at most ADV_VAR_RATIO_CLAMP. No spread yet (one row, first iteration): the ratio
// stays the sentinel. advantage [rows], not normalised.
// Slots written: ADVANTAGE_VAR_RATIO_EMA, ADV_VAR_STREAM_MEAN, ADV_VAR_STREAM_M2. Read: ADV_VAR_RATIO_CLAMP.
// launch: blocks 1, block 128
// updates: isv
extern "C" __global__ void rl_var_over_abs_mean_streaming(const float* advantage, float* isv, int rows) {
    var_over_abs_mean_streaming_block(advantage, isv, rows);
}

// rl_kurtosis_streaming: how heavy the tails of the TD errors are, Pearson kurtosis of a streaming window.
// As above with M4 from s^2; kurtosis = M4 / max(M2^2, 1e-12), at most TD_KURTOSIS_CLAMP. td_error [rows].
// Slots written: TD_KURTOSIS_EMA, TD_KURT_STREAM_MEAN, TD_KURT_STREAM_M2, TD_KURT_STREAM_M4. Read: TD_KURTOSIS_CLAMP.
// launch: blocks 1, block 128
// updates: isv
extern "C" __global__ void rl_kurtosis_streaming(const float* td_error, float* isv, int rows) {
    kurtosis_streaming_block(td_error, isv, rows);
}

// ema_update_per_step: mean of a buffer into the EMA of a slot (a = 0.05, the first observation replaces 0).
// Every iteration is an observation. values [rows]; slot: number of the slot.
// launch: blocks 1, block 128
// updates: isv
extern "C" __global__ void ema_update_per_step(const float* values, float* isv, int slot, int rows) {
    ema_update_per_step_block(values, isv, slot, rows);
}

// rl_log_ratio_rows: log p_new - log p_old of each row's drawn action, with the weights as they are now.
// One thread a row. pi_all [rows, P*11] of the present policy head at the stored encodings, b_pi, w_pi_ctx, context,
// position_class as in rl_pi_action_kernel; log_prob [rows] of the draw; log_ratio [rows], nats. Slots read: P_MIN.
// launch: threads rows, block 64
extern "C" __global__ void rl_log_ratio_rows(const float* pi_all, const float* b_pi, const float* w_pi_ctx,
                                             const float* context, const int* position_class,
                                             const signed char* action_drawn, const float* log_prob, const float* isv,
                                             float* log_ratio, int rows, int P) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float logits[N_ACTIONS];
    policy_logits(pi_all, b_pi, w_pi_ctx, context, row, head_block(position_class[row], P), P, logits);
    log_ratio[row] = log_ratio_row(logits, action_drawn[row], log_prob[row], isv);
}

// rl_kl_approx_b: KL(old || new) of the policy over the iteration's update, by mean(log p_old - log p_new) (Schulman).
// Runs after the last Adam step: before it the ratio is exactly 0. A mean of exactly 0 means that no update was applied
// and is no observation. log_ratio [rows]. Slots written: KL_PI_EMA (a = 0.05).
// launch: blocks 1, block 128
// updates: isv
extern "C" __global__ void rl_kl_approx_b(const float* log_ratio, float* isv, int rows) {
    kl_approx_b_block(log_ratio, isv, rows);
}

// ppo_log_ratio_abs_max_b: largest |log p_new - log p_old| of the iteration, after the last Adam step; NaN shows.
// log_ratio [rows]. Slots written: PPO_LOG_RATIO_ABS_MAX.
// launch: blocks 1, block 128
extern "C" __global__ void ppo_log_ratio_abs_max_b(const float* log_ratio, float* isv, int rows) {
    ppo_log_ratio_abs_max_b_block(log_ratio, isv, rows);
}
