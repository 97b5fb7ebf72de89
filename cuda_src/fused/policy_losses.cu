// The losses of the policy and value heads in two kernels: what rows are measured against, then the rows.
#include "include/last_block.cuh"
#include "nets/ppo.cuh"

#define GAE_STEPS 32  // steps of a tile

// rl_policy_advantages: values of all states, advantages, their statistics.
// launch: blocks (B + 7) // 8, block 128
// chain: 7 us
// updates: isv, parts_advantages, blocks_done
// fuses: rl_value_rows, gae_advantage, rl_advantage_statistics
// A block has eight rows with all their states, a tile of steps at a time from the last one back; the last block to finish
// computes the statistics from those of the blocks, parts_advantages [7, blocks]. Parameters are those of the kernels that
// it stands for.
extern "C" __global__ void rl_policy_advantages(
    const float* __restrict__ v_all, const float* __restrict__ b_v, const float* __restrict__ w_v_ctx,
    const float* __restrict__ context, const int* __restrict__ position_class, const float* __restrict__ reward,
    const unsigned char* __restrict__ terminal, const unsigned char* __restrict__ overridden, float* value,
    float* advantage, float* value_target, float* moments, float* isv, float* parts_advantages,
    unsigned int* blocks_done, int mask_overridden, int P, int T, int B) {
    __shared__ bool last;
    __shared__ Columns<ADVANTAGE_SUMS> columns;
    __shared__ Columns<1> square;
    __shared__ SpreadLanes spread;
    __shared__ float values[(GAE_STEPS + 1) * ADVANTAGE_ROWS], rewards[GAE_STEPS * ADVANTAGE_ROWS];
    __shared__ unsigned char ends[GAE_STEPS * ADVANTAGE_ROWS];
    const int first = blockIdx.x * ADVANTAGE_ROWS;
    const float gamma = isv[ISV_GAMMA], lambda = isv[ISV_GAE_LAMBDA], bound = isv[ISV_V_TARGET_CLAMP];
    float carried = 0.0f;
    for (int t0 = (T - 1) / GAE_STEPS * GAE_STEPS; t0 >= 0; t0 -= GAE_STEPS) {
        const int steps = T - t0 < GAE_STEPS ? T - t0 : GAE_STEPS;
#pragma unroll 3
        for (int i = threadIdx.x; i < (steps + 1) * ADVANTAGE_ROWS; i += COLUMN_THREADS) {
            const int t = t0 + i / ADVANTAGE_ROWS, b = first + i % ADVANTAGE_ROWS, row = t * B + b;
            if (b >= B) continue;
            const bool acts = i < steps * ADVANTAGE_ROWS;
            const float r = acts ? reward[row] : 0.0f;
            const unsigned char end = acts ? terminal[row] : 0;
            values[i] = value_rows_row(v_all, b_v, w_v_ctx, context, position_class, isv, P, row);
            if (acts || t == T) value[row] = values[i];
            if (acts) {
                rewards[i] = r;
                ends[i] = end;
            }
        }
        __syncthreads();
        if (threadIdx.x < ADVANTAGE_ROWS && first + (int)threadIdx.x < B) {
            for (int i = (steps - 1) * ADVANTAGE_ROWS + threadIdx.x; i >= 0; i -= ADVANTAGE_ROWS) {
                carried = gae_step(rewards[i], ends[i] != 0, values[i], values[i + ADVANTAGE_ROWS], gamma, lambda,
                                   carried);
                rewards[i] = carried;  // from here on the advantage
            }
        }
        __syncthreads();
        for (int i = threadIdx.x; i < steps * ADVANTAGE_ROWS; i += COLUMN_THREADS) {
            const int b = first + i % ADVANTAGE_ROWS, row = (t0 + i / ADVANTAGE_ROWS) * B + b;
            if (b >= B) continue;
            advantage[row] = rewards[i];
            value_target[row] = gae_target(rewards[i], values[i], bound);
        }
        __syncthreads();
    }
    const int blocks = gridDim.x;
    const float apart = advantage_part(advantage, overridden, value_target, &columns, &square, mask_overridden, first,
                                       T, B);
    columns.store(parts_advantages, blockIdx.x, blocks);
    if (threadIdx.x == 0) parts_advantages[ADVANTAGE_SUMS * blocks + blockIdx.x] = apart;
    if (!is_last_block(blocks_done, &last)) return;
    columns.of_parts(parts_advantages, blocks);
    spread.of_parts(parts_advantages, parts_advantages + blocks, parts_advantages + ADVANTAGE_SUMS * blocks, blocks);
    if (threadIdx.x == 0) advantage_statistics_finish(columns.totals, spread.all.square, moments, isv, T, B);
}

