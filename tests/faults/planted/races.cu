// Planted faults: kernels whose result depends on the order in which threads run.

// missing_barrier: reads a neighbour's element of shared memory without waiting for it.
// launch: blocks N, block 64
extern "C" __global__ void missing_barrier(const float* in, float* out, int N) {
    __shared__ float tile[64];
    const int t = threadIdx.x;
    tile[t] = in[t];
    out[t] = tile[63 - t] + tile[t];
}

// scan_missing_barrier: a prefix sum with one of its two barriers a step left out.
// launch: blocks N, block 64, shared 4 * 64
extern "C" __global__ void scan_missing_barrier(const float* in, float* out, int N) {
    extern __shared__ float sums[];
    const int t = threadIdx.x;
    sums[t] = in[t];
    __syncthreads();
    for (int step = 1; step < 64; step <<= 1) {
        const float left = t >= step ? sums[t - step] : 0.0f;
        sums[t] += left;
        __syncthreads();
    }
    out[t] = sums[t];
}

// last_writer: every thread writes the same element.
// launch: threads N, block 64
extern "C" __global__ void last_writer(const float* in, float* out, int N) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) out[0] = in[i];
}

// block_order: a block reads what the block before it wrote.
// launch: blocks N, block 1
extern "C" __global__ void block_order(const float* in, float* out, int N) {
    const int i = blockIdx.x;
    out[i] = in[i] + (i > 0 ? out[i - 1] : 0.0f);
}

// correct_scan: no fault; the two kernels above differ from it by what they lack.
// launch: blocks N, block 64, shared 4 * 64
extern "C" __global__ void correct_scan(const float* in, float* out, int N) {
    extern __shared__ float sums[];
    const int t = threadIdx.x;
    sums[t] = in[t];
    __syncthreads();
    for (int step = 1; step < 64; step <<= 1) {
        const float left = t >= step ? sums[t - step] : 0.0f;
        __syncthreads();
        sums[t] += left;
        __syncthreads();
    }
    out[t] = sums[t];
}
