// The last kernel of an iteration: what the updates did to the policy, signals, the record, the next cursors.
#include "control/streaming.cuh"
#include "diag/record.cuh"
#include "include/last_block.cuh"

// Columns of the sums over all rows.
enum EndColumn { OF_LOG_RATIO, OF_ADVANTAGE, OF_ROWS, END_SUMS, OF_LARGEST = END_SUMS, END_COLUMNS };

// rl_iteration_end: log-ratios of all rows, streaming moments, KL, total loss, diagnostic record, cursors.
// launch: blocks critic + (rows + 127) // 128, block 128
// chain: 11 us
// updates: isv, cursor, diag_ring, diag_head, parts_end, blocks_done
// fuses: rl_log_ratio_rows, rl_kl_approx_b, ppo_log_ratio_abs_max_b, rl_var_over_abs_mean_streaming
// fuses: rl_kurtosis_streaming, rl_loss_total, rl_diag_record, gpu_advance_cursor
// A row is a thread; the last block to finish adds up what the blocks left in parts_end [5, blocks of rows], then records
// all slots. Parameters are those of the kernels that it stands for; rows = T*B. critic 1: one more block, for the TD
// errors td_error [n_td]; 0: there are none in this iteration, td_error is not looked at.
extern "C" __global__ void rl_iteration_end(
    const float* __restrict__ pi_all, const float* __restrict__ b_pi, const float* __restrict__ w_pi_ctx,
    const float* __restrict__ context, const int* __restrict__ position_class,
    const signed char* __restrict__ action_drawn, const float* __restrict__ log_prob,
    const float* __restrict__ advantage, const float* __restrict__ td_error, float* log_ratio, float* isv, int* cursor,
    float* diag_ring, unsigned int* diag_head, float* parts_end, unsigned int* blocks_done, int critic, int n_td,
    int rows, int P, int RING, int T, int B) {
    __shared__ bool last;
    __shared__ Columns<END_SUMS, END_COLUMNS - END_SUMS> columns;
    __shared__ Columns<1> square;
    __shared__ SpreadLanes spread;
    __shared__ PolicyTile tile;
    const int blocks = gridDim.x - critic, block = blockIdx.x - critic;
    if (block < 0) {
        kurtosis_streaming_block(td_error, isv, n_td);
    } else {
        const int first = block * STREAM_PART, row = first + threadIdx.x;
        const bool there = row < rows;
        const float log_old = there ? log_prob[row] : 0.0f;
        const int drawn = there ? action_drawn[row] : 0;
        float mine[END_COLUMNS], x = there ? advantage[row] : 0.0f;
        policy_logits_tile(pi_all, b_pi, w_pi_ctx, context, position_class, P, first,
                           rows - first < STREAM_PART ? rows - first : STREAM_PART, &tile);
        columns.begin(mine);
        if (there) {
            float logits[N_ACTIONS];
#pragma unroll
            for (int a = 0; a < N_ACTIONS; ++a) logits[a] = tile.logits[threadIdx.x * N_ACTIONS + a];
            const float ratio = log_ratio_row(logits, drawn, log_old, isv);
            log_ratio[row] = ratio;
            mine[OF_LOG_RATIO] += ratio;
            mine[OF_ADVANTAGE] += x;
            mine[OF_ROWS] += 1.0f;
            mine[OF_LARGEST] = fabsf(ratio);
        }
        if (row < B) cursor[row] += T;
        columns.of_threads(mine);
        columns.store(parts_end, block, blocks);
        const float* sums = columns.totals;
        const float apart = part_deviations(x, there, sums[OF_ADVANTAGE], sums[OF_ROWS], &square);
        if (threadIdx.x == 0) parts_end[END_COLUMNS * blocks + block] = apart;
    }
    if (!is_last_block(blocks_done, &last)) return;
    columns.of_parts(parts_end, blocks);
    spread.of_parts(parts_end + OF_ROWS * blocks, parts_end + OF_ADVANTAGE * blocks, parts_end + END_COLUMNS * blocks,
                    blocks);
    if (threadIdx.x == 0) {
        var_over_abs_mean_streaming_finish(spread.all, isv);
        kl_approx_b_finish(columns.totals[OF_LOG_RATIO], isv, rows);
        isv[ISV_PPO_LOG_RATIO_ABS_MAX] = columns.totals[OF_LARGEST];
        loss_total_thread(isv);
    }
    __syncthreads();
    diag_record_block(isv, diag_ring, diag_head, RING);
}
