// The fill simulator: market orders into the replayed book, `latency` snapshots after the decision.
#include "env/fill.cuh"

// lobsim_fill: walks the opposite side of the book level by level.
// What the levels cannot fill is not filled (counted), but for the forced close of an episode's last step, whose rest
// trades at the worst displayed level (also counted).
// One thread a row. Reads the book columns [N_SNAP, N_LEVELS], cursor, episode_end, position_lots [B], market_target.
// Writes, slice t: position_before (lots), fill_lots (signed), fill_price_lots (sum of price x lots, ticks),
// fill_close_price_lots (the part of it that reduces the position: the first lots of the walk), fill_vwap (ticks, 0
// without a fill), fill_cost_usd (against the mid of the same book, fees included), unfilled_lots.
// No market impact: the next step's book is as recorded. At most one fill a row and snapshot.
// launch: threads B, block 64
// updates: pending_target, pending_steps
extern "C" __global__ void lobsim_fill(
    const int* cursor, const int* episode_end, const float* bid_px, const float* bid_sz, const float* ask_px,
    const float* ask_sz, const int* position_lots, const int* market_target, int* pending_target, int* pending_steps,
    int* position_before, int* fill_lots, long long* fill_price_lots, long long* fill_close_price_lots,
    float* fill_vwap, float* fill_cost_usd, int* unfilled_lots, int latency, float tick_value_usd, float fee_usd, int t,
    int B) {
    int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= B) return;
    long long at = (long long)t * B + b, decision = (long long)cursor[b] + t;
    position_before[at] = position_lots[b];
    Fill fill = lobsim_fill_row(bid_px, bid_sz, ask_px, ask_sz, decision, decision + 1 >= episode_end[b],
                                position_lots[b], market_target[at], pending_target + b, pending_steps + b, latency,
                                tick_value_usd, fee_usd);
    fill_lots[at] = fill.lots;
    fill_price_lots[at] = fill.price_lots;
    fill_close_price_lots[at] = fill.close_price_lots;
    fill_vwap[at] = fill.vwap;
    fill_cost_usd[at] = fill.cost_usd;
    unfilled_lots[at] = fill.unfilled;
}
