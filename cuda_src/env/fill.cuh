// Rows of the kernel in fill.cu.
// See actions.cuh for what a row function is.
#pragma once
#include "env/book.cuh"

// What a step's order got. price_lots: sum of price x lots, ticks; close_price_lots: the part that reduces the position.
struct Fill {
    int lots;  // signed
    long long price_lots, close_price_lots;
    float vwap, cost_usd;
    int unfilled;
};

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

// lobsim_fill. decision: snapshot of the step.
static __device__ inline Fill lobsim_fill_row(const float* bid_px, const float* bid_sz, const float* ask_px,
                                              const float* ask_sz, long long decision, bool last_step, int position,
                                              int target, int* pending_target, int* pending_steps, int latency,
                                              float tick_value_usd, float fee_usd) {
    Fill fill = {0, 0, 0, 0.0f, 0.0f, 0};
    int order = order_due(position, target, latency, last_step, pending_target, pending_steps);
    if (order == 0) return fill;
    long long snapshot = fill_snapshot(decision, latency, last_step);
    int side = order > 0 ? 1 : -1, wanted = order * side;
    BookWalk walk = walk_order(bid_px, bid_sz, ask_px, ask_sz, snapshot, order, last_step);
    int filled = last_step ? wanted : walk.filled;
    int held = position < 0 ? -position : position;
    fill.close_price_lots = position * side < 0 ? walk.price_lots : 0;
    if (position * side < 0 && held < wanted) {  // a reversal: the first `held` lots of the walk close
        fill.close_price_lots = walk_order(bid_px, bid_sz, ask_px, ask_sz, snapshot, side * held, false).price_lots;
    }
    fill.lots = side * filled;
    fill.price_lots = walk.price_lots;
    fill.unfilled = wanted - walk.filled;
    if (filled == 0) return fill;
    long long cost =
        walk_cost_half_ticks(walk.price_lots, filled, side, book_mid_twice(bid_px, ask_px, snapshot));
    fill.vwap = (float)((double)walk.price_lots / filled);
    fill.cost_usd = walk_cost_usd(cost, filled, tick_value_usd, fee_usd);
    return fill;
}
