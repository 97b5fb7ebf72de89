// What the path targets of a stored moment are made of (path_targets.cu says what they are).
#pragma once
#include "env/book.cuh"
#include "env/targets.cuh"

#define PATH_LOTS_MAX 16  // largest order: from one lot limit (at most 8) to the other

// The price path behind a moment: sums over k of gamma^k Delta_k, in ticks, and the powers of gamma that go with them.
struct PricePath {
    float weight, sum;                      // gamma^k and the sum over the steps taken so far
    float until_fill, cost_weight;          // the sum when the order fills, and gamma^max(latency - 1, 0)
    float until_end, discount;              // the sum behind n steps, and gamma^n
};

static __device__ inline PricePath path_start() { return PricePath{1.0f, 0.0f, 0.0f, 1.0f, 0.0f, 1.0f}; }

// Step k of the path, whose mid change is delta.
static __device__ inline void path_step(PricePath* path, int k, float delta, float gamma, int latency, int n) {
    path->sum = fmaf(path->weight, delta, path->sum);
    if (k + 1 == latency) {
        path->until_fill = path->sum;
        path->cost_weight = path->weight;
    }
    path->weight *= gamma;
    if (k + 1 == n) {
        path->until_end = path->sum;
        path->discount = path->weight;
    }
}

// Largest order that a class and an action can ask for.
static __device__ inline int path_most_lots(const float* isv, int lot_limit) {
    const int small = action_size(ACTION_LONG_SMALL, isv, 0.0f), large = action_size(ACTION_LONG_LARGE, isv, 0.0f);
    const int most = lot_limit + (small > large ? small : large);
    return most < 2 * lot_limit ? most : 2 * lot_limit;
}

// Cost of q lots on a side (+1 bought, -1 sold) in a book, USD with fees times factor. Lots beyond the displayed depth
// cost the worst displayed price, as at a forced close: the target counts the whole order as filled.
static __device__ inline float path_cost(const float* bid_px, const float* bid_sz, const float* ask_px,
                                         const float* ask_sz, long long book, long long mid_twice, int side, int q,
                                         float factor, float tick_value_usd, float fee_usd) {
    const BookWalk walk = walk_order(bid_px, bid_sz, ask_px, ask_sz, book, side * q, true);
    const long long half_ticks = walk_cost_half_ticks(walk.price_lots, q, side, mid_twice);
    return factor * walk_cost_usd(half_ticks, q, tick_value_usd, fee_usd);
}

// What p lots until the fill and `to` lots behind it earn; before, after: scaled reward a lot of either stretch.
static __device__ inline float path_gain(int p, int to, float before, float after) {
    return fmaf((float)to, after, (float)p * before);
}
