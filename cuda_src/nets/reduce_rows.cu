// Means of rows and sums of squares in a fixed order: what losses and norms share.
#include "generated/isv_slots.cuh"
#include "include/math.cuh"
#include "include/reduce.cuh"
#include "nets/polyak.cuh"

// rl_mean_into_slot: weighted mean of a per-row loss, written to one ISV slot.
// launch: blocks 1, block 32 if rows <= 1024 else 128
// updates: isv, nonfinite_parts
// One block, threads take rows in turn; then the block's fixed tree. row_loss, row_weight [rows]: how much of
// the mean a row is (labels it has, or 1; rows without weight are not looked at); nonfinite_parts [8].
// No row with weight: the slot is left alone (a dry step is no signal). nonfinite_parts[part] becomes the number of
// losses that are not finite; the mean shows the NaN.
extern "C" __global__ void rl_mean_into_slot(const float* row_loss, const float* row_weight, float* isv,
                                             int* nonfinite_parts, int slot, int part, int rows) {
    __shared__ float scratch[32];
    float sum = 0.0f, weight = 0.0f, bad = 0.0f;
    for (int r = threadIdx.x; r < rows; r += blockDim.x) {
        if (!(row_weight[r] > 0.0f)) continue;
        sum = fmaf(row_weight[r], row_loss[r], sum);
        weight += row_weight[r];
        if (!is_finite(row_loss[r])) bad += 1.0f;
    }
    sum = block_sum(sum, scratch);
    weight = block_sum(weight, scratch);
    bad = block_sum(bad, scratch);
    if (threadIdx.x == 0) {
        if (weight > 0.0f) isv[slot] = sum / weight;
        nonfinite_parts[part] = (int)bad;
    }
}

// rl_row_mean: mean of each row of a matrix.
// launch: threads rows, block 64
// One thread a row, ascending columns. matrix [rows, width]; row_mean [rows].
extern "C" __global__ void rl_row_mean(const float* matrix, float* row_mean, int rows, int width) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float* values = matrix + (long long)row * width;
    float sum = 0.0f;
    for (int i = 0; i < width; ++i) sum += values[i];
    row_mean[row] = sum / width;
}

// rl_label_count: how many labels there are, and the factor that makes their losses a mean.
// launch: blocks 1, block 32 if n <= 4096 else 128
// One block, fixed order. label [n], -1 = none; label_scale [2] = labels, 1 / max(labels, 1).
extern "C" __global__ void rl_label_count(const signed char* label, float* label_scale, int n) {
    __shared__ float scratch[32];
    float count = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) count += label[i] >= 0 ? 1.0f : 0.0f;
    count = block_sum(count, scratch);
    if (threadIdx.x == 0) {
        label_scale[0] = count;
        label_scale[1] = 1.0f / (count > 1.0f ? count : 1.0f);
    }
}

// rl_square_sum_parts: sums of squares of parts of a vector.
// launch: threads NORM_PARTS, block 64
// One thread a part; parts interleave in groups of NORM_GROUP elements (norm_part in polyak.cuh). x [n];
// square_parts [NORM_PARTS].
extern "C" __global__ void rl_square_sum_parts(const float* x, float* square_parts, int n, int NORM_PARTS) {
    const int part = blockIdx.x * blockDim.x + threadIdx.x;
    if (part >= NORM_PARTS) return;
    square_parts[part] = norm_part<false>(x, x, part, NORM_PARTS, n);
}

// rl_l2_norm: L2 norm from the sums of squares, into the EMA of a slot.
// launch: blocks 1, block 128
// updates: isv
// One block, fixed order. square_parts [NORM_PARTS]. The first observation replaces the sentinel 0. A norm that is
// not finite shows in the slot.
extern "C" __global__ void rl_l2_norm(const float* square_parts, float* isv, int slot, int NORM_PARTS) {
    __shared__ float scratch[32];
    float sum = 0.0f;
    for (int i = threadIdx.x; i < NORM_PARTS; i += blockDim.x) sum += square_parts[i];
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) isv[slot] = norm_ema(isv[slot], sqrtf(sum));
}
