// What the kernel in features.cu does, as a function that a fused kernel may call as well.
#pragma once
#include "generated/structure.cuh"
#include "include/math.cuh"

// Fixed scales, chosen so that an index future's book gives values of order 1. Constants, not fitted: no data leaks.
#define SIZE_SCALE 0.25f          // 1 / ln(lots): ln(1 + 50 lots) is about 4
#define MICROPRICE_SCALE 2.0f     // 1 / tick: half a tick at most where the spread is one tick
#define VOLUME_SCALE 0.5f         // 1 / ln(lots)
#define ELAPSED_SCALE 0.1f        // 1 / ln(us): 10 us give 0.24, 1 ms 0.69, 1 s 1.38
#define SLOPE_SCALE 3.0f          // ticks: depth grows by a factor of about e^0.3 a tick
#define TRADE_RATE_SCALE 0.5f     // 1 / ln(trades/s)
#define FEATURE_LIMIT 16.0f       // |feature| at most: a halt's 500-tick spread must not drown the encoder
#define NS_PER_US 1000.0f

// Index of each group of features in a snapshot's 40.
#define F_BID_SIZE 0
#define F_ASK_SIZE 10
#define F_SPREAD 20
#define F_MICROPRICE 21
#define F_IMBALANCE 22  // 4: depth 1, 3, 5, 10
#define F_MID_CHANGE 26
#define F_TRADE_VOLUME 27
#define F_TRADE_COUNT 28
#define F_ELAPSED 29
#define F_BID_SLOPE 30
#define F_ASK_SLOPE 31
#define F_BID_GAP 32
#define F_ASK_GAP 33
#define F_REGIME 34  // 6
#define MULTIRES_FIRST (FEATURE_DIM + CONTEXT_DIM)

static_assert(F_REGIME + N_REGIME == FEATURE_DIM && MULTIRES_FIRST + MULTIRES_DIM == ENCODER_INPUT_DIM, "feature map");

// ln(1 + v) for v >= 0. 1 + v is rounded first: an absolute error below 1e-7 in a feature of order 1, at a third of the
// time of log1pf on a CPU.
static __device__ inline float log_of_count(float v) { return logf(1.0f + v); }

// (bids - asks) / (bids + asks) in [-1, 1]; 0 where both are absent.
static __device__ inline float imbalance(float bids, float asks) {
    float sum = bids + asks;
    return sum > 0.0f ? (bids - asks) / sum : (sum == 0.0f ? 0.0f : sum);
}

// One side of the book: log sizes to out_size[N_LEVELS], slope and mean gap; cumulative[d] = lots in levels 0..d.
// Absent levels have size 0 and repeat the worst present price: they add nothing to depth or distance.
static __device__ inline void side_features(const float* px, const float* sz, float* out_size, float* slope, float* gap,
                                            float* cumulative) {
    float depth = 0.0f;
    int present = 0;
    for (int l = 0; l < N_LEVELS; ++l) {
        out_size[l] = SIZE_SCALE * log_of_count(sz[l]);
        depth += sz[l];
        cumulative[l] = depth;
        present += sz[l] > 0.0f ? 1 : 0;
    }
    float distance = fabsf(px[0] - px[N_LEVELS - 1]);
    *slope = distance == 0.0f ? 0.0f : SLOPE_SCALE * (log_of_count(depth) - log_of_count(sz[0])) / distance;
    *gap = present > 1 ? distance / (float)(present - 1) : 0.0f;
}

// snap_feature_assemble_batched, snapshot s: out [ENCODER_INPUT_DIM].
static __device__ inline void snap_feature_assemble_batched_item(
    const float* bid_px, const float* bid_sz, const float* ask_px, const float* ask_sz, const float* prev_mid,
    const float* trade_signed_vol, const unsigned int* trade_count, const unsigned long long* ts_ns,
    const unsigned long long* prev_ts_ns, const float* regime, const float* multires, long long s, int N_SNAP,
    float* out) {
    if (s < 0 || s >= N_SNAP) {
        for (int j = 0; j < ENCODER_INPUT_DIM; ++j) out[j] = nanf("");
        return;
    }
    const float *bp = bid_px + s * N_LEVELS, *bs = bid_sz + s * N_LEVELS;
    const float *ap = ask_px + s * N_LEVELS, *as = ask_sz + s * N_LEVELS;
    const float* state = regime + s * N_REGIME;
    float f[ENCODER_INPUT_DIM];
    float bids[N_LEVELS], asks[N_LEVELS];
    side_features(bp, bs, f + F_BID_SIZE, f + F_BID_SLOPE, f + F_BID_GAP, bids);
    side_features(ap, as, f + F_ASK_SIZE, f + F_ASK_SLOPE, f + F_ASK_GAP, asks);
    float spread = ap[0] - bp[0];
    f[F_IMBALANCE] = imbalance(bids[0], asks[0]);
    f[F_IMBALANCE + 1] = imbalance(bids[2], asks[2]);
    f[F_IMBALANCE + 2] = imbalance(bids[4], asks[4]);
    f[F_IMBALANCE + 3] = imbalance(bids[N_LEVELS - 1], asks[N_LEVELS - 1]);
    f[F_SPREAD] = spread;
    f[F_MICROPRICE] = MICROPRICE_SCALE * 0.5f * spread * f[F_IMBALANCE];
    f[F_MID_CHANGE] = (bp[0] + ap[0]) * 0.5f - prev_mid[s];
    float volume = trade_signed_vol[s];
    f[F_TRADE_VOLUME] = VOLUME_SCALE * signf(volume) * log_of_count(fabsf(volume));
    f[F_TRADE_COUNT] = log_of_count((float)trade_count[s]);
    float elapsed_us = ts_ns[s] > prev_ts_ns[s] ? (float)(ts_ns[s] - prev_ts_ns[s]) / NS_PER_US : 0.0f;
    f[F_ELAPSED] = ELAPSED_SCALE * log_of_count(elapsed_us);
    for (int j = 0; j < N_REGIME; ++j) f[F_REGIME + j] = state[j];
    f[F_REGIME + 3] = TRADE_RATE_SCALE * log_of_count(state[3]);
    for (int j = 0; j < CONTEXT_DIM; ++j) f[FEATURE_DIM + j] = 0.0f;
    for (int j = 0; j < MULTIRES_DIM; ++j) f[MULTIRES_FIRST + j] = multires[s * MULTIRES_DIM + j];
    for (int j = 0; j < ENCODER_INPUT_DIM; ++j) out[j] = clampf(f[j], -FEATURE_LIMIT, FEATURE_LIMIT);
}
