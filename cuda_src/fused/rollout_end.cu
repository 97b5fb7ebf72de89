// What an iteration does once between its last environment step and its learning: averages, reward, signals, controllers.
#include "control/controllers.cuh"
#include "control/learning.cuh"
#include "control/signals.cuh"
#include "control/unit_statistics.cuh"
#include "env/reward.cuh"
#include "include/last_block.cuh"

#define ROLLOUT_RUN (SIGNAL_PART / COLUMN_THREADS)  // moments of a thread

// Columns of the sums over all moments, by whose they are; then the maxima.
enum RolloutColumn {
    OF_DONE = 0,
    OF_ENTROPY = OF_DONE + DONE_SUMS,
    OF_EVENTS = OF_ENTROPY + ENTROPY_SUMS,
    OF_MARKET = OF_EVENTS + EVENT_SUMS,
    OF_UNITS = OF_MARKET + MARKET_SUMS,
    OF_REWARD = OF_UNITS + UNIT_SUMS,
    OF_LARGEST = OF_REWARD + REWARD_SUMS,
    OF_WORST = OF_LARGEST + REWARD_MAXES,
    ROLLOUT_COLUMNS,
};

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
};

// The controllers that run, by a thread a warp: what one writes none of another warp touches
// (tests/unit/control/test_controllers_apart.py).
static __device__ inline void run_controllers(int running, int plateau, float* isv, const float* isv_seed,
                                              const unsigned int* adam_step, unsigned int* controller_age,
                                              unsigned int* lr_halvings, float* loss_abs_ema) {
    if (threadIdx.x == 0) {
        if (running & RUN_REWARD_CLAMP) controller_reward_clamp_thread(isv, controller_age);
        if (running & RUN_GATES) controller_gates_thread(isv, isv_seed);
        if (running & RUN_GAMMA) controller_gamma_thread(isv, controller_age);
        if (running & RUN_TARGET_TAU) controller_target_tau_thread(isv, controller_age);
    } else if (threadIdx.x == 32) {
        if (running & RUN_PPO_CLIP) controller_ppo_clip_thread(isv, controller_age);
        if (running & RUN_PPO_RATIO_CLAMP) controller_ppo_ratio_clamp_thread(isv, isv_seed, controller_age);
        if (running & RUN_ENTROPY_COEF) controller_entropy_coef_thread(isv, controller_age);
        if (running & RUN_ROLLOUT_STEPS) controller_rollout_steps_thread(isv, controller_age);
    } else if (threadIdx.x == 64) {
        if (running & RUN_PER_ALPHA) controller_per_alpha_thread(isv, controller_age);
        if (running & RUN_PER_BETA) controller_per_beta_thread(isv, isv_seed);
        if (running & RUN_DISTILL_LAMBDA) controller_distill_lambda_thread(isv, controller_age);
        if (running & RUN_DISTILL_TEMPERATURE) controller_distill_temperature_thread(isv, controller_age);
        if (running & RUN_LOSS_BALANCE) controller_loss_balance_thread(isv, controller_age, loss_abs_ema);
    } else if (threadIdx.x == 96) {
        if (running & RUN_LEARNING_RATE) {
            controller_learning_rate_thread(isv, isv_seed, adam_step, lr_halvings, plateau);
        }
    }
}

// The signals from the totals of all blocks, a warp a group of them.
static __device__ inline void finish_signals(const float* totals, float* isv, float* action_share_ema, float fee_usd,
                                             int averages, int T, int B) {
    if (threadIdx.x == 0) {
        if (averages) ema_update_on_done_finish(totals + OF_DONE, isv);
        dones_ema_finish(totals[OF_DONE], isv, T, B);
        step_counter_update_thread(isv, T);
        reward_statistics_finish(totals + OF_REWARD, totals + OF_LARGEST, isv);
    }
    if (threadIdx.x == 32) action_entropy_per_step_finish(totals + OF_ENTROPY, action_share_ema, isv, T, B);
    if (threadIdx.x == 64) {
        event_counters_finish(totals + OF_EVENTS, isv);
        market_statistics_finish(totals + OF_MARKET, totals[OF_WORST], isv, fee_usd, T, B);
    }
    if (threadIdx.x == 96) unit_statistics_finish(totals + OF_UNITS, isv, B);
}

