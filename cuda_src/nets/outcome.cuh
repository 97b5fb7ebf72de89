// The outcome of a closed trade: loss, scratch or win.
#pragma once

#define OUTCOME_LOSS 0
#define OUTCOME_SCRATCH 1
#define OUTCOME_WIN 2
#define N_OUTCOMES 3
#define OUTCOME_ACC_RATE 0.05f  // EMA rate per iteration with a close

// Label of a row, -1 = no close. Scratch: |PnL| below one tick of the trade's largest position (tick_value_usd x lots, at
// least one lot). A PnL that is not a number gives no label.
static __device__ inline int outcome_label(unsigned char closed, float pnl_usd, int lots, float tick_value_usd) {
    const float tick_usd = tick_value_usd * (lots > 1 ? lots : 1);
    const int kind = fabsf(pnl_usd) < tick_usd ? OUTCOME_SCRATCH : (pnl_usd > 0.0f ? OUTCOME_WIN : OUTCOME_LOSS);
    return closed && pnl_usd == pnl_usd ? kind : -1;
}
