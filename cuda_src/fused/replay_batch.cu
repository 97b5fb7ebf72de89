// A replay batch in one kernel: draws, gathers, and where the critic learns from the price path its targets.
//
// A warp owns a sample. It walks the tree five levels at a time (62 nodes in two loads a lane), then its lanes copy the
// encodings, read the mids, walk the book for one order size and side each, and form the pairs. Numbers are those of
// rl_per_sample, rl_per_gather and rl_path_targets, bit for bit.
#include "include/rng.cuh"
#include "replay/path_targets.cuh"
#include "replay/replay.cuh"
#include "replay/tree.cuh"

#define BATCH_WARPS 4  // samples of a block
#define FULL_WARP 0xffffffffu

// What rl_per_sample and rl_per_gather read of the store and write of the batch.
struct ReplayStore {
    const float* per_tree;
    const float *h, *next_h;
    const unsigned int* index;
    const unsigned short* n;
    const signed char *lots, *next_lots, *action;
    const float *value, *discount;
    const unsigned char* terminal;
};
struct ReplayBatch {
    unsigned int *rng, *slot;
    float* priority;
    float *h, *next_h;
    unsigned int* index;
    unsigned short* n;
    signed char *lots, *next_lots, *action;
    float *value, *discount;
    unsigned char* terminal;
};
// Both from the parameters of a kernel.
#define REPLAY_STORE                                                                                                 \
    {per_tree, store_h, store_next_h, store_index, store_n, store_lots, store_next_lots, store_action, store_return, \
     store_discount, store_terminal}
#define REPLAY_BATCH                                                                                               \
    {rng_replay, sample_slot, sample_priority, replay_h, replay_next_h, replay_index, replay_n, replay_lots,       \
     replay_next_lots, replay_action, replay_reward, replay_discount, replay_terminal}

// Number of the node that is the j-th of the heap below `node` (itself the first), depth levels down.
static __device__ inline int heap_node(int node, int j, int depth) { return (node << depth) + j - (1 << depth); }

// tree_find by a warp: every lane holds two nodes of the next five levels, all lanes take the same way.
static __device__ inline unsigned int tree_find_by_warp(const float* per_tree, double u, int C, int lane) {
    int node = 1;
    while (node < C) {
        int levels = 0;
        while (levels < TREE_BAND && node << levels < C) ++levels;
        const int depth = lane < 2 ? 0 : 31 - __clz(lane);
        const float upper = lane >= 2 && depth <= levels ? per_tree[heap_node(node, lane, depth)] : 0.0f;
        const float lower = levels == TREE_BAND ? per_tree[heap_node(node, TREE_GROUP + lane, TREE_BAND)] : 0.0f;
        int at = 1;
        for (int level = 0; level < levels; ++level) {
            const int child = 2 * at;
            const float held = child < TREE_GROUP ? upper : lower;
            const float left = __shfl_sync(FULL_WARP, held, child & 31);
            const float right = __shfl_sync(FULL_WARP, held, (child + 1) & 31);
            const bool go_left = tree_goes_left(left, right, u);
            if (!go_left) u -= (double)left;
            at = child + (go_left ? 0 : 1);
        }
        node = heap_node(node, at, levels);
    }
    return (unsigned int)(node - C);
}

// Draws sample r and gathers what is stored of it; returns its slot.
static __device__ inline unsigned int draw_and_gather(const ReplayStore& store, const ReplayBatch& batch, int r, int C,
                                                      int R, int lane) {
    unsigned int state = batch.rng[r];
    const double u = tree_stratum(xorshift32(&state), r, R, store.per_tree[1]);
    const unsigned int slot = tree_find_by_warp(store.per_tree, u, C, lane);  // every lane has read its state by now
    const long long from = (long long)slot * HIDDEN_DIM, to = (long long)r * HIDDEN_DIM;
    for (int k = lane; k < ENCODING_VECTORS; k += 32) {
        ((EncodingVector*)(batch.h + to))[k] = ((const EncodingVector*)(store.h + from))[k];
        ((EncodingVector*)(batch.next_h + to))[k] = ((const EncodingVector*)(store.next_h + from))[k];
    }
    if (lane != 0) return slot;
    batch.rng[r] = state;
    batch.slot[r] = slot;
    batch.priority[r] = store.per_tree[C + slot];
    batch.index[r] = store.index[slot];
    batch.n[r] = store.n[slot];
    batch.lots[r] = store.lots[slot];
    batch.next_lots[r] = store.next_lots[slot];
    batch.action[r] = store.action[slot];
    batch.value[r] = store.value[slot];
    batch.discount[r] = store.discount[slot];
    batch.terminal[r] = store.terminal[slot];
    return slot;
}

