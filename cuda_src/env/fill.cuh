// Rows of the kernel in fill.cu.
// See actions.cuh for what a row function is.
#pragma once
#include "env/book.cuh"

// Order that reaches the book in this step, signed lots; advances the order under way.
// An order decided at step t with latency l >= 1 fills in the book of snapshot cursor + t + l, that is during step
// t + l - 1; with l = 0 in the decision's own book. The last step of an episode executes nothing but the close of the
// position: orders die there (an episode never crosses a session break, so they die at breaks too).
static __device__ inline int order_due(int position, int target, int latency, bool last_step, int* pending_target,
                                       int* pending_steps) {
    if (last_step) {
        *pending_steps = 0;
        return -position;
    }
    if (*pending_steps == 0 && target != position) {
        if (latency == 0) return target - position;
        *pending_steps = latency;
        *pending_target = target;
    }
    if (*pending_steps == 0) return 0;
    *pending_steps -= 1;
    return *pending_steps == 0 ? *pending_target - position : 0;
}

// lobsim_fill, row b.
static __device__ inline void lobsim_fill_row(
    const int* cursor, const int* episode_end, const float* bid_px, const float* bid_sz, const float* ask_px,
    const float* ask_sz, const int* position_lots, const int* market_target, int* pending_target, int* pending_steps,
    int* position_before, int* fill_lots, long long* fill_price_lots, long long* fill_close_price_lots,
    float* fill_vwap, float* fill_cost_usd, int* unfilled_lots, int latency, float tick_value_usd, float fee_usd, int t,
    int B, int b) {
    long long at = (long long)t * B + b, decision = (long long)cursor[b] + t;
    bool last_step = decision + 1 >= episode_end[b];
    int position = position_lots[b];
    int order = order_due(position, market_target[at], latency, last_step, pending_target + b, pending_steps + b);
    position_before[at] = position;

    long long snapshot = fill_snapshot(decision, latency, last_step);
    int side = order > 0 ? 1 : -1, wanted = order * side;
    BookWalk walk = walk_order(bid_px, bid_sz, ask_px, ask_sz, snapshot, order, last_step);
    int filled = last_step ? wanted : walk.filled;
    int open_before = position < 0 ? -position : position;
    int closing = position * side < 0 ? (filled < open_before ? filled : open_before) : 0;
    BookWalk close = walk_order(bid_px, bid_sz, ask_px, ask_sz, snapshot, side * closing, last_step);
    long long mid_twice = book_mid_twice(bid_px, ask_px, snapshot);
    long long cost = walk_cost_half_ticks(walk.price_lots, filled, side, mid_twice);

    fill_lots[at] = side * filled;
    fill_price_lots[at] = walk.price_lots;
    fill_close_price_lots[at] = close.price_lots;
    fill_vwap[at] = filled > 0 ? (float)((double)walk.price_lots / filled) : 0.0f;
    fill_cost_usd[at] = filled > 0 ? walk_cost_usd(cost, filled, tick_value_usd, fee_usd) : 0.0f;
    unfilled_lots[at] = wanted - walk.filled;
}
