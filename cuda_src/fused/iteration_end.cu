// The last kernel of an iteration: what the updates did to the policy, signals, the record, the next cursors.
#include "control/streaming.cuh"
#include "diag/record.cuh"
#include "include/last_block.cuh"

#define STREAM_BLOCKS 2  // blocks before those of the rows

// rl_iteration_end: log-ratios of all rows, streaming moments, KL, total loss, diagnostic record, cursors.
// launch: blocks 2 + (rows + 127) // 128, block 128
// updates: isv, cursor, diag_ring, diag_head, blocks_done
// fuses: rl_log_ratio_rows, rl_kl_approx_b, ppo_log_ratio_abs_max_b, rl_var_over_abs_mean_streaming
// fuses: rl_kurtosis_streaming, rl_loss_total, rl_diag_record, gpu_advance_cursor
// The first two blocks each do one stream, a row is a thread of the others; the last block to finish does what needs the
// log-ratios, then the record of all slots. Parameters are those of the kernels that it stands for; rows = T*B. critic 0:
// no TD errors in this iteration, td_error [n_td] is not looked at.
extern "C" __global__ void rl_iteration_end(const float* pi_all, const float* b_pi, const float* w_pi_ctx,
                                            const float* context, const int* position_class,
                                            const signed char* action_drawn, const float* log_prob,
                                            const float* advantage, const float* td_error, float* log_ratio, float* isv,
                                            int* cursor, float* diag_ring, unsigned int* diag_head,
                                            unsigned int* blocks_done, int critic, int n_td, int rows, int P, int RING,
                                            int T, int B) {
    __shared__ bool last;
    if (blockIdx.x == 0) {
        var_over_abs_mean_streaming_block(advantage, isv, rows);
    } else if (blockIdx.x == 1) {
        if (critic) kurtosis_streaming_block(td_error, isv, n_td);
    } else {
        const int row = (blockIdx.x - STREAM_BLOCKS) * blockDim.x + threadIdx.x;
        if (row < rows) {
            log_ratio[row] =
                log_ratio_row(pi_all, b_pi, w_pi_ctx, context, position_class, action_drawn, log_prob, isv, P, row);
        }
        if (row < B) cursor[row] += T;
    }
    if (!is_last_block(blocks_done, &last)) return;
    kl_approx_b_block(log_ratio, isv, rows);
    ppo_log_ratio_abs_max_b_block(log_ratio, isv, rows);
    if (threadIdx.x == 0) loss_total_thread(isv);
    __syncthreads();
    diag_record_block(isv, diag_ring, diag_head, RING);
}
