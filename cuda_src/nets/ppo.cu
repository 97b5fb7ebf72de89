// The on-policy update: advantages, the clipped surrogate through the floored mixture, entropy, value loss.
#include "nets/ppo.cuh"

// gae_advantage: generalised advantage estimation (Schulman 2016), one backward sweep a row.
// launch: threads B, block 64
// One thread a row. reward, terminal [T, B]; value [T+1, B]; advantage, value_target [T, B].
//   delta_t = r_t + gamma (1 - d_t) V_{t+1} - V_t ;  A_t = delta_t + gamma lambda (1 - d_t) A_{t+1}
// Episodes end at the end of an iteration only, so V_T is the bootstrap of truncated rows too (class flat by then).
// value_target = A + V, bounded by V_TARGET_CLAMP. Slots read: GAMMA, GAE_LAMBDA, V_TARGET_CLAMP.
extern "C" __global__ void gae_advantage(const float* reward, const unsigned char* terminal, const float* value,
                                         const float* isv, float* advantage, float* value_target, int B, int T) {
    const int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= B) return;
    const float gamma = isv[ISV_GAMMA], lambda = isv[ISV_GAE_LAMBDA], bound = isv[ISV_V_TARGET_CLAMP];
    float carried = 0.0f;
    for (int t = T - 1; t >= 0; --t) {
        const long long row = (long long)t * B + b;
        carried = gae_step(reward[row], terminal[row] != 0, value[row], value[row + B], gamma, lambda, carried);
        advantage[row] = carried;
        value_target[row] = gae_target(carried, value[row], bound);
    }
}

// rl_advantage_statistics: mean and standard deviation of the advantages that the surrogate uses, moments of the returns.
// launch: blocks 1, block 128
// One block, fixed order. advantage, value_target, overridden [T,B]; moments [6] = of the advantages mean, 1 / std, rows
// counted; of the returns (value_target) mean, mean square, how many are not finite.
// mask_overridden != 0 leaves out rows whose executed action the policy did not choose. No row at all: 0, 0, 0. One row
// has no spread to be measured by: 0, 1, 1, its advantage is used as it is.
// Slots written: ADV_ABS_MEAN.
extern "C" __global__ void rl_advantage_statistics(const float* advantage, const unsigned char* overridden,
                                                   const float* value_target, float* moments, float* isv,
                                                   int mask_overridden, int T, int B) {
    __shared__ Columns<ADVANTAGE_SUMS> columns;
    __shared__ Columns<1> square;
    __shared__ SpreadLanes spread;
    columns.clear_lanes();
    spread.clear();
    for (int first = 0; first < B; first += ADVANTAGE_ROWS) {
        const float apart = advantage_part(advantage, overridden, value_target, &columns, &square, mask_overridden,
                                           first, T, B);
        columns.add_to_lane(first / ADVANTAGE_ROWS);
        spread.add({columns.totals[0], columns.totals[1], apart}, first / ADVANTAGE_ROWS);
    }
    columns.of_lanes();
    spread.of_lanes();
    if (threadIdx.x == 0) advantage_statistics_finish(columns.totals, spread.all.square, moments, isv, T, B);
}

// ppo_clipped_surrogate_fwd: loss of each row and the softmax the backward needs.
// launch: threads rows, block 64
// One thread a row. pi_all [rows, P*11], b_pi, w_pi_ctx, context, position_class as in rl_pi_action_kernel;
// action_drawn, log_prob (of the draw), advantage, overridden [rows]; moments of rl_advantage_statistics;
// pi_soft [rows, 11]; log_ratio, row_loss_pi, row_entropy [rows].
//   rho = p_new / p_old kept in [1/max, max] first;  loss = -min(rho A, clip(rho, 1 - eps, 1 + eps) A)  (Schulman 2017)
// A is normalised by moments. A masked row has loss 0. Entropy is that of the softmax, nats.
// Slots read: P_MIN, PPO_CLIP_EPS, PPO_RATIO_CLAMP_MAX.
extern "C" __global__ void ppo_clipped_surrogate_fwd(const float* pi_all, const float* b_pi, const float* w_pi_ctx,
                                                     const float* context, const int* position_class,
                                                     const signed char* action_drawn, const float* log_prob,
                                                     const float* advantage, const unsigned char* overridden,
                                                     const float* moments, const float* isv, float* pi_soft,
                                                     float* log_ratio, float* row_loss_pi, float* row_entropy, int rows,
                                                     int P, int mask_overridden) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float logits[N_ACTIONS];
    policy_logits(pi_all, b_pi, w_pi_ctx, context, row, head_block(position_class[row], P), P, logits);
    const SurrogateRow found = ppo_clipped_surrogate_fwd_row(logits, action_drawn, log_prob, advantage, overridden,
                                                             moments, isv, mask_overridden, row);
    for (int a = 0; a < N_ACTIONS; ++a) pi_soft[(long long)row * N_ACTIONS + a] = found.soft[a];
    log_ratio[row] = found.log_ratio;
    row_loss_pi[row] = found.loss;
    row_entropy[row] = found.entropy;
}

