// Reductions and scans over a warp and over a block, always in the same order: the same bits in every run.
//
// The only home of warp intrinsics. Blocks are one-dimensional, blockDim.x a multiple of 32 up to 1024, and every
// thread of the block (for block_*) or of the warp (for warp_*) calls: no early return before one of these.
// scratch32 is a __shared__ array of 32 elements. block_* give the result to ALL threads and end with a barrier,
// so that the same scratch may be used again at once.
//
// Order: a butterfly inside the warp (lane i with i ^ 16, 8, 4, 2, 1; addition commutes, so all lanes hold the
// same bits), then warp 0, 1, 2, ... one after another. Nothing assumes that a warp runs in lockstep, so the CPU
// device's fibers see the same results.
// Compiles with NVRTC and as C++ on the CPU device: no standard headers.
#pragma once

#define REDUCE_FULL_WARP 0xffffffffu

// All threads of the block meet; whole warps may come from different places in the code (roles with loops of their
// own), where __syncthreads() must be the same one for all: a barrier that counts threads.
static __device__ inline void block_barrier_of_roles() {
#ifdef __CUDACC_RTC__
    asm volatile("barrier.sync 1, %0;" ::"r"(blockDim.x) : "memory");
#else
    __syncthreads();
#endif
}

// Largest of two; a NaN on either side wins (fmaxf would hide it). The sign of a zero is unspecified.
static __device__ inline float max_keep_nan(float a, float b) { return (a != a || a > b) ? a : b; }

// Smallest of two; a NaN on either side wins.
static __device__ inline float min_keep_nan(float a, float b) { return (a != a || a < b) ? a : b; }

// Sum over groups of WIDTH adjacent lanes (a power of two up to 32); every lane gets its group's sum.
template <int WIDTH>
static __device__ inline float group_sum(float v) {
    for (int step = WIDTH / 2; step > 0; step >>= 1) v += __shfl_xor_sync(REDUCE_FULL_WARP, v, step);
    return v;
}

template <int WIDTH>
static __device__ inline float group_max(float v) {
    for (int step = WIDTH / 2; step > 0; step >>= 1) {
        v = max_keep_nan(v, __shfl_xor_sync(REDUCE_FULL_WARP, v, step));
    }
    return v;
}

static __device__ inline float warp_sum(float v) { return group_sum<32>(v); }

static __device__ inline float warp_max(float v) { return group_max<32>(v); }

static __device__ inline float warp_min(float v) {
    for (int step = 16; step > 0; step >>= 1) v = min_keep_nan(v, __shfl_xor_sync(REDUCE_FULL_WARP, v, step));
    return v;
}

static __device__ inline int warp_sum_int(int v) {
    for (int step = 16; step > 0; step >>= 1) v += __shfl_xor_sync(REDUCE_FULL_WARP, v, step);
    return v;
}

// Bit i: lane i says yes.
static __device__ inline unsigned int warp_ballot(bool yes) { return __ballot_sync(REDUCE_FULL_WARP, yes); }

// The value of one lane, given to all lanes of the warp.
static __device__ inline float warp_broadcast(float v, int lane) { return __shfl_sync(REDUCE_FULL_WARP, v, lane); }

static __device__ inline float block_sum(float v, float* scratch32) {
    v = warp_sum(v);
    if ((threadIdx.x & 31) == 0) scratch32[threadIdx.x >> 5] = v;
    __syncthreads();
    int warps = (int)(blockDim.x >> 5);
    float total = scratch32[0];
    for (int w = 1; w < warps; ++w) total += scratch32[w];
    __syncthreads();
    return total;
}

static __device__ inline float block_max(float v, float* scratch32) {
    v = warp_max(v);
    if ((threadIdx.x & 31) == 0) scratch32[threadIdx.x >> 5] = v;
    __syncthreads();
    int warps = (int)(blockDim.x >> 5);
    float best = scratch32[0];
    for (int w = 1; w < warps; ++w) best = max_keep_nan(best, scratch32[w]);
    __syncthreads();
    return best;
}

static __device__ inline float block_min(float v, float* scratch32) {
    v = warp_min(v);
    if ((threadIdx.x & 31) == 0) scratch32[threadIdx.x >> 5] = v;
    __syncthreads();
    int warps = (int)(blockDim.x >> 5);
    float best = scratch32[0];
    for (int w = 1; w < warps; ++w) best = min_keep_nan(best, scratch32[w]);
    __syncthreads();
    return best;
}

static __device__ inline int block_sum_int(int v, int* scratch32) {
    v = warp_sum_int(v);
    if ((threadIdx.x & 31) == 0) scratch32[threadIdx.x >> 5] = v;
    __syncthreads();
    int warps = (int)(blockDim.x >> 5);
    int total = 0;
    for (int w = 0; w < warps; ++w) total += scratch32[w];
    __syncthreads();
    return total;
}

// Sum of v over all threads before this one (thread 0 gets 0); *total, where not null, gets the sum of all.
static __device__ inline int block_exclusive_scan_int(int v, int* scratch32, int* total) {
    int lane = (int)(threadIdx.x & 31), warp = (int)(threadIdx.x >> 5);
    int inclusive = v;
    for (int step = 1; step < 32; step <<= 1) {
        int before = __shfl_up_sync(REDUCE_FULL_WARP, inclusive, step);
        if (lane >= step) inclusive += before;
    }
    if (lane == 31) scratch32[warp] = inclusive;
    __syncthreads();
    int warps = (int)(blockDim.x >> 5);
    int offset = 0, sum = 0;
    for (int w = 0; w < warps; ++w) {
        if (w == warp) offset = sum;
        sum += scratch32[w];
    }
    __syncthreads();
    if (total) *total = sum;
    return offset + inclusive - v;
}
