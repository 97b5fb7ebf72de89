// What the kernels in streaming.cu do, as functions that a fused kernel may call as well.
#pragma once
#include "env/signal.cuh"
#include "generated/isv_slots.cuh"
#include "include/spread.cuh"
#include "nets/policy.cuh"

#define STREAM_MEAN_FLOOR 1e-6f      // under |mean|
#define STREAM_PART 128              // rows of a part, a thread each
#define STREAM_VARIANCE_FLOOR 1e-12f // under variance^2

// Squared deviations of a part's values from their mean; a thread brings one of them, or none. sum, count: of the part.
static __device__ inline float part_deviations(float value, bool there, float sum, float count, Columns<1>* square) {
    const float apart = there ? value - sum / count : 0.0f, mine[1] = {apart * apart};
    square->of_threads(mine);
    return square->totals[0];
}

// Mean of a buffer; all threads get it. scratch: shared, 32 floats.
static __device__ inline float rows_mean(const float* values, int rows, float* scratch) {
    float sum = 0.0f;
#pragma unroll 8
    for (int r = threadIdx.x; r < rows; r += blockDim.x) sum += values[r];
    return block_sum(sum, scratch) / rows;
}

// One observation of the spread around a moving mean: mean over rows of s and s^2, s = (x - old mean)(x - new mean).
// s is Welford's squared deviation; its mean is exact for the exponentially weighted variance, whatever the number of
// rows, and with one row it lives as well (the variance within a batch of one is 0).
static __device__ inline void stream_spread(const float* x, int rows, float old_mean, float new_mean, float* scratch,
                                            float* square, float* fourth) {
    float sum2 = 0.0f, sum4 = 0.0f;
#pragma unroll 8
    for (int r = threadIdx.x; r < rows; r += blockDim.x) {
        const float s = (x[r] - old_mean) * (x[r] - new_mean);
        sum2 += s;
        sum4 = fmaf(s, s, sum4);
    }
    *square = block_sum(sum2, scratch) / rows;
    *fourth = block_sum(sum4, scratch) / rows;
}

// rl_var_over_abs_mean_streaming: what becomes of the advantages' spread (one thread), and all of it by one block.
// Mean of (x - a)(x - b) over rows of mean m = their variance + (m - a)(m - b).
static __device__ inline void var_over_abs_mean_streaming_finish(Spread all, float* isv) {
    const float mean = isv[ISV_ADV_VAR_STREAM_MEAN], m2 = isv[ISV_ADV_VAR_STREAM_M2];
    const float sample = all.sum / all.n;
    const bool first = mean == 0.0f && m2 == 0.0f;
    const float next = first ? sample : ema(mean, sample, SIGNAL_ALPHA), old = first ? sample : mean;
    const float square = fmaf(sample - old, sample - next, all.square / all.n);
    if (!is_finite(square)) return;
    const float spread = ema_first(m2, square, SIGNAL_ALPHA), size = fabsf(next);
    isv[ISV_ADV_VAR_STREAM_MEAN] = next;
    isv[ISV_ADV_VAR_STREAM_M2] = spread;
    if (!(spread > 0.0f)) return;
    const float ratio = spread / (size > STREAM_MEAN_FLOOR ? size : STREAM_MEAN_FLOOR);
    const float top = isv[ISV_ADV_VAR_RATIO_CLAMP];
    isv[ISV_ADVANTAGE_VAR_RATIO_EMA] = ratio > top ? top : ratio;
}

static __device__ inline void var_over_abs_mean_streaming_block(const float* advantage, float* isv, int rows) {
    __shared__ Columns<2> columns;
    __shared__ Columns<1> square;
    __shared__ SpreadLanes spread;
    spread.clear();
    for (int first = 0; first < rows; first += STREAM_PART) {
        const int row = first + threadIdx.x;
        const bool there = row < rows;
        const float x = there ? advantage[row] : 0.0f, mine[2] = {x, there ? 1.0f : 0.0f};
        columns.of_threads(mine);
        const float sum = columns.totals[0], count = columns.totals[1];
        spread.add({count, sum, part_deviations(x, there, sum, count, &square)}, first / STREAM_PART);
    }
    spread.of_lanes();
    if (threadIdx.x == 0) var_over_abs_mean_streaming_finish(spread.all, isv);
}

