// What a batch's TD errors and targets change beside the parameters: the slots that tell of them, priorities.
//
// Every block sums a fixed run of rows (priority_parts), whatever rows it renews the priorities of; the last one adds the
// blocks' sums in order. priority_parts [32, 4]: largest priority; sums of TD errors and of gaps.
#pragma once
#include "fused/critic_parts.cuh"
#include "fused/priorities.cuh"
#include "nets/q_statistics.cuh"

#define PRIORITY_SUMS 4      // numbers of a block
#define ERRORS_AHEAD 16      // groups' errors of a row that a thread asks for together

// TD error of a row: its mean cross-entropy over the pairs that learn.
struct RowErrors {
    const float* td_parts;  // [groups, R]
    int groups, learned, R;

    __device__ inline float operator()(int r) const {
        float sum = 0.0f;
        for (int first = 0; first < groups; first += ERRORS_AHEAD) {
            float part[ERRORS_AHEAD];  // behind the last group the first one's again: no load waits for a branch
#pragma unroll
            for (int i = 0; i < ERRORS_AHEAD; ++i) {
                part[i] = td_parts[(long long)(first + i < groups ? first + i : 0) * R + r];
            }
#pragma unroll
            for (int i = 0; i < ERRORS_AHEAD; ++i) sum = first + i < groups ? sum + part[i] : sum;
        }
        return sum / learned;
    }
};

// The block's run of rows into c51_td; each warp's sums go to shares. All threads of the block.
static __device__ inline void sum_own_rows(const RowErrors& errors, const float* row_gap, float* c51_td,
                                           PriorityShares* shares, int R) {
    const int each = (R + PRIORITY_BLOCKS - 1) / PRIORITY_BLOCKS, first = blockIdx.x * each;
    const int last = first + each < R ? first + each : R;
    float loss = 0.0f, gap = 0.0f;
    for (int r = first + (int)threadIdx.x; r < last; r += blockDim.x) {
        const float td = errors(r);
        c51_td[r] = td;
        loss += td;
        gap += row_gap[r];
    }
    loss = warp_sum(loss);
    gap = warp_sum(gap);
    if (threadIdx.x % 32 == 0) shares->loss[threadIdx.x / 32] = loss, shares->gap[threadIdx.x / 32] = gap;
}

// What the block leaves for the last one; its warps' sums in order.
static __device__ inline void store_block(const PriorityShares& shares, float* part) {
    float loss = 0.0f, gap = 0.0f;
    for (int w = 0; w < PRIORITY_WARPS; ++w) loss += shares.loss[w], gap += shares.gap[w];
    part[0] = largest_of(shares), part[1] = loss, part[2] = gap;
}

// LOSS_Q and Q_BIAS_EMA; part: this lane's block's. By one warp.
static __device__ inline void tell_of_errors(const float* part, float* isv, int rows, int lane) {
    const float loss = warp_sum(part[1]) / rows, gap = warp_sum(part[2]) / rows;
    if (lane != 0) return;
    isv[ISV_LOSS_Q] = loss;
    q_bias_finish(gap, isv);
}

// Q_TARGET_*: of this update's targets, and those before it in the iteration. learned: targets of the batch. By one warp.
static __device__ inline void tell_of_targets(const float* block_parts, float* isv, float learned, int blocks, int update,
                                              int lane) {
    float top = -MATH_FLOAT_MAX, low = MATH_FLOAT_MAX, clipped = 0.0f;
    for (int i = lane; i < blocks; i += 32) {
        top = max_keep_nan(top, block_parts[4 * i + PART_TOP]);
        low = min_keep_nan(low, block_parts[4 * i + PART_LOW]);
        clipped += block_parts[4 * i + PART_CLIPPED];
    }
    top = warp_max(top);
    low = warp_min(low);
    clipped = warp_sum(clipped) / learned;
    if (lane != 0) return;
    q_target_statistics_finish(top, low, clipped, update, isv);
}
