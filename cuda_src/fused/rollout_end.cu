// What an iteration does once between its last environment step and its learning: averages, reward, signals, controllers.
#include "control/controllers.cuh"
#include "control/learning.cuh"
#include "control/signals.cuh"
#include "control/unit_statistics.cuh"
#include "env/reward.cuh"
#include "include/last_block.cuh"

#define SIGNAL_BLOCKS 5  // blocks before the reward's

// Bits of `controllers`: which run, in the order of CONTROLLERS in pipeline/control.py, the reward scale being bit 0.
enum Controller {
    RUN_REWARD_CLAMP = 1 << 1,
    RUN_GATES = 1 << 2,
    RUN_GAMMA = 1 << 3,
    RUN_TARGET_TAU = 1 << 4,
    RUN_PPO_CLIP = 1 << 5,
    RUN_PPO_RATIO_CLAMP = 1 << 6,
    RUN_ENTROPY_COEF = 1 << 7,
    RUN_ROLLOUT_STEPS = 1 << 8,
    RUN_PER_ALPHA = 1 << 9,
    RUN_PER_BETA = 1 << 10,
    RUN_DISTILL_LAMBDA = 1 << 11,
    RUN_DISTILL_TEMPERATURE = 1 << 12,
    RUN_LOSS_BALANCE = 1 << 13,
    RUN_LEARNING_RATE = 1 << 14,
    RUN_ATOM_SPAN = 1 << 15,
};

// rl_rollout_end: trade averages, reward, its statistics, signals of the market side, controllers.
// launch: blocks 5 + (T*B + 127) // 128, block 128
// updates: isv, action_share_ema, controller_age, lr_halvings, loss_abs_ema, atom_span_window, blocks_done
// fuses: ema_update_on_done, rl_fused_reward_pipeline, rl_reward_statistics, action_entropy_per_step
// fuses: rl_event_counters, rl_market_statistics, rl_unit_statistics, rl_dones_ema, rl_step_counter_update
// fuses: rl_controller_reward_clamp, rl_controller_gates, rl_controller_gamma, rl_controller_target_tau
// fuses: rl_controller_ppo_clip, rl_controller_ppo_ratio_clamp, rl_controller_entropy_coef
// fuses: rl_controller_rollout_steps, rl_controller_per_alpha, rl_controller_per_beta, rl_controller_distill_lambda
// fuses: rl_controller_distill_temperature, rl_controller_loss_balance, rl_controller_learning_rate
// fuses: rl_controller_atom_span
// The first five blocks each do one signal (two small ones share a block), a moment of the reward is a thread of the
// others; the last block to finish does what needs them all: the reward's statistics, then the controllers one by one.
// Parameters are those of the kernels that it stands for. averages 0: ema_update_on_done has run before (it must where
// the reward scale follows it). controllers: bits, see above; the state of one that does not run is not touched.
extern "C" __global__ void rl_rollout_end(
    const unsigned char* closed, const float* closed_trade_pnl_usd, const int* closed_trade_steps,
    const int* closed_trade_lots, const signed char* action, const unsigned char* overridden,
    const unsigned char* override_reason, const int* position_before, const int* position_after,
    const int* market_target, const int* fill_lots, const int* unfilled_lots, const float* pnl_step_usd,
    const float* unrealised_usd, const int* held_steps, const float* equity_usd, const int* position_lots,
    const int* trade_open_step, const int* unit_lots, const float* unit_trail, const int* unit_age,
    const float* isv_seed, const unsigned int* adam_step, float* isv, float* action_share_ema,
    unsigned int* controller_age, unsigned int* lr_halvings, float* loss_abs_ema, float* atom_span_window,
    float* atom_span_before, float* reward_usd, float* reward_scaled, float* reward, unsigned int* blocks_done,
    float fee_usd, int realised_reward, int averages, int controllers, int plateau, int T, int B) {
    __shared__ bool last;
    const int block = blockIdx.x;
    if (block == 0) {
        if (averages) {
            ema_update_on_done_block(closed, closed_trade_pnl_usd, closed_trade_steps, closed_trade_lots, isv, T, B);
        }
    } else if (block == 1) {
        action_entropy_per_step_block(action, overridden, position_before, market_target, action_share_ema, isv, T, B);
    } else if (block == 2) {
        event_counters_block(override_reason, isv, T, B);
        dones_ema_block(closed, isv, T, B);
    } else if (block == 3) {
        market_statistics_block(position_after, fill_lots, unfilled_lots, closed, closed_trade_pnl_usd, pnl_step_usd,
                                equity_usd, position_lots, trade_open_step, isv, fee_usd, T, B);
    } else if (block == 4) {
        unit_statistics_block(unit_lots, unit_trail, unit_age, isv, B);
        if (threadIdx.x == 0) step_counter_update_thread(isv, T);
    } else {
        const long long at = (long long)(block - SIGNAL_BLOCKS) * blockDim.x + threadIdx.x;
        if (at < (long long)T * B) {
            fused_reward_pipeline_item(pnl_step_usd, closed, closed_trade_pnl_usd, closed_trade_steps, position_before,
                                       position_after, unrealised_usd, held_steps, isv, reward_usd, reward_scaled,
                                       reward, realised_reward, at);
        }
    }
    if (!is_last_block(blocks_done, &last)) return;
    reward_statistics_block(reward_scaled, reward, closed, isv, realised_reward, T, B);
    if (threadIdx.x != 0) return;
    if (controllers & RUN_REWARD_CLAMP) controller_reward_clamp_thread(isv, controller_age);
    if (controllers & RUN_GATES) controller_gates_thread(isv, isv_seed);
    if (controllers & RUN_GAMMA) controller_gamma_thread(isv, controller_age);
    if (controllers & RUN_TARGET_TAU) controller_target_tau_thread(isv, controller_age);
    if (controllers & RUN_PPO_CLIP) controller_ppo_clip_thread(isv, controller_age);
    if (controllers & RUN_PPO_RATIO_CLAMP) controller_ppo_ratio_clamp_thread(isv, isv_seed, controller_age);
    if (controllers & RUN_ENTROPY_COEF) controller_entropy_coef_thread(isv, controller_age);
    if (controllers & RUN_ROLLOUT_STEPS) controller_rollout_steps_thread(isv, controller_age);
    if (controllers & RUN_PER_ALPHA) controller_per_alpha_thread(isv, controller_age);
    if (controllers & RUN_PER_BETA) controller_per_beta_thread(isv, isv_seed);
    if (controllers & RUN_DISTILL_LAMBDA) controller_distill_lambda_thread(isv, controller_age);
    if (controllers & RUN_DISTILL_TEMPERATURE) controller_distill_temperature_thread(isv, controller_age);
    if (controllers & RUN_LOSS_BALANCE) controller_loss_balance_thread(isv, controller_age, loss_abs_ema);
    if (controllers & RUN_LEARNING_RATE) {
        controller_learning_rate_thread(isv, isv_seed, adam_step, lr_halvings, plateau);
    }
    if (controllers & RUN_ATOM_SPAN) {
        controller_atom_span_thread(isv, atom_span_window, atom_span_before, realised_reward);
    }
}
