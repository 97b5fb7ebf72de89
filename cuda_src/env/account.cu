// The account of a row after a fill: cash, fees, realised PnL, flags, trade statistics.
#include "env/account.cuh"

// extract_realized_pnl_delta: applies the fill of slice t to the account.
// Integer books: cash_ticks = - sum of price x signed lots, fee_sides = lots filled. entry_basis = signed lots x
// average entry price (double: the average-price method needs fractions). Then
//   realised_usd = (cash + basis) x tick value - fees,   equity_usd = (cash + position x mid) x tick value - fees,
// both from the totals, so neither drifts. pnl_step_usd = change of equity from the mid at cursor + t to the mid at
// cursor + t + 1, from integers: sum over steps = change of equity exactly. Fees are realised at the fill; a flip's
// fees are split by lots. closed: zero reached or sign changed; terminal = closed in realised mode, else 0; truncated:
// last step of the episode. Trade numbers (PnL with all fees and partial closes, steps, largest |lots|, best mid
// excursion from the mid of the opening's book x largest |lots|) are written at a close, 0 otherwise.
// One thread a row. Trade age: 0 at the end of the step that opened, so steps = step of the close - step of the open.
// launch: threads B, block 64
// updates: position_lots, entry_basis, cash_ticks, fee_sides, trade_pnl_usd, trade_open_step, trade_lots_max
// updates: trade_best_mid, trade_entry_mid, steps_since_close
extern "C" __global__ void extract_realized_pnl_delta(
    const int* cursor, const int* episode_end, const float* bid_px, const float* ask_px, const int* fill_lots,
    const long long* fill_price_lots, const long long* fill_close_price_lots, int* position_lots, double* entry_basis,
    long long* cash_ticks, long long* fee_sides, float* trade_pnl_usd, int* trade_open_step, int* trade_lots_max,
    float* trade_best_mid, float* trade_entry_mid, int* steps_since_close, float* entry_vwap, float* realised_usd,
    float* fees_usd, float* equity_usd, int* position_after, float* realised_delta_usd, float* pnl_step_usd,
    unsigned char* closed, unsigned char* terminal, unsigned char* truncated, float* closed_trade_pnl_usd,
    int* closed_trade_steps, int* closed_trade_lots, float* closed_excursion_usd, int latency, float tick_value_usd,
    float fee_usd, int realised_reward, int t, int B) {
    int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= B) return;
    long long at = (long long)t * B + b, decision = (long long)cursor[b] + t;
    long long traded = fill_snapshot(decision, latency, decision + 1 >= episode_end[b]);
    Fill fill = {fill_lots[at], fill_price_lots[at], fill_close_price_lots[at], 0.0f, 0.0f, 0};
    Account account = {position_lots[b], entry_basis[b], cash_ticks[b], fee_sides[b], trade_pnl_usd[b],
                       trade_open_step[b], trade_lots_max[b], trade_best_mid[b], trade_entry_mid[b],
                       steps_since_close[b]};
    BestPrices next = book_best(bid_px, ask_px, decision + 1);
    AccountStep step = extract_realized_pnl_delta_row(fill, book_best(bid_px, ask_px, decision), next,
                                                      book_best(bid_px, ask_px, traded), tick_value_usd, fee_usd,
                                                      &account);
    AccountTotals totals = account_totals(account, next, tick_value_usd, fee_usd);
    position_lots[b] = account.position;
    entry_basis[b] = account.entry_basis;
    cash_ticks[b] = account.cash_ticks;
    fee_sides[b] = account.fee_sides;
    trade_pnl_usd[b] = account.trade_pnl_usd;
    trade_open_step[b] = account.trade_open_step;
    trade_lots_max[b] = account.trade_lots_max;
    trade_best_mid[b] = account.trade_best_mid;
    trade_entry_mid[b] = account.trade_entry_mid;
    steps_since_close[b] = account.steps_since_close;
    entry_vwap[b] = totals.entry_vwap;
    realised_usd[b] = totals.realised_usd;
    fees_usd[b] = totals.fees_usd;
    equity_usd[b] = totals.equity_usd;
    position_after[at] = account.position;
    realised_delta_usd[at] = step.realised_delta_usd;
    pnl_step_usd[at] = step.pnl_step_usd;
    closed[at] = step.closed;
    terminal[at] = step.closed && realised_reward != 0;
    truncated[at] = decision + 1 == episode_end[b];
    closed_trade_pnl_usd[at] = step.closed_trade_pnl_usd;
    closed_trade_steps[at] = step.closed_trade_steps;
    closed_trade_lots[at] = step.closed_trade_lots;
    closed_excursion_usd[at] = step.closed_excursion_usd;
}
