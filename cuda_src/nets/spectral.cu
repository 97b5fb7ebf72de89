// Spectral cap: largest singular value by one power iteration an update, and a bound on it (Miyato 2018).
//
// v <- unit(W^T u), u <- W v, sigma = |u|, u <- unit(u): products in float32 on every device; u is carried, so that the
// estimate (from below, it never exceeds the largest singular value) converges over iterations.
#include "generated/isv_slots.cuh"
#include "nets/spectral.cuh"

// rl_spectral_right: one half of a power iteration, v = W^T u.
// launch: threads (columns + 31) // 32, block 32
// One thread 32 adjacent columns, of each four sums of 32 rows, then these in order. w [HIDDEN_DIM, columns], left
// [HIDDEN_DIM], right [columns].
extern "C" __global__ void rl_spectral_right(const float* w, const float* left, float* right, int columns) {
    const int first = (blockIdx.x * blockDim.x + threadIdx.x) * SPECTRAL_COLUMNS;
    if (first >= columns) return;
    const int count = columns - first < SPECTRAL_COLUMNS ? columns - first : SPECTRAL_COLUMNS;
    float total[SPECTRAL_COLUMNS];
    for (int group = 0; group < SPECTRAL_GROUPS; ++group) {
        float sum[SPECTRAL_COLUMNS];
        for (int c = 0; c < SPECTRAL_COLUMNS; ++c) sum[c] = 0.0f;
        for (int r = group * SPECTRAL_ROWS; r < (group + 1) * SPECTRAL_ROWS; ++r) {
            const float* row = w + (long long)r * columns + first;
            for (int c = 0; c < count; ++c) sum[c] = fmaf(left[r], row[c], sum[c]);
        }
        for (int c = 0; c < SPECTRAL_COLUMNS; ++c) total[c] = group == 0 ? sum[c] : total[c] + sum[c];
    }
    for (int c = 0; c < count; ++c) right[first + c] = total[c];
}

// rl_spectral_left: the other half of a power iteration, u = W v.
// launch: threads HIDDEN_DIM, block 32
// One thread a row: 128 sums, then pairwise within 32 of them, then the four in order, as block_sum of 128 threads adds.
// w [HIDDEN_DIM, columns], right [columns], left [HIDDEN_DIM].
extern "C" __global__ void rl_spectral_left(const float* w, const float* right, float* left, int columns) {
    const int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= HIDDEN_DIM) return;
    const float* row = w + (long long)r * columns;
    float sum[SPECTRAL_LANES], total = 0.0f;
    for (int c = 0; c < SPECTRAL_LANES; ++c) sum[c] = 0.0f;
    for (int j = 0; j < columns; j += SPECTRAL_LANES) {
        const int count = columns - j < SPECTRAL_LANES ? columns - j : SPECTRAL_LANES;
        for (int c = 0; c < count; ++c) sum[c] = fmaf(row[j + c], right[j + c], sum[c]);
    }
    for (int warp = 0; warp < SPECTRAL_LANES; warp += 32) {
        for (int step = 16; step > 0; step >>= 1) {
            for (int c = warp; c < warp + step; ++c) sum[c] += sum[c + step];
        }
        total = warp == 0 ? sum[0] : total + sum[warp];
    }
    left[r] = total;
}

// rl_spectral_unit: x <- x / |x|.
// launch: blocks 1, block 128
// updates: direction
// One block, fixed order. direction [n]; direction_norm [1] = |x| before. A zero vector becomes pseudo-random signs.
extern "C" __global__ void rl_spectral_unit(float* direction, float* direction_norm, int n) {
    __shared__ float scratch[32];
    const float norm = spectral_norm_block(direction, n, scratch);
    for (int i = threadIdx.x; i < n; i += blockDim.x) direction[i] = spectral_unit_item(direction[i], norm, i, n);
    if (threadIdx.x == 0) direction_norm[0] = norm;
}

// rl_spectral_cap: W <- W cap / sigma where sigma is above the cap.
// launch: threads n, block 128
// updates: w, isv
// One thread an element; the first writes the slot. direction_norm [1] = sigma; w [n]; the slot gets sigma as it was
// before the cap. Slots read: SPECTRAL_CAP. A NaN sigma changes nothing and shows in the slot.
extern "C" __global__ void rl_spectral_cap(const float* direction_norm, float* w, float* isv, int slot, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float sigma = direction_norm[0], cap = isv[ISV_SPECTRAL_CAP];
    if (sigma > cap) w[i] *= cap / sigma;
    if (i == 0) isv[slot] = sigma;
}
