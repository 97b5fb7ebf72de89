// One launch in two phases: all blocks do their part, the block that finishes last goes on with the results of all.
//
// Which block that is depends on the schedule; what it does must not. It sees every write of the others: each thread's
// fence stands before its block's arrival, and the last block's fence behind the count. What one block writes and another
// reads may not be a `const __restrict__` parameter: such loads may come from a cache that fences do not reach.
#pragma once

// True, in every thread, for the last block of the launch. arrived: a counter in global memory, 0 before and after every
// launch; last: shared. All threads of all blocks call, once; `blocks`: how many do. One block asks nobody.
static __device__ inline bool is_last_of(unsigned int* arrived, bool* last, unsigned int blocks) {
    if (blocks == 1u) {
        __syncthreads();
        return true;
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        *last = atomicAdd(arrived, 1u) == blocks - 1u;
        if (*last) *arrived = 0u;
    }
    __syncthreads();
    if (*last) __threadfence();
    return *last;
}

static __device__ inline bool is_last_block(unsigned int* arrived, bool* last) {
    return is_last_of(arrived, last, gridDim.x);
}
