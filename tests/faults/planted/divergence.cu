// Planted faults: threads of a block that do not meet.

// some_exit: threads from 40 on return before the barrier.
// launch: blocks N, block 64
extern "C" __global__ void some_exit(float* out, int N) {
    const int t = threadIdx.x;
    if (t >= 40) return;
    __syncthreads();
    out[t] = t;
}

// two_barriers: half of the block waits at one barrier, half at another.
// launch: blocks N, block 64
extern "C" __global__ void two_barriers(float* out, int N) {
    const int t = threadIdx.x;
    if (t % 2 == 0)
        __syncthreads();
    else
        __syncthreads();
    out[t] = t;
}

// some_shuffle: a full-mask shuffle that only 20 lanes reach.
// launch: blocks N, block 64
extern "C" __global__ void some_shuffle(float* out, int N) {
    const int t = threadIdx.x;
    float value = t;
    if (t < 20) value += __shfl_down_sync(0xffffffffu, value, 1);
    __syncthreads();
    out[t] = value;
}

// masks_differ: lanes of one warp name different masks.
// launch: blocks N, block 32
extern "C" __global__ void masks_differ(float* out, int N) {
    const int t = threadIdx.x;
    out[t] = __shfl_xor_sync(t < 16 ? 0xffffffffu : 0xffff00ffu, (float)t, 1);
}

// outside_mask: a thread names a mask that leaves itself out.
// launch: blocks N, block 32
extern "C" __global__ void outside_mask(float* out, int N) {
    const int t = threadIdx.x;
    out[t] = __shfl_sync(0x0000ffffu, (float)t, 0);
}

// one_block_of_many: only block 777 diverges.
// launch: blocks N, block 64
extern "C" __global__ void one_block_of_many(float* out, int N) {
    const int t = threadIdx.x;
    if (blockIdx.x == 777 && t == 5) return;
    __syncthreads();
    out[blockIdx.x * blockDim.x + t] = t;
}
