// The encoder's input: 56 numbers for each snapshot of each row's window.
#include "market/features.cuh"

// snap_feature_assemble_batched: gathers each row's window of snapshots and computes their features.
// launch: threads W*B, block 32
//
// x[w, b, :] describes snapshot s = cursor[b] - (K - 1) + offset + w. With W = K + T and offset 0 one call serves the
// T steps of an iteration and the state behind them: step t's window is x[t .. t + K - 1] and x[T ..] the bootstrap's.
// With W = K it is, for T = 1, gpu_gather_current (offset 0) or gpu_gather_next (offset 1).
//
// Columns of x (F = market's 40 features; all prices in ticks; mid = (bid_px[0] + ask_px[0]) / 2):
//    0..9   0.25 ln(1 + bid_sz[l])             10..19  0.25 ln(1 + ask_sz[l])
//   20      spread = ask_px[0] - bid_px[0]
//   21      2 (microprice - mid), microprice = (bid_px[0] ask_sz[0] + ask_px[0] bid_sz[0]) / (bid_sz[0] + ask_sz[0]);
//           computed as spread x imbalance at depth 1, which is the same
//   22..25  imbalance (B - A) / (B + A) of the lots in the first 1, 3, 5, 10 levels; 0 where B + A = 0
//   26      mid - prev_mid
//   27      0.5 sign(v) ln(1 + |v|), v = trade_signed_vol      28  ln(1 + trade_count)
//   29      0.1 ln(1 + elapsed us), elapsed = ts_ns - prev_ts_ns, 0 where time stands or runs back
//   30, 31  bid, ask slope: 3 (ln(1 + lots of all levels) - ln(1 + sz[0])) / |px[9] - px[0]|, the growth of the log of
//           the depth by tick; 0 where one level is present
//   32, 33  bid, ask mean gap: |px[9] - px[0]| / (present levels - 1); 0 where one level is present
//   34..39  regime: volatility over 10 s and 600 s [ticks/sqrt s], ln of their ratio, 0.5 ln(1 + trades/s),
//           mean spread [ticks], session progress 0..1
//   40..43  0 (the place of the trade context in an encoder that sees it)
//   44..55  multires of snapshot s (multires.cu)
// Every value is clamped to [-16, 16]; NaN passes.
// Thread (w, b), b fastest, owns the 56 values of one snapshot.
// in:  the data columns [N_SNAP, ...] (buffers/data.py), multires [N_SNAP, MULTIRES_DIM], cursor [B]
// out: x [W, B, ENCODER_INPUT_DIM]
// edge: a snapshot outside the data set, which no legal cursor asks for, gives NaN, so that the fault is counted.
extern "C" __global__ void snap_feature_assemble_batched(
    const float* __restrict__ bid_px, const float* __restrict__ bid_sz, const float* __restrict__ ask_px,
    const float* __restrict__ ask_sz, const float* __restrict__ prev_mid, const float* __restrict__ trade_signed_vol,
    const unsigned int* __restrict__ trade_count, const unsigned long long* __restrict__ ts_ns,
    const unsigned long long* __restrict__ prev_ts_ns, const float* __restrict__ regime,
    const float* __restrict__ multires, const int* __restrict__ cursor, float* __restrict__ x, int offset, int K, int W,
    int B, int N_SNAP) {
    long long item = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (item >= (long long)W * B) return;
    int w = (int)(item / B), b = (int)(item - (long long)w * B);
    long long s = (long long)cursor[b] - (K - 1) + offset + w;
    snap_feature_assemble_batched_item(bid_px, bid_sz, ask_px, ask_sz, prev_mid, trade_signed_vol, trade_count, ts_ns,
                                       prev_ts_ns, regime, multires, s, N_SNAP, x + item * ENCODER_INPUT_DIM);
}