// rl_replay_batch: draws a batch and gathers it.
// launch: blocks (R+3)/4, block 128
// updates: rng_replay
// fuses: rl_per_sample, rl_per_gather
// A warp a sample. Arrays are those of rl_per_sample and rl_per_gather.
extern "C" __global__ void rl_replay_batch(
    const float* per_tree, const float* store_h, const float* store_next_h, const unsigned int* store_index,
    const unsigned short* store_n, const signed char* store_lots, const signed char* store_next_lots,
    const signed char* store_action, const float* store_return, const float* store_discount,
    const unsigned char* store_terminal, unsigned int* rng_replay, unsigned int* sample_slot, float* sample_priority,
    float* replay_h, float* replay_next_h, unsigned int* replay_index, unsigned short* replay_n,
    signed char* replay_lots, signed char* replay_next_lots, signed char* replay_action, float* replay_reward,
    float* replay_discount, unsigned char* replay_terminal, int C, int R) {
    const int r = blockIdx.x * BATCH_WARPS + threadIdx.x / 32;
    if (r >= R) return;
    const ReplayStore store = REPLAY_STORE;
    const ReplayBatch batch = REPLAY_BATCH;
    draw_and_gather(store, batch, r, C, R, threadIdx.x % 32);
}

// rl_replay_path_batch: draws a batch, gathers it and forms the path targets of every class and action.
// launch: blocks (R+3)/4, block 128
// chain: 8 us
// updates: rng_replay
// fuses: rl_per_sample, rl_per_gather, rl_path_targets
// A warp a sample; a lane an order size and side, the largest order PATH_LOTS_MAX = 16 lots. Arrays are
// those of rl_per_sample, rl_per_gather and rl_path_targets. Slots read: GAMMA, REWARD_SCALE, SIZE_SMALL, SIZE_LARGE.
extern "C" __global__ void rl_replay_path_batch(
    const float* per_tree, const float* store_h, const float* store_next_h, const unsigned int* store_index,
    const unsigned short* store_n, const signed char* store_lots, const signed char* store_next_lots,
    const signed char* store_action, const float* store_return, const float* store_discount,
    const unsigned char* store_terminal, const float* bid_px, const float* bid_sz, const float* ask_px,
    const float* ask_sz, const signed char* next_class, const float* isv, unsigned int* rng_replay,
    unsigned int* sample_slot, float* sample_priority, float* replay_h, float* replay_next_h,
    unsigned int* replay_index, unsigned short* replay_n, signed char* replay_lots, signed char* replay_next_lots,
    signed char* replay_action, float* replay_reward, float* replay_discount, unsigned char* replay_terminal,
    float* path_return, float* path_discount, int latency, float tick_value_usd, float fee_usd, int C, int P, int R) {
    __shared__ float costs[BATCH_WARPS][2 * PATH_LOTS_MAX + 1];  // by signed lots + PATH_LOTS_MAX
    const int lane = threadIdx.x % 32, r = blockIdx.x * BATCH_WARPS + threadIdx.x / 32;
    if (r >= R) return;
    const ReplayStore store = REPLAY_STORE;
    const ReplayBatch batch = REPLAY_BATCH;
    const unsigned int slot = draw_and_gather(store, batch, r, C, R, lane);

    const long long index = store_index[slot], book = index + latency;
    const int n = store_n[slot], lot_limit = (P - 1) / 2, steps = n > latency ? n : latency;
    const float gamma = isv[ISV_GAMMA], scale = isv[ISV_REWARD_SCALE];
    PricePath path = path_start();
    for (int first = 0; first < steps; first += 32) {
        const long long at = index + first + lane;
        float change = 0.0f;
        if (first + lane < steps) change = book_mid(bid_px, ask_px, at + 1) - book_mid(bid_px, ask_px, at);
        const int here = steps - first < 32 ? steps - first : 32;
        for (int k = 0; k < here; ++k) path_step(&path, first + k, __shfl_sync(FULL_WARP, change, k), gamma, latency, n);
    }

    float* cost = costs[threadIdx.x / 32];
    const int q = lane / 2 + 1, side = lane % 2 ? 1 : -1;
    if (q <= path_most_lots(isv, lot_limit)) {
        cost[PATH_LOTS_MAX + side * q] =
            path_cost(bid_px, bid_sz, ask_px, ask_sz, book, book_mid_twice(bid_px, ask_px, book), side, q,
                      scale * path.cost_weight, tick_value_usd, fee_usd);
    }
    if (lane == 0) {
        cost[PATH_LOTS_MAX] = 0.0f;
        path_discount[r] = path.discount;
    }
    __syncwarp();
    const float before = scale * tick_value_usd * path.until_fill;
    const float after = scale * tick_value_usd * (path.until_end - path.until_fill);
    for (int pair = lane; pair < P * N_ACTIONS; pair += 32) {
        const int p = pair / N_ACTIONS, to = next_class[pair];
        const float gain = path_gain(p - lot_limit, to - lot_limit, before, after);
        path_return[(long long)r * P * N_ACTIONS + pair] = gain - cost[PATH_LOTS_MAX + to - p];
    }
}