// rl_rollout_end: trade averages, reward, its statistics, signals of the market side, controllers.
// launch: blocks (T*B + 511) // 512, block 128
// chain: 12 us
// updates: isv, action_share_ema, controller_age, lr_halvings, loss_abs_ema, parts_reward, blocks_done
// fuses: ema_update_on_done, rl_fused_reward_pipeline, rl_reward_statistics, action_entropy_per_step
// fuses: rl_event_counters, rl_market_statistics, rl_unit_statistics, rl_dones_ema, rl_step_counter_update
// fuses: rl_controller_reward_clamp, rl_controller_gates, rl_controller_gamma, rl_controller_target_tau
// fuses: rl_controller_ppo_clip, rl_controller_ppo_ratio_clamp, rl_controller_entropy_coef
// fuses: rl_controller_rollout_steps, rl_controller_per_alpha, rl_controller_per_beta, rl_controller_distill_lambda
// fuses: rl_controller_distill_temperature, rl_controller_loss_balance, rl_controller_learning_rate
// A block has SIGNAL_PART moments: their rewards, and what they add to every signal (the first B also what their rows are
// at the end); the last block to finish adds the blocks up, a warp a signal makes of the totals what it will, then the
// controllers run. parts_reward [ROLLOUT_COLUMNS, blocks].
// Parameters are those of the kernels that it stands for. averages 0: ema_update_on_done has run before (it must where
// the reward scale follows it). controllers: bits, see above; the state of one that does not run is not touched.
extern "C" __global__ void rl_rollout_end(
    const unsigned char* __restrict__ closed, const float* __restrict__ closed_trade_pnl_usd,
    const int* __restrict__ closed_trade_steps, const int* __restrict__ closed_trade_lots,
    const signed char* __restrict__ action, const unsigned char* __restrict__ overridden,
    const unsigned char* __restrict__ override_reason, const int* __restrict__ position_before,
    const int* __restrict__ position_after, const int* __restrict__ market_target, const int* __restrict__ fill_lots,
    const int* __restrict__ unfilled_lots, const float* __restrict__ pnl_step_usd,
    const float* __restrict__ unrealised_usd, const int* __restrict__ held_steps, const float* __restrict__ equity_usd,
    const int* __restrict__ position_lots, const int* __restrict__ trade_open_step, const int* __restrict__ unit_lots,
    const float* __restrict__ unit_trail, const int* __restrict__ unit_age, const float* isv_seed,
    const unsigned int* adam_step, float* isv, float* action_share_ema, unsigned int* controller_age,
    unsigned int* lr_halvings, float* loss_abs_ema,
    float* __restrict__ reward_usd, float* __restrict__ reward_scaled, float* __restrict__ reward, float* parts_reward,
    unsigned int* blocks_done, float fee_usd, int realised_reward, int averages, int controllers, int plateau, int T,
    int B) {
    __shared__ bool last;
    __shared__ Columns<OF_LARGEST, ROLLOUT_COLUMNS - OF_LARGEST> columns;
    const int rows = T * B, first = blockIdx.x * SIGNAL_PART + threadIdx.x;
    RewardMoment moments[ROLLOUT_RUN];
    int target[ROLLOUT_RUN], filled[ROLLOUT_RUN], unfilled[ROLLOUT_RUN], lots[ROLLOUT_RUN];
    unsigned char reasons[ROLLOUT_RUN], overrides[ROLLOUT_RUN];
    signed char actions[ROLLOUT_RUN];
#pragma unroll
    for (int i = 0; i < ROLLOUT_RUN; ++i) {  // all loads of a thread are under way before the first is used
        const int moment = first + i * COLUMN_THREADS, at = moment < rows ? moment : rows - 1;
        moments[i] = {closed[at] != 0, position_before[at], position_after[at],       closed_trade_steps[at],
                      held_steps[at],  pnl_step_usd[at],    closed_trade_pnl_usd[at], unrealised_usd[at]};
        target[i] = market_target[at];
        filled[i] = fill_lots[at];
        unfilled[i] = unfilled_lots[at];
        lots[i] = closed_trade_lots[at];
        reasons[i] = override_reason[at];
        overrides[i] = overridden[at];
        actions[i] = action[at];
    }
    float sums[ROLLOUT_COLUMNS];
    columns.begin(sums);
#pragma unroll
    for (int i = 0; i < ROLLOUT_RUN; ++i) {
        const int at = first + i * COLUMN_THREADS;
        if (at >= rows) continue;
        const RewardMoment& m = moments[i];
        const MomentReward item = fused_reward_pipeline_item(m, isv, realised_reward);
        reward_usd[at] = item.usd;
        reward_scaled[at] = item.scaled;
        reward[at] = item.clamped;
        reward_statistics_row(item.scaled, item.clamped, !realised_reward || m.closed, sums + OF_REWARD,
                              sums + OF_LARGEST);
        ema_update_on_done_row(m.closed, m.trade_pnl, m.trade_steps, lots[i], sums + OF_DONE);
        action_entropy_per_step_row(actions[i], overrides[i] != 0, m.before, target[i], sums + OF_ENTROPY);
        event_counters_row(reasons[i], sums + OF_EVENTS);
        market_statistics_row(m.after, filled[i], unfilled[i], m.closed, m.trade_pnl, m.step_pnl, sums + OF_MARKET);
        if (at >= B) continue;
        market_statistics_end(equity_usd[at], position_lots[at] != 0, trade_open_step[at], sums + OF_MARKET,
                              sums + OF_WORST);
        unit_statistics_row(unit_lots, unit_trail, unit_age, at, sums + OF_UNITS);
    }
    columns.of_threads(sums);
    columns.store(parts_reward, blockIdx.x, gridDim.x);
    if (!is_last_block(blocks_done, &last)) return;
    columns.of_parts(parts_reward, gridDim.x);
    const float* totals = columns.totals;
    finish_signals(totals, isv, action_share_ema, fee_usd, averages, T, B);
    __syncthreads();
    run_controllers(controllers, plateau, isv, isv_seed, adam_step, controller_age, lr_halvings, loss_abs_ema);
}
