// Reward of an iteration: USD, shaping, scale, clamp in one pass; then the statistics that the scale and clamp need.
#include "env/reward.cuh"

// rl_fused_reward_pipeline: reward_usd -> x REWARD_SCALE -> clamp to [-REWARD_CLAMP_LOSS, +REWARD_CLAMP_WIN].
// realised_reward 0 (mark to market): change of equity over the step = position x mid change - cost of the fill; its
// sum is the PnL of fills and marks. realised_reward 1: PnL of the trade, all partial closes and fees, at its close,
// else 0. Both add the shaping. A NaN passes through. One thread a moment (t, b). Writes reward_usd, reward_scaled,
// reward [T,B].
// launch: threads T*B, block 64
extern "C" __global__ void rl_fused_reward_pipeline(
    const float* pnl_step_usd, const unsigned char* closed, const float* closed_trade_pnl_usd,
    const int* closed_trade_steps, const int* position_before, const int* position_after, const float* unrealised_usd,
    const int* held_steps, const float* isv, float* reward_usd, float* reward_scaled, float* reward,
    int realised_reward, int T, int B) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= (long long)T * B) return;
    const RewardMoment moment = {closed[at] != 0, position_before[at], position_after[at], closed_trade_steps[at],
                                 held_steps[at],  pnl_step_usd[at],    closed_trade_pnl_usd[at], unrealised_usd[at]};
    const MomentReward item = fused_reward_pipeline_item(moment, isv, realised_reward);
    reward_usd[at] = item.usd;
    reward_scaled[at] = item.scaled;
    reward[at] = item.clamped;
}

// rl_reward_statistics: largest rewards before the clamp, this iteration, and the share that the clamp changed.
// REWARD_SCALED_ABS_MAX, POS_SCALED_MAX, NEG_SCALED_MAX: largest |scaled|, positive and |negative| reward;
// POS_SCALED_MAX_EMA, NEG_SCALED_MAX_EMA: sparse EMAs of the latter two (no reward of that sign, no update);
// REWARD_CLIP_RATE_EMA: EMA of the share of rewards the clamp changed, among all moments in mark-to-market mode, among
// closes in realised mode (no close, no update). One block strides over [T, B]. A NaN reward shows in the three largest
// and leaves the EMAs alone.
// launch: blocks 1, block 128
// updates: isv
extern "C" __global__ void rl_reward_statistics(const float* reward_scaled, const float* reward,
                                                const unsigned char* closed, float* isv, int realised_reward, int T,
                                                int B) {
    reward_statistics_block(reward_scaled, reward, closed, isv, realised_reward, T, B);
}
