// Sum over a block of up to 256 threads in a fixed order; every thread gets it.
#pragma once

__device__ __forceinline__ float warp_sum(float value) {
    for (int offset = 16; offset > 0; offset >>= 1) value += __shfl_down_sync(0xffffffffu, value, offset);
    return value;
}

__device__ __forceinline__ float block_sum(float value, float* partial) {
    const int thread = threadIdx.x;
    value = warp_sum(value);
    if ((thread & 31) == 0) partial[thread >> 5] = value;
    __syncthreads();
    float total = 0.0f;
    for (int w = 0; w < (blockDim.x + 31) / 32; ++w) total += partial[w];
    __syncthreads();
    return total;
}