// ppo_clipped_surrogate_bwd: gradient of surrogate and entropy bonus with respect to all classes' logits.
// launch: threads rows, block 64
// One thread a row, which owns its whole row of grad_pi_all [rows, P*11]: zero outside its class's block.
//   d loss / d rho = -A where the unclipped branch is the smaller one and the ratio clamp is inactive, else 0
//   d rho / d logit_i = rho (1 - 11 P_MIN) s_a (1[i = a] - s_i) / p_a
//   d (-c H) / d logit_i = c s_i (ln s_i + H)
// Surrogate rows share 1 / counted rows, entropy 1 / rows; both carry LOSS_LAMBDA_PI.
// Slots read: P_MIN, PPO_CLIP_EPS, PPO_RATIO_CLAMP_MAX, ENTROPY_COEF, LOSS_LAMBDA_PI.
extern "C" __global__ void ppo_clipped_surrogate_bwd(const float* pi_soft, const float* log_ratio,
                                                     const float* row_entropy, const int* position_class,
                                                     const signed char* action_drawn, const float* advantage,
                                                     const unsigned char* overridden, const float* moments,
                                                     const float* isv, float* grad_pi_all, int rows, int P,
                                                     int mask_overridden) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const int width = P * N_ACTIONS;
    for (int i = 0; i < width; ++i) grad_pi_all[(long long)row * width + i] = 0.0f;
    float soft[N_ACTIONS];
    for (int a = 0; a < N_ACTIONS; ++a) soft[a] = pi_soft[(long long)row * N_ACTIONS + a];
    float* out = grad_pi_all + (long long)row * width + head_block(position_class[row], P) * N_ACTIONS;
    ppo_clipped_surrogate_bwd_row(soft, log_ratio[row], row_entropy[row], action_drawn, advantage, overridden, moments,
                                  isv, out, rows, mask_overridden, row);
}

// rl_value_loss_grad: Huber loss of the normalised value and its gradient with respect to all classes' outputs.
// launch: threads rows, block 64
// One thread a row, which owns its row of grad_v_all [rows, P]. value, value_target, row_loss_v [rows].
// Normalised error = (value - target) / sigma (PopArt); gradient carries LOSS_LAMBDA_V / rows.
// Slots read: LOSS_LAMBDA_V, POPART_MEAN, POPART_SECOND_MOMENT.
extern "C" __global__ void rl_value_loss_grad(const float* value, const float* value_target, const int* position_class,
                                              const float* isv, float* grad_v_all, float* row_loss_v, int rows, int P) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    for (int i = 0; i < P; ++i) grad_v_all[(long long)row * P + i] = 0.0f;
    const ValueLoss found = value_loss_grad_row(value[row], value_target[row], isv, rows);
    row_loss_v[row] = found.loss;
    grad_v_all[(long long)row * P + head_block(position_class[row], P)] = found.grad;
}

// rl_loss_reduce: mean policy and value losses and the entropy signal of the iteration.
// launch: blocks 1, block 128
// updates: isv
// One block, fixed order. row_loss_pi, row_loss_v, row_entropy [rows]; moments[2] = rows the surrogate counted.
// Slots written: LOSS_PI (no row counted: left alone), LOSS_V, ENTROPY_OBSERVED_EMA (first observation as it is).
extern "C" __global__ void rl_loss_reduce(const float* row_loss_pi, const float* row_loss_v, const float* row_entropy,
                                          const float* moments, float* isv, int rows) {
    loss_reduce_block(row_loss_pi, row_loss_v, row_entropy, moments, isv, rows);
}
