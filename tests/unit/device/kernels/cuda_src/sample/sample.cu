// Kernels for the tests of the CPU device.
#include "include/block_sum.cuh"
#include "include/scale.cuh"

// scale_rows: y = 2 x + 1.
// launch: threads N, block 64
extern "C" __global__ void scale_rows(const float* __restrict__ x, float* __restrict__ y, int N) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N) return;
    y[i] = scaled(x[i]);
}

// row_softmax: softmax of each row of C elements, one block a row.
// launch: blocks N, block 128, shared 4 * 128
extern "C" __global__ void row_softmax(const float* __restrict__ x, float* __restrict__ y, int N, int C) {
    extern __shared__ float row[];
    __shared__ float partial[8];
    const int t = threadIdx.x;
    const long long base = (long long)blockIdx.x * C;
    row[t] = t < C ? x[base + t] : -INFINITY;
    __syncthreads();
    for (int step = 64; step > 0; step >>= 1) {
        if (t < step) row[t] = fmaxf(row[t], row[t + step]);
        __syncthreads();
    }
    const float e = t < C ? expf(x[base + t] - row[0]) : 0.0f;
    const float total = block_sum(e, partial);
    if (t < C) y[base + t] = e / total;
}

// add_int: accumulates with scalars of every kind.
// launch: threads N, block 32
// updates: count
extern "C" __global__ void add_int(int* count, float f, long long big, unsigned u, int N) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N) return;
    atomicAdd(count, (int)f + (int)(big >> 40) + (int)u);
}
