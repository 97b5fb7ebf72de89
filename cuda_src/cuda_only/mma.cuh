// Tensor-core and asynchronous-copy instructions (sm_80 and newer; bulk copies sm_90), one small function each.
//
// Inline PTX stands here and in half.cuh alone. On older architectures the functions are absent: whoever uses them guards with
// __CUDA_ARCH__ >= 800 and the host does not launch those kernels there.
#pragma once

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// Copies 16 bytes from device to shared memory; only the first `bytes` are read, the rest become zero.
// Both addresses are multiples of 16. Bypasses L1: tiles are used once.
static __device__ __forceinline__ void copy16_async(float* shared, const float* global, int bytes) {
    unsigned int to = (unsigned int)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n" ::"r"(to), "l"(global), "r"(bytes));
}

// The same for one float; `bytes` is 4 or 0.
static __device__ __forceinline__ void copy4_async(float* shared, const float* global, int bytes) {
    unsigned int to = (unsigned int)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(to), "l"(global), "r"(bytes));
}

// Closes a group of copies; a group may be empty.
static __device__ __forceinline__ void copy_commit() { asm volatile("cp.async.commit_group;\n"); }

// Waits until at most PENDING of this thread's newest groups are unfinished. A barrier makes them visible to others.
template <int PENDING>
static __device__ __forceinline__ void copy_wait() {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(PENDING));
}

// Reads N (2 or 4) blocks of 8 rows x 4 floats from shared memory. Lanes 8 i to 8 i + 7 give the addresses of the rows
// of block i (multiples of 16 bytes); v[i] of a lane is element (lane / 4, lane % 4) of block i.
template <int N>
static __device__ __forceinline__ void load_blocks(float* v, const float* row) {
    unsigned int from = (unsigned int)__cvta_generic_to_shared(row), bits[4];
    if (N == 4) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                     : "=r"(bits[0]), "=r"(bits[1]), "=r"(bits[2]), "=r"(bits[3]) : "r"(from));
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];\n" : "=r"(bits[0]), "=r"(bits[1]) : "r"(from));
    }
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = __uint_as_float(bits[i]);
}

// Nearest TF32 number (10 bits of mantissa, ties away from zero). NaN stays NaN, which adding half a unit to the
// bits would not promise.
static __device__ __forceinline__ unsigned int to_tf32(float v) {
    unsigned int bits;
    asm("cvt.rna.tf32.f32 %0, %1;\n" : "=r"(bits) : "f"(v));
    return bits;
}

// d += a (16x8) * b (8x8). With g = lane / 4 and t = lane % 4 a thread holds
// a: (g, t) (g + 8, t) (g, t + 4) (g + 8, t + 4); b: (t, g) (t + 4, g); d: (g, 2t) (g, 2t + 1) (g + 8, 2t) (g + 8, 2t + 1).
static __device__ __forceinline__ void mma_tf32(float* d, const unsigned int* a, const unsigned int* b) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#endif

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// Counts the bytes of bulk copies to shared memory. One thread makes it ready; then, for every use, one thread says how
// many bytes will come, any threads start copies, and whoever reads waits. phase: 0, 1, 0, ... use by use.
struct CopyBarrier {
    unsigned long long state;

    __device__ __forceinline__ unsigned int at() { return (unsigned int)__cvta_generic_to_shared(&state); }

    // Before a barrier of the block, which makes it visible to the others and to the copies.
    __device__ __forceinline__ void ready() {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\nfence.mbarrier_init.release.cluster;\n" ::"r"(at()) : "memory");
    }

    __device__ __forceinline__ void expect(int bytes) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(at()), "r"(bytes) : "memory");
    }

    // Both addresses and the number of bytes are multiples of 16.
    __device__ __forceinline__ void copy(float* shared, const float* global, int bytes) {
        const unsigned int to = (unsigned int)__cvta_generic_to_shared(shared);
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(to),
                     "l"(global), "r"(bytes), "r"(at()) : "memory");
    }

    __device__ __forceinline__ void wait(int phase) {
        asm volatile(
            "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again;\n}\n" ::"r"(at()),
            "r"(phase) : "memory");
    }
};

// What ordinary stores put into shared memory may be overwritten by bulk copies after the next barrier of the block.
static __device__ __forceinline__ void copies_behind_stores() { asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory"); }

#endif
