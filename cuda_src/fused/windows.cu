// Everything that an iteration's encodings need, in one kernel: features and gaps of the windows, rows ready to play.
#include "env/trade_state.cuh"
#include "market/features.cuh"
#include "market/gap.cuh"

#define WINDOW_BLOCK 64                         // snapshots a block has at a time
#define WINDOW_STRIDE (ENCODER_INPUT_DIM + 1)   // in shared memory: threads write different banks

// rl_windows: windows, gaps, begin of the iteration.
// launch: blocks B, block 64
// updates: context, position_class, trade_pnl_usd, trade_open_step, trade_lots_max, trade_best_mid, trade_entry_mid
// updates: steps_since_close, pending_target, pending_steps, unit_entry, unit_best_mid, unit_age, unit_lots
// updates: unit_initial_r, unit_trail, unit_marked
// fuses: snap_feature_assemble_batched, rl_rollout_begin, gpu_window_gaps
// One block a row. A thread computes a snapshot's features into shared memory, from where the block writes them, adjacent
// threads adjacent elements. Parameters are those of the kernels that it stands for.
extern "C" __global__ void rl_windows(
    const float* __restrict__ bid_px, const float* __restrict__ bid_sz, const float* __restrict__ ask_px,
    const float* __restrict__ ask_sz, const float* __restrict__ prev_mid, const float* __restrict__ trade_signed_vol,
    const unsigned int* __restrict__ trade_count, const unsigned long long* __restrict__ ts_ns,
    const unsigned long long* __restrict__ prev_ts_ns, const float* __restrict__ regime,
    const float* __restrict__ multires, const int* __restrict__ cursor, const unsigned char* __restrict__ new_episode,
    const int* __restrict__ position_lots, float* __restrict__ x, float* __restrict__ gap, float* __restrict__ context,
    int* __restrict__ position_class, float* __restrict__ trade_pnl_usd, int* __restrict__ trade_open_step,
    int* __restrict__ trade_lots_max, float* __restrict__ trade_best_mid, float* __restrict__ trade_entry_mid,
    int* __restrict__ steps_since_close, int* __restrict__ pending_target, int* __restrict__ pending_steps,
    float* __restrict__ unit_entry, float* __restrict__ unit_best_mid, int* __restrict__ unit_age,
    int* __restrict__ unit_lots, float* __restrict__ unit_initial_r, float* __restrict__ unit_trail,
    unsigned char* __restrict__ unit_marked, int offset, int lot_limit, int K, int W, int T, int B, int N_SNAP) {
    __shared__ float features[WINDOW_BLOCK * WINDOW_STRIDE];
    const int b = blockIdx.x;
    if (threadIdx.x == 0) {
        rollout_begin_row(new_episode, position_lots, context, position_class, trade_pnl_usd, trade_open_step,
                          trade_lots_max, trade_best_mid, trade_entry_mid, steps_since_close, pending_target,
                          pending_steps, unit_entry, unit_best_mid, unit_age, unit_lots, unit_initial_r, unit_trail,
                          unit_marked, lot_limit, T, B, b);
    }
    for (int first = 0; first < W; first += WINDOW_BLOCK) {
        const int count = W - first < WINDOW_BLOCK ? W - first : WINDOW_BLOCK, w = first + threadIdx.x;
        if ((int)threadIdx.x < count) {
            snap_feature_assemble_batched_item(bid_px, bid_sz, ask_px, ask_sz, prev_mid, trade_signed_vol, trade_count,
                                               ts_ns, prev_ts_ns, regime, multires,
                                               (long long)cursor[b] - (K - 1) + offset + w, N_SNAP,
                                               features + threadIdx.x * WINDOW_STRIDE);
            gap[(long long)w * B + b] = window_gaps_item(ts_ns, cursor[b], offset, K, w);
        }
        __syncthreads();
        for (int i = threadIdx.x; i < count * ENCODER_INPUT_DIM; i += blockDim.x) {
            const int row = i / ENCODER_INPUT_DIM, j = i - row * ENCODER_INPUT_DIM;
            x[((long long)(first + row) * B + b) * ENCODER_INPUT_DIM + j] = features[row * WINDOW_STRIDE + j];
        }
        __syncthreads();
    }
}
