// The losses of the policy and value heads in two kernels: what rows are measured against, then the rows.
#include "include/last_block.cuh"
#include "nets/ppo.cuh"

#define VALUE_ROWS 8  // rows b of a block: (T+1) states of each

// rl_policy_advantages: values of all states, advantages, their statistics.
// launch: blocks (B + 7) // 8, block 128
// updates: isv, blocks_done
// fuses: rl_value_rows, gae_advantage, rl_advantage_statistics
// A block has eight rows with all their states; the last block to finish computes the statistics. Parameters are those of
// the kernels that it stands for.
extern "C" __global__ void rl_policy_advantages(const float* v_all, const float* b_v, const float* w_v_ctx,
                                                const float* context, const int* position_class, const float* reward,
                                                const unsigned char* terminal, const unsigned char* overridden,
                                                float* value, float* advantage, float* value_target, float* moments,
                                                float* isv, unsigned int* blocks_done, int mask_overridden, int P,
                                                int T, int B) {
    __shared__ bool last;
    const int first = blockIdx.x * VALUE_ROWS;
    for (int i = threadIdx.x; i < (T + 1) * VALUE_ROWS; i += blockDim.x) {
        const int t = i / VALUE_ROWS, b = first + (i - t * VALUE_ROWS), row = t * B + b;
        if (b < B) value[row] = value_rows_row(v_all, b_v, w_v_ctx, context, position_class, isv, P, row);
    }
    __syncthreads();
    const int b = first + threadIdx.x;
    if (threadIdx.x < VALUE_ROWS && b < B) {
        gae_advantage_row(reward, terminal, value, isv, advantage, value_target, B, T, b);
    }
    if (!is_last_block(blocks_done, &last)) return;
    advantage_statistics_block(advantage, overridden, moments, isv, T * B, mask_overridden);
}

// rl_policy_surrogate: surrogate and value loss of every row with the gradients of all classes' outputs, and their means.
// launch: blocks (rows + 127) // 128, block 128
// updates: isv, blocks_done
// fuses: ppo_clipped_surrogate_fwd, ppo_clipped_surrogate_bwd, rl_value_loss_grad, rl_loss_reduce
// One thread a row, rows = T*B. A block clears its rows' gradients together, adjacent threads adjacent elements; then each
// thread writes those of its row's class. The last block to finish adds the losses up. Parameters are those of the
// kernels that it stands for.
extern "C" __global__ void rl_policy_surrogate(
    const float* pi_all, const float* b_pi, const float* w_pi_ctx, const float* context, const int* position_class,
    const signed char* action_drawn, const float* log_prob, const float* advantage, const unsigned char* overridden,
    const float* moments, const float* value, const float* value_target, float* isv, float* pi_soft, float* log_ratio,
    float* row_loss_pi, float* row_loss_v, float* row_entropy, float* grad_pi_all, float* grad_v_all,
    unsigned int* blocks_done, int mask_overridden, int P, int rows) {
    __shared__ bool last;
    const int first = blockIdx.x * blockDim.x, row = first + threadIdx.x;
    const int here = rows - first < (int)blockDim.x ? rows - first : (int)blockDim.x;
    float *pi = grad_pi_all + (long long)first * P * N_ACTIONS, *v = grad_v_all + (long long)first * P;
    for (int i = threadIdx.x; i < here * P * N_ACTIONS; i += blockDim.x) pi[i] = 0.0f;
    for (int i = threadIdx.x; i < here * P; i += blockDim.x) v[i] = 0.0f;
    __syncthreads();
    if (row < rows) {
        ppo_clipped_surrogate_fwd_row(pi_all, b_pi, w_pi_ctx, context, position_class, action_drawn, log_prob,
                                      advantage, overridden, moments, isv, pi_soft, log_ratio, row_loss_pi,
                                      row_entropy, P, mask_overridden, row);
        ppo_clipped_surrogate_bwd_row(pi_soft, log_ratio, row_entropy, position_class, action_drawn, advantage,
                                      overridden, moments, isv, grad_pi_all, rows, P, mask_overridden, row);
        value_loss_grad_row(value, value_target, position_class, isv, grad_v_all, row_loss_v, rows, P, row);
    }
    if (!is_last_block(blocks_done, &last)) return;
    loss_reduce_block(row_loss_pi, row_loss_v, row_entropy, moments, isv, rows);
}
