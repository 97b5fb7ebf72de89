// What kernels take from cuda_only/mma.cuh, on the CPU device: TF32 numbers and the tensor core's 16 x 8 x 8 product, which
// a warp's threads compute from one another's fragments.
#pragma once

static inline float __log2f(float v) { return log2f(v); }

// Nearest number with ten bits of mantissa, ties away from zero; NaN and infinity stay.
static inline unsigned int to_tf32(float v) {
    const unsigned int bits = __float_as_uint(v);
    return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & 0xffffe000u;
}

// Bulk copies are done at once: between the start of one and its readers the kernels have a barrier of the block.
struct CopyBarrier {
    unsigned long long state;
    void ready() {}
    void expect(int) {}
    void copy(float* shared, const float* global, int bytes) {
        for (int i = 0; i < bytes / 4; ++i) shared[i] = global[i];
    }
    void wait(int) {}
};
static inline void copies_behind_stores() {}

// Each lane has the address of one row of four; see cuda_only/mma.cuh.
template <int N>
static inline void load_blocks(float* v, const float* row) {
    for (int i = 0; i < N; ++i) {
        const long long from = __shfl_sync(0xffffffffu, (long long)row, 8 * i + threadIdx.x % 32 / 4);
        v[i] = ((const float*)from)[threadIdx.x % 4];
    }
}

// The hardware does not look at the low bits of an operand.
static inline float tf32_value(unsigned int bits) { return __uint_as_float(bits & 0xffffe000u); }

// Copies of 16 bytes, the first `bytes` of them read, the rest zero: here at once, so that there is nothing to wait for.
static inline void copy16_async(float* shared, const float* global, int bytes) {
    for (int i = 0; i < 4; ++i) shared[i] = 4 * i < bytes ? global[i] : 0.0f;
}

static inline void copy_commit() {}

template <int PENDING>
static inline void copy_wait() {}

// d += a b; who holds what: cuda_only/mma.cuh.
static inline void mma_tf32(float* d, const unsigned int* a, const unsigned int* b) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (int k = 0; k < 8; ++k) {
        const int row = 4 * g + k % 4, col = 8 * t + k % 4;
        const float upper = tf32_value(__shfl_sync(0xffffffffu, a[k / 4 * 2], row));
        const float lower = tf32_value(__shfl_sync(0xffffffffu, a[k / 4 * 2 + 1], row));
        const float left = tf32_value(__shfl_sync(0xffffffffu, b[k / 4], col));
        const float right = tf32_value(__shfl_sync(0xffffffffu, b[k / 4], col + 4));
        d[0] += upper * left;
        d[1] += upper * right;
        d[2] += lower * left;
        d[3] += lower * right;
    }
}
