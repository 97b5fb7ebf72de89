// Spectral cap: largest singular value by one power iteration an update, and a bound on it (Miyato 2018).
//
// v <- unit(W^T u), u <- W v, sigma = |u|, u <- unit(u): the products are the device's; u is carried, so that the
// estimate (from below, it never exceeds the largest singular value) converges over iterations.
#include "generated/isv_slots.cuh"
#include "include/math.cuh"
#include "include/reduce.cuh"

// rl_spectral_unit: x <- x / |x|.
// launch: blocks 1, block 128
// updates: direction
// One block, fixed order. direction [n]; direction_norm [1] = |x| before. A zero vector (the first time) becomes a unit
// vector of pseudo-random signs, so that no singular vector is left out by symmetry.
extern "C" __global__ void rl_spectral_unit(float* direction, float* direction_norm, int n) {
    __shared__ float scratch[32];
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum = fmaf(direction[i], direction[i], sum);
    const float norm = sqrtf(block_sum(sum, scratch));
    const float start = 1.0f / sqrtf((float)n);
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const float sign = ((unsigned int)i * 2654435769u >> 31) != 0u ? -start : start;
        direction[i] = norm == 0.0f ? sign : direction[i] / norm;
    }
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
