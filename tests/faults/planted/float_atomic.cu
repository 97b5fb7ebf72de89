// Planted fault: a sum of floats by atomics.

// float_atomic: the order of the additions, and so the sum, would differ from run to run.
// launch: threads N, block 64
// updates: out
extern "C" __global__ void float_atomic(float* out, int N) { atomicAdd(out, 1.0f); }
