// The book: mids, the walk of an order through the displayed levels, and its cost. THE home of fill prices: the fill
// simulator and the path targets of the replay call the same functions.
//
// Prices are float32 whole ticks (exact to 2^24), so every sum here is an integer: price x lots in long long, mids
// doubled ("half ticks") so that they are whole. One side of one snapshot is N_LEVELS adjacent prices and sizes.
#pragma once
#include "generated/structure.cuh"

#define BOOK_LOTS_MAX 1.0e9f  // lots; a larger displayed size counts as this (int range)

struct BookWalk {
    int filled;            // lots that the displayed levels cover, <= lots asked
    long long price_lots;  // sum of price x lots, ticks; with force it covers all the lots asked
};

// Best prices of a snapshot, ticks.
struct BestPrices {
    float bid, ask;
};

static __device__ inline BestPrices book_best(const float* bid_px, const float* ask_px, long long snapshot) {
    return {bid_px[snapshot * N_LEVELS], ask_px[snapshot * N_LEVELS]};
}

// Twice the mid, in ticks: whole.
static __device__ inline long long best_mid_twice(BestPrices best) { return (long long)best.bid + (long long)best.ask; }

static __device__ inline float best_mid(BestPrices best) { return 0.5f * (best.bid + best.ask); }

static __device__ inline long long book_mid_twice(const float* bid_px, const float* ask_px, long long snapshot) {
    return best_mid_twice(book_best(bid_px, ask_px, snapshot));
}

static __device__ inline float book_mid(const float* bid_px, const float* ask_px, long long snapshot) {
    return best_mid(book_best(bid_px, ask_px, snapshot));
}

// Takes `lots` >= 0 from one side, best level first, at most what each level displays. An absent level (size below one
// lot, or NaN) is skipped. force: lots beyond the displayed depth trade at the worst displayed price (px[0] on an
// empty side); they are in price_lots but not in filled.
static __device__ inline BookWalk walk_book(const float* px, const float* sz, int lots, bool force) {
    BookWalk walk = {0, 0};
    float worst = px[0];
    for (int level = 0; level < N_LEVELS; ++level) {
        float size = sz[level];
        if (!(size >= 1.0f)) continue;
        worst = px[level];
        int displayed = (int)(size < BOOK_LOTS_MAX ? size : BOOK_LOTS_MAX);
        int take = lots - walk.filled < displayed ? lots - walk.filled : displayed;
        walk.price_lots += (long long)px[level] * take;
        walk.filled += take;
    }
    if (force) walk.price_lots += (long long)worst * (lots - walk.filled);
    return walk;
}

// The walk of a signed order (buys take the ask side, sells the bid side) in the book of a snapshot.
static __device__ inline BookWalk walk_order(const float* bid_px, const float* bid_sz, const float* ask_px,
                                             const float* ask_sz, long long snapshot, int signed_lots, bool force) {
    const bool buys = signed_lots >= 0;
    long long first = snapshot * N_LEVELS;
    return walk_book((buys ? ask_px : bid_px) + first, (buys ? ask_sz : bid_sz) + first,
                     buys ? signed_lots : -signed_lots, force);
}

// Cost against the mid in half ticks x lots, >= 0 in an uncrossed book, fees not included.
// side: +1 bought, -1 sold; lots: those that price_lots covers.
static __device__ inline long long walk_cost_half_ticks(long long price_lots, int lots, int side, long long mid_twice) {
    return side * (2 * price_lots - mid_twice * lots);
}

// The same in USD with fees.
static __device__ inline float walk_cost_usd(long long cost_half_ticks, int lots, float tick_value_usd, float fee_usd) {
    return 0.5f * (float)cost_half_ticks * tick_value_usd + (float)lots * fee_usd;
}

// Snapshot whose book the fill of a step uses: the next one, or the decision's own with latency 0. The forced close of
// an episode's last step always uses the next (last) book.
static __device__ inline long long fill_snapshot(long long decision, int latency, bool last_step) {
    return latency == 0 && !last_step ? decision : decision + 1;
}
