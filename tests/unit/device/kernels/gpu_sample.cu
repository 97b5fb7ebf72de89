// Kernels for the tests of the CUDA device.

#include "include/math.cuh"
#include "include/reduce.cuh"
#include "include/rng.cuh"

// add_scaled: out += scale * x.
// launch: threads N, block 128
// updates: out
extern "C" __global__ void add_scaled(const float* x, float* out, float scale, int N) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) out[i] = fmaf(scale, x[i], out[i]);
}

// unfused: x * y + x with two roundings.
// launch: threads N, block 128
extern "C" __global__ void unfused(const float* x, const float* y, float* out, int N) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) out[i] = x[i] * y[i] + x[i];
}

// reductions: sum, largest, smallest, scan of one block's values.
// launch: blocks 1, block N
extern "C" __global__ void reductions(const float* x, float* sum, float* top, float* low, int* scan, int* total) {
    __shared__ float scratch[32];
    __shared__ int counts[32];
    int t = threadIdx.x;
    sum[t] = block_sum(x[t], scratch);
    top[t] = block_max(x[t], scratch);
    low[t] = block_min(x[t], scratch);
    int all;
    scan[t] = block_exclusive_scan_int(t % 7, counts, &all);
    total[t] = all;
}

// draw: one uniform number per state.
// launch: threads N, block 64
// updates: states
extern "C" __global__ void draw(unsigned int* states, float* out, int N) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) out[i] = uniform01(states + i);
}

// stray: writes far outside.
// launch: threads 1, block 1
extern "C" __global__ void stray(float* out) { out[1LL << 40] = 1.0f; }
