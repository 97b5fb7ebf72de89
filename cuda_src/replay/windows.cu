// Sampled moments encoded anew: where their windows lie, which encodings are theirs, how far the stored ones have drifted.
#include "include/reduce.cuh"
#include "replay/replay.cuh"

#define DRIFT_BLOCK 128
#define DRIFT_TINY 1e-30f  // under the squared norm of the encodings of now

// rl_sample_windows: where the sequence begins that gives a sampled moment the context it was stored with.
// launch: threads rows, block 64
// One thread a sample. A moment was encoded in step (birth mod T) of its iteration, behind K - 1 + (birth mod T) earlier
// snapshots; so the sequence of FW snapshots begins K - 1 before that iteration's first. replay_index, sample_slot [rows];
// store_birth [C]; window_start [rows] = the snapshot of the iteration's first step (a cursor); window_state [rows] =
// steps from there to the moment. A sequence that would leave the data set begins earlier: more context, same moment.
extern "C" __global__ void rl_sample_windows(const unsigned int* replay_index, const unsigned int* sample_slot,
                                             const unsigned int* store_birth, int* window_start, int* window_state,
                                             int T, int K, int FW, int N_SNAP, int rows) {
    const int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    const int index = (int)replay_index[r], phase = (int)(store_birth[sample_slot[r]] % (unsigned int)T);
    const int last_start = N_SNAP - 1 - (FW - K);
    const int start = index - phase < last_start ? index - phase : last_start;
    window_start[r] = start;
    window_state[r] = index - start;
}

// rl_fresh_pick: the encodings of the moment and of its window's end, in the place of the stored ones.
// launch: threads rows*8, block 64
// updates: replay_next_h
// COPY_LANES threads a sample. fresh_h [FT+1, rows, 128]; window_state, replay_n [rows]; replay_h, replay_next_h
// [rows, 128]. A window that ends behind the sequence (hindsight's may be longer than N_STEP) keeps its stored end.
extern "C" __global__ void rl_fresh_pick(const float* fresh_h, const int* window_state, const unsigned short* replay_n,
                                         float* replay_h, float* replay_next_h, int FT, int rows) {
    const int thread = blockIdx.x * blockDim.x + threadIdx.x;
    const int r = thread / COPY_LANES, lane = thread % COPY_LANES;
    if (r >= rows) return;
    const int state = window_state[r], end = state + replay_n[r];
    const long long to = (long long)r * HIDDEN_DIM;
    copy_encoding(replay_h + to, fresh_h + ((long long)state * rows + r) * HIDDEN_DIM, lane);
    if (end <= FT) copy_encoding(replay_next_h + to, fresh_h + ((long long)end * rows + r) * HIDDEN_DIM, lane);
}

// rl_encoding_drift: how far stored encodings are from those of now, |stored - now| / |now| over the batch.
// launch: blocks 1, block 128
// updates: isv
// One block, fixed order. replay_h [rows, 128] as stored; fresh_h [FT+1, rows, 128]; window_state [rows].
// Slot written: ENCODING_DRIFT.
extern "C" __global__ void rl_encoding_drift(const float* replay_h, const float* fresh_h, const int* window_state,
                                             float* isv, int rows) {
    __shared__ float scratch[32];
    float apart = 0.0f, size = 0.0f;
    for (int i = threadIdx.x; i < rows * HIDDEN_DIM; i += DRIFT_BLOCK) {
        const int r = i / HIDDEN_DIM, k = i % HIDDEN_DIM;
        const float now = fresh_h[((long long)window_state[r] * rows + r) * HIDDEN_DIM + k];
        const float d = replay_h[i] - now;
        apart = fmaf(d, d, apart);
        size = fmaf(now, now, size);
    }
    apart = block_sum(apart, scratch);
    size = block_sum(size, scratch);
    if (threadIdx.x == 0) isv[ISV_ENCODING_DRIFT] = sqrtf(apart / (size > DRIFT_TINY ? size : DRIFT_TINY));
}
