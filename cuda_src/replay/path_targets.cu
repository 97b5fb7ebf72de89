// Path targets: the n-step result of every position class and every action from one stored moment, from the data alone.
//
// Replayed prices do not react to our orders, so with latency l, Delta_k the mid change of step k and p' the position
// after action a from position p:
//   R(p, a) = REWARD_SCALE [ tick value (p S_l + p' (S_n - S_l)) - gamma^max(l-1,0) cost_{t+l}(p' - p) ]
//   S_m = sum over k < m of gamma^k Delta_k;  cost: the fill simulator's walk of the book of snapshot t + l, with fees
// A window shorter than the latency (n < l, a flushed one) is the same formula: the bootstrap at n counts p' from n on,
// S_n - S_l takes back what p' does not earn before the fill. A position's order never crosses a session
// break: an episode keeps `latency` snapshots of its session behind its end.
#include "env/book.cuh"
#include "env/targets.cuh"
#include "replay/replay.cuh"

#define PATH_LOTS_MAX 16  // largest order: from one lot limit (at most 8) to the other

// Least units that hold `lots` lots, opened in orders of at most `largest` lots.
static __device__ inline int units_least(int lots, int largest) {
    int size = lots < 0 ? -lots : lots;
    return (size + largest - 1) / largest;
}

// rl_path_next_class: the class after each action from each class.
// launch: threads P*11, block 64
// One thread a (class, action). next_class [P,11]. Gates, stops and minimum hold do not act; trail actions are Hold.
// A class does not say how many units hold its lots: an add is possible where the fewest that can hold them leave room.
// Slots read: SIZE_SMALL, SIZE_LARGE, PYRAMID_MAX_UNITS, ANTI_MARTINGALE_GAIN (must be 0: the size of a neutral row).
extern "C" __global__ void rl_path_next_class(const float* isv, signed char* next_class, int P) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= P * N_ACTIONS) return;
    int lot_limit = (P - 1) / 2, lots = i / N_ACTIONS - lot_limit, action = i % N_ACTIONS;
    int small = action_size(ACTION_LONG_SMALL, isv, 0.0f), large = action_size(ACTION_LONG_LARGE, isv, 0.0f);
    bool may_add = (float)units_least(lots, small > large ? small : large) < isv[ISV_PYRAMID_MAX_UNITS];
    int target = action_target(action, lots, action_size(action, isv, 0.0f), lot_limit, may_add, half_of(lots));
    next_class[i] = (signed char)(target + lot_limit);
}

// rl_path_targets: path_return [R, P*11] = R(p, a) of every sample, path_discount [R] = gamma^n.
// launch: threads R, block 32
// One thread a sample: 2 walks an order size (buy and sell), n mids, then P*11 multiply-adds. replay_index [R] data
// index, replay_n [R]; book columns [N_SNAP, N_LEVELS]; next_class [P,11]. Lots beyond the displayed depth cost the
// worst displayed price, as at a forced close: the target counts the whole order as filled, so it must pay for it.
// gamma is the current one. Slots read: GAMMA, REWARD_SCALE, SIZE_SMALL, SIZE_LARGE.
extern "C" __global__ void rl_path_targets(const float* bid_px, const float* bid_sz, const float* ask_px,
                                           const float* ask_sz, const unsigned int* replay_index,
                                           const unsigned short* replay_n, const signed char* next_class,
                                           const float* isv, float* path_return, float* path_discount, int latency,
                                           float tick_value_usd, float fee_usd, int P, int R) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= R) return;
    long long index = replay_index[r];
    int n = replay_n[r], lot_limit = (P - 1) / 2, steps = n > latency ? n : latency;
    float gamma = isv[ISV_GAMMA], scale = isv[ISV_REWARD_SCALE];

    float weight = 1.0f, sum = 0.0f, until_fill = 0.0f, until_end = 0.0f;  // weight = gamma^k; sums in ticks
    float mid = book_mid(bid_px, ask_px, index), discount = 1.0f, cost_weight = 1.0f;
    for (int k = 0; k < steps; ++k) {
        float next = book_mid(bid_px, ask_px, index + k + 1);
        sum = fmaf(weight, next - mid, sum);
        if (k + 1 == latency) {
            until_fill = sum;
            cost_weight = weight;
        }
        weight *= gamma;
        mid = next;
        if (k + 1 == n) {
            until_end = sum;
            discount = weight;
        }
    }

    long long book = index + latency, mid_twice = book_mid_twice(bid_px, ask_px, book);
    int small = action_size(ACTION_LONG_SMALL, isv, 0.0f), large = action_size(ACTION_LONG_LARGE, isv, 0.0f);
    int most = lot_limit + (small > large ? small : large);
    most = most < 2 * lot_limit ? most : 2 * lot_limit;
    float cost[2 * PATH_LOTS_MAX + 1];  // USD x discount x scale, by signed lots + PATH_LOTS_MAX
    cost[PATH_LOTS_MAX] = 0.0f;
    for (int q = 1; q <= most; ++q) {
        for (int side = -1; side <= 1; side += 2) {
            BookWalk walk = walk_order(bid_px, bid_sz, ask_px, ask_sz, book, side * q, true);
            long long half_ticks = walk_cost_half_ticks(walk.price_lots, q, side, mid_twice);
            float usd = walk_cost_usd(half_ticks, q, tick_value_usd, fee_usd);
            cost[PATH_LOTS_MAX + side * q] = scale * cost_weight * usd;
        }
    }

    float before = scale * tick_value_usd * until_fill, after = scale * tick_value_usd * (until_end - until_fill);
    for (int p = 0; p < P; ++p) {
        for (int a = 0; a < N_ACTIONS; ++a) {
            int to = next_class[p * N_ACTIONS + a];
            float gain = fmaf((float)(to - lot_limit), after, (float)(p - lot_limit) * before);
            path_return[((long long)r * P + p) * N_ACTIONS + a] = gain - cost[PATH_LOTS_MAX + to - p];
        }
    }
    path_discount[r] = discount;
}
