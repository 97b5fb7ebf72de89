// The moments of the iteration under way as a critic's batch, for a critic whose loss also teaches the encoder.
#include "include/math.cuh"
#include "replay/replay.cuh"

// rl_moment_batch: rows row0 .. row0 + rows of this iteration's T*B moments, in the places of a sampled batch.
// launch: threads rows*8, block 64
// COPY_LANES threads a moment (t, b) = row0 + r; lane 0 writes the rest. Its window ends after n = min(N_STEP, T - t)
// steps, in a state of this iteration, since no episode ends within one. h [T+1,B,128] encodings that learn, target_h
// [T+1,B,128] critic features; cursor [B]; position_before, action [T,B]; replay_* [rows] as of rl_per_sample. Nothing is
// terminal. is_weight [rows] = rows / (T B): the batches of an iteration add up to the mean over its moments.
// Slot read: N_STEP.
extern "C" __global__ void rl_moment_batch(const float* h, const float* target_h, const int* cursor,
                                           const int* position_before, const signed char* action, const float* isv,
                                           float* replay_h, float* replay_next_h, unsigned int* replay_index,
                                           unsigned short* replay_n, signed char* replay_lots,
                                           signed char* replay_action, unsigned char* replay_terminal,
                                           float* is_weight, int row0, int rows, int T, int B) {
    const int thread = blockIdx.x * blockDim.x + threadIdx.x;
    const int r = thread / COPY_LANES, lane = thread % COPY_LANES;
    if (r >= rows) return;
    const int at = row0 + r, t = at / B, b = at - t * B, left = T - t;
    const int n = n_step(isv) < left ? n_step(isv) : left;
    const long long to = (long long)r * HIDDEN_DIM, end = ((long long)(t + n) * B + b) * HIDDEN_DIM;
    copy_encoding(replay_h + to, h + (long long)at * HIDDEN_DIM, lane);
    copy_encoding(replay_next_h + to, target_h + end, lane);
    if (lane != 0) return;
    replay_index[r] = (unsigned int)(cursor[b] + t);
    replay_n[r] = (unsigned short)n;
    replay_lots[r] = (signed char)position_before[at];
    replay_action[r] = action[at];
    replay_terminal[r] = 0;
    is_weight[r] = (float)rows / ((float)T * (float)B);
}

// rl_add_encoding_gradient: what the critic's loss says to the encodings of those moments.
// launch: threads rows*128, block 128
// updates: grad_h
// One thread an element. critic_grad_h [rows, 128]; grad_h [T+1, B, 128], its rows from row0 on.
extern "C" __global__ void rl_add_encoding_gradient(const float* critic_grad_h, float* grad_h, int row0, int rows) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows * HIDDEN_DIM) grad_h[(long long)row0 * HIDDEN_DIM + i] += critic_grad_h[i];
}
