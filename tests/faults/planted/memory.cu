// Planted faults: memory that is not the kernel's, arithmetic that is not defined, values nobody wrote.

// The sanitizer must see the store, not the optimiser.
__device__ __noinline__ void put(float* to, int at, float value) { to[at] = value; }

// past_the_array: the last thread writes one element beyond a buffer.
// launch: threads N, block 64
extern "C" __global__ void past_the_array(float* out, int N) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= N) put(out, i, 1.0f);
}

// past_dynamic_shared: one element beyond dynamic shared memory.
// launch: blocks N, block 64, shared 4 * 64
extern "C" __global__ void past_dynamic_shared(float* out, int N) {
    extern __shared__ float tile[];
    const int t = threadIdx.x;
    put(tile, t + 1, t);
    __syncthreads();
    out[t] = tile[t];
}

// past_static_shared: one element beyond a __shared__ array.
// launch: blocks N, block 64
extern "C" __global__ void past_static_shared(float* out, int N) {
    __shared__ float tile[64];
    const int t = threadIdx.x;
    put(tile, t + 1, t);
    __syncthreads();
    out[t] = tile[t];
}

// integer_overflow: a signed sum past 2^31 - 1.
// launch: threads N, block 64
extern "C" __global__ void integer_overflow(float* out, int N) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) out[i] = (float)(2147483600 + N + i);
}

// nan_to_int: a NaN made an integer; every processor has its own idea of the result.
// launch: threads N, block 64
extern "C" __global__ void nan_to_int(float* out, int N) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) out[i] = (float)(int)(out[i] / out[i]);
}

// no_fault: uses all of what the others use, within bounds.
// launch: blocks N, block 64, shared 4 * 64
extern "C" __global__ void no_fault(float* out, int N) {
    extern __shared__ float dynamic[];
    __shared__ float fixed[64];
    const int t = threadIdx.x;
    put(dynamic, t, t);
    put(fixed, 63 - t, t);
    __syncthreads();
    out[t] = __shfl_xor_sync(0xffffffffu, dynamic[t] + fixed[t], 1);
}

// unset_dynamic_shared: half of the tile is read without having been written.
// launch: blocks N, block 64, shared 4 * 64
extern "C" __global__ void unset_dynamic_shared(float* out, int N) {
    extern __shared__ float tile[];
    const int t = threadIdx.x;
    if (t < 32) tile[t] = 1.0f;
    __syncthreads();
    out[t] = tile[t];
}

// unset_static_shared: the same with a __shared__ array.
// launch: blocks N, block 64
extern "C" __global__ void unset_static_shared(float* out, int N) {
    __shared__ float tile[64];
    const int t = threadIdx.x;
    if (t < 32) tile[t] = 1.0f;
    __syncthreads();
    out[t] = tile[t];
}