// out [here, P*WIDTH]: own [here, WIDTH] in each row's block, zero elsewhere; all threads of the block call.
template <int WIDTH>
static __device__ inline void spread_over_classes(const float* own, const int* block, float* out, int here, int P) {
    const int width = P * WIDTH, step_rows = LOSS_PART / width, step_columns = LOSS_PART - step_rows * width;
    int row = threadIdx.x / width, column = threadIdx.x - row * width;
#pragma unroll 4
    for (int i = threadIdx.x; i < here * width; i += LOSS_PART) {
        const int of_block = column - block[row] * WIDTH;
        out[i] = of_block >= 0 && of_block < WIDTH ? own[row * WIDTH + of_block] : 0.0f;
        row += step_rows;
        column += step_columns;
        if (column >= width) {
            column -= width;
            row += 1;
        }
    }
}

// rl_policy_surrogate: surrogate and value loss of every row with the gradients of all classes' outputs, and their means.
// launch: blocks (rows + 127) // 128, block 128
// chain: 12 us
// updates: isv, parts_losses, blocks_done
// fuses: ppo_clipped_surrogate_fwd, ppo_clipped_surrogate_bwd, rl_value_loss_grad, rl_loss_reduce
// One thread a row, rows = T*B. What rows have of all classes a block reads and writes together, adjacent threads adjacent
// elements; of the gradients those outside the row's class are zero. The last block to finish adds up what the blocks left
// in parts_losses [3, blocks]. Parameters are those of the kernels that it stands for.
extern "C" __global__ void rl_policy_surrogate(
    const float* __restrict__ pi_all, const float* __restrict__ b_pi, const float* __restrict__ w_pi_ctx,
    const float* __restrict__ context, const int* __restrict__ position_class,
    const signed char* __restrict__ action_drawn, const float* __restrict__ log_prob,
    const float* __restrict__ advantage, const unsigned char* __restrict__ overridden,
    const float* __restrict__ moments, const float* __restrict__ value, const float* __restrict__ value_target,
    float* isv, float* pi_soft, float* log_ratio, float* row_loss_pi, float* row_loss_v, float* row_entropy,
    float* grad_pi_all, float* grad_v_all, float* parts_losses, unsigned int* blocks_done, int mask_overridden, int P,
    int rows) {
    __shared__ bool last;
    __shared__ Columns<LOSS_SUMS> columns;
    __shared__ PolicyTile tile;
    __shared__ float grads[LOSS_PART * N_ACTIONS], value_grads[LOSS_PART];
    const int own = threadIdx.x, first = blockIdx.x * LOSS_PART, row = first + own;
    const int here = rows - first < LOSS_PART ? rows - first : LOSS_PART;
    policy_logits_tile(pi_all, b_pi, w_pi_ctx, context, position_class, P, first, here, &tile);
    float sums[LOSS_SUMS];
    columns.begin(sums);
    if (row < rows) {
        float logits[N_ACTIONS];
#pragma unroll
        for (int a = 0; a < N_ACTIONS; ++a) logits[a] = tile.logits[own * N_ACTIONS + a];
        const SurrogateRow found = ppo_clipped_surrogate_fwd_row(logits, action_drawn, log_prob, advantage, overridden,
                                                                 moments, isv, mask_overridden, row);
        const ValueLoss of_value = value_loss_grad_row(value[row], value_target[row], isv, rows);
        float grad[N_ACTIONS];
        ppo_clipped_surrogate_bwd_row(found.soft, found.log_ratio, found.entropy, action_drawn, advantage, overridden,
                                      moments, isv, grad, rows, mask_overridden, row);
#pragma unroll
        for (int a = 0; a < N_ACTIONS; ++a) {
            tile.logits[own * N_ACTIONS + a] = found.soft[a];  // from here on the softmax
            grads[own * N_ACTIONS + a] = grad[a];
        }
        value_grads[own] = of_value.grad;
        log_ratio[row] = found.log_ratio;
        row_loss_pi[row] = found.loss;
        row_entropy[row] = found.entropy;
        row_loss_v[row] = of_value.loss;
        sums[0] += found.loss;
        sums[1] += of_value.loss;
        sums[2] += found.entropy;
    }
    __syncthreads();
    for (int i = own; i < here * N_ACTIONS; i += LOSS_PART) pi_soft[(long long)first * N_ACTIONS + i] = tile.logits[i];
    spread_over_classes<N_ACTIONS>(grads, tile.block, grad_pi_all + (long long)first * P * N_ACTIONS, here, P);
    spread_over_classes<1>(value_grads, tile.block, grad_v_all + (long long)first * P, here, P);
    columns.of_threads(sums);
    columns.store(parts_losses, blockIdx.x, gridDim.x);
    if (!is_last_block(blocks_done, &last)) return;
    columns.of_parts(parts_losses, gridDim.x);
    if (threadIdx.x == 0) loss_reduce_finish(columns.totals, moments, isv, rows);
}