// rl_kurtosis_streaming.
static __device__ inline void kurtosis_streaming_block(const float* td_error, float* isv, int rows) {
    __shared__ float scratch[32];
    const float mean = isv[ISV_TD_KURT_STREAM_MEAN], m2 = isv[ISV_TD_KURT_STREAM_M2];
    const float sample = rows_mean(td_error, rows, scratch);
    const bool first = mean == 0.0f && m2 == 0.0f;
    const float next = first ? sample : ema(mean, sample, SIGNAL_ALPHA);
    float square, fourth;
    stream_spread(td_error, rows, first ? sample : mean, next, scratch, &square, &fourth);
    if (threadIdx.x != 0 || !is_finite(fourth)) return;
    const float second = ema_first(m2, square, SIGNAL_ALPHA);
    const float tail = ema_first(isv[ISV_TD_KURT_STREAM_M4], fourth, SIGNAL_ALPHA), variance2 = second * second;
    isv[ISV_TD_KURT_STREAM_MEAN] = next;
    isv[ISV_TD_KURT_STREAM_M2] = second;
    isv[ISV_TD_KURT_STREAM_M4] = tail;
    if (!(second > 0.0f)) return;
    const float kurtosis = tail / (variance2 > STREAM_VARIANCE_FLOOR ? variance2 : STREAM_VARIANCE_FLOOR);
    const float top = isv[ISV_TD_KURTOSIS_CLAMP];
    isv[ISV_TD_KURTOSIS_EMA] = kurtosis > top ? top : kurtosis;
}

// ema_update_per_step.
static __device__ inline void ema_update_per_step_block(const float* values, float* isv, int slot, int rows) {
    __shared__ float scratch[32];
    const float sample = rows_mean(values, rows, scratch);
    if (threadIdx.x == 0 && is_finite(sample)) isv[slot] = ema_first(isv[slot], sample, SIGNAL_ALPHA);
}

// rl_kl_approx_b: what becomes of the sum of log-ratios (one thread), and all of it by one block.
static __device__ inline void kl_approx_b_finish(float sum, float* isv, int rows) {
    const float kl = -sum / rows;
    if (!is_finite(kl) || kl == 0.0f) return;
    isv[ISV_KL_PI_EMA] = ema_first(isv[ISV_KL_PI_EMA], kl, SIGNAL_ALPHA);
}

static __device__ inline void kl_approx_b_block(const float* log_ratio, float* isv, int rows) {
    __shared__ Columns<1> columns;
    columns_of_rows(columns, rows, STREAM_PART, [&](long long row, float* sum) { sum[0] += log_ratio[row]; });
    if (threadIdx.x == 0) kl_approx_b_finish(columns.totals[0], isv, rows);
}

// ppo_log_ratio_abs_max_b.
static __device__ inline void ppo_log_ratio_abs_max_b_block(const float* log_ratio, float* isv, int rows) {
    __shared__ float scratch[32];
    float largest = 0.0f;
#pragma unroll 8
    for (int r = threadIdx.x; r < rows; r += blockDim.x) largest = max_keep_nan(largest, fabsf(log_ratio[r]));
    largest = block_max(largest, scratch);
    if (threadIdx.x == 0) isv[ISV_PPO_LOG_RATIO_ABS_MAX] = largest;
}

// rl_log_ratio_rows, a row with its logits [11].
static __device__ inline float log_ratio_row(const float* logits, int action, float log_prob, const float* isv) {
    float soft[N_ACTIONS], chosen = 0.0f;
    policy_softmax(logits, soft);
#pragma unroll
    for (int a = 0; a < N_ACTIONS; ++a) chosen = a == action ? soft[a] : chosen;
    return logf(policy_floored(chosen, isv[ISV_P_MIN])) - log_prob;
}
