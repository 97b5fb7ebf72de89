// Path targets: the n-step result of every position class and every action from one stored moment, from the data alone.
//
// Replayed prices do not react to our orders, so with latency l, Delta_k the mid change of step k and p' the position
// after action a from position p:
//   R(p, a) = REWARD_SCALE [ tick value (p S_l + p' (S_n - S_l)) - gamma^max(l-1,0) cost_{t+l}(p' - p) ]
//   S_m = sum over k < m of gamma^k Delta_k;  cost: the fill simulator's walk of the book of snapshot t + l, with fees
// A window shorter than the latency (n < l, a flushed one) is the same formula: the bootstrap at n counts p' from n on,
// S_n - S_l takes back what p' does not earn before the fill. A position's order never crosses a session
// break: an episode keeps `latency` snapshots of its session behind its end.
#include "replay/path_targets.cuh"
#include "replay/replay.cuh"

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
// index, replay_n [R]; book columns [N_SNAP, N_LEVELS]; next_class [P,11]. gamma is the current one. Slots read: GAMMA,
// REWARD_SCALE, SIZE_SMALL, SIZE_LARGE.
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

    PricePath path = path_start();
    float mid = book_mid(bid_px, ask_px, index);
    for (int k = 0; k < steps; ++k) {
        float next = book_mid(bid_px, ask_px, index + k + 1);
        path_step(&path, k, next - mid, gamma, latency, n);
        mid = next;
    }

    long long book = index + latency, mid_twice = book_mid_twice(bid_px, ask_px, book);
    int most = path_most_lots(isv, lot_limit);
    float cost[2 * PATH_LOTS_MAX + 1];  // by signed lots + PATH_LOTS_MAX
    cost[PATH_LOTS_MAX] = 0.0f;
    for (int q = 1; q <= most; ++q) {
        for (int side = -1; side <= 1; side += 2) {
            cost[PATH_LOTS_MAX + side * q] = path_cost(bid_px, bid_sz, ask_px, ask_sz, book, mid_twice, side, q,
                                                       scale * path.cost_weight, tick_value_usd, fee_usd);
        }
    }

    float before = scale * tick_value_usd * path.until_fill;
    float after = scale * tick_value_usd * (path.until_end - path.until_fill);
    for (int p = 0; p < P; ++p) {
        for (int a = 0; a < N_ACTIONS; ++a) {
            int to = next_class[p * N_ACTIONS + a];
            float gain = path_gain(p - lot_limit, to - lot_limit, before, after);
            path_return[((long long)r * P + p) * N_ACTIONS + a] = gain - cost[PATH_LOTS_MAX + to - p];
        }
    }
    path_discount[r] = path.discount;
}
