// Prioritised, stratified sampling (Schaul 2016) and the gathers of a batch.
// P(i) = leaf_i / root; importance weight (N P)^-beta / max over the batch = (least leaf of the batch / leaf)^beta: N
// and the root cancel, nothing overflows, and the largest weight is exactly 1.
#include "include/math.cuh"
#include "include/reduce.cuh"
#include "include/rng.cuh"
#include "replay/replay.cuh"
#include "replay/tree.cuh"

// Slot whose leaf holds the mass u, 0 <= u < root.
static __device__ inline unsigned int tree_find(const float* per_tree, double u, int C) {
    int node = 1;
    while (node < C) {
        float left = per_tree[2 * node], right = per_tree[2 * node + 1];
        bool go_left = tree_goes_left(left, right, u);
        if (!go_left) u -= (double)left;
        node = 2 * node + (go_left ? 0 : 1);
    }
    return (unsigned int)(node - C);
}

// rl_per_sample: one transition a stratum of the total mass; gathers its scalars.
// launch: threads R, block 64
// updates: rng_replay
// One thread a sample; u in double, since a float cannot tell 2^22 leaves apart. rng_replay [R] xorshift32 states.
// Precondition: the replay is not empty. sample_slot [R], never descending; sample_priority [R] the leaf; replay_* [R] as
// in store_*.
extern "C" __global__ void rl_per_sample(
    const float* per_tree, const unsigned int* store_index, const unsigned short* store_n,
    const signed char* store_lots, const signed char* store_next_lots, const signed char* store_action,
    const float* store_return, const float* store_discount, const unsigned char* store_terminal,
    unsigned int* rng_replay,
    unsigned int* sample_slot, float* sample_priority, unsigned int* replay_index, unsigned short* replay_n,
    signed char* replay_lots, signed char* replay_next_lots, signed char* replay_action, float* replay_reward,
    float* replay_discount, unsigned char* replay_terminal, int C, int R) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= R) return;
    double u = tree_stratum(xorshift32(&rng_replay[r]), r, R, per_tree[1]);
    unsigned int slot = tree_find(per_tree, u, C);
    sample_slot[r] = slot;
    sample_priority[r] = per_tree[C + slot];
    replay_index[r] = store_index[slot];
    replay_n[r] = store_n[slot];
    replay_lots[r] = store_lots[slot];
    replay_next_lots[r] = store_next_lots[slot];
    replay_action[r] = store_action[slot];
    replay_reward[r] = store_return[slot];
    replay_discount[r] = store_discount[slot];
    replay_terminal[r] = store_terminal[slot];
}

// rl_per_gather: the encodings of a batch.
// launch: threads R*8, block 64
// COPY_LANES threads a sample. store_h, store_next_h [C,128]; replay_h, replay_next_h [R,128].
extern "C" __global__ void rl_per_gather(const unsigned int* sample_slot, const float* store_h,
                                         const float* store_next_h, float* replay_h, float* replay_next_h, int R) {
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    int r = thread / COPY_LANES, lane = thread % COPY_LANES;
    if (r >= R) return;
    long long from = (long long)sample_slot[r] * HIDDEN_DIM, to = (long long)r * HIDDEN_DIM;
    copy_encoding(replay_h + to, store_h + from, lane);
    copy_encoding(replay_next_h + to, store_next_h + from, lane);
}

// rl_per_weights: importance weights, at most 1.
// launch: blocks 1, block 32 if R <= 512 else 256
// One block strides over the batch. sample_priority [R] > 0; is_weight [R]. Slot read: PER_BETA.
extern "C" __global__ void rl_per_weights(const float* sample_priority, const float* isv, float* is_weight, int R) {
    __shared__ float scratch[32];
    float least = MATH_FLOAT_MAX, beta = isv[ISV_PER_BETA];
    for (int r = (int)threadIdx.x; r < R; r += (int)blockDim.x) least = min_keep_nan(least, sample_priority[r]);
    least = block_min(least, scratch);
    for (int r = (int)threadIdx.x; r < R; r += (int)blockDim.x) is_weight[r] = powf(least / sample_priority[r], beta);
}
