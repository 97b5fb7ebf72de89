// Thread-block clusters (sm_90 and newer): messages between the shared memories of a cluster's blocks, with barriers
// that count the bytes that have arrived. One small function an instruction; inline PTX is nowhere else but in mma.cuh.
//
// A message (st.async) writes 4, 8 or 16 bytes into the shared memory of any block of the cluster and reports them to
// a barrier there. Whoever waits for the barrier then sees every byte of the phase: no barrier of the whole cluster.
// Shared addresses are 32-bit offsets; the same object has the same offset in every block, and cluster_window(rank)
// is what to add to an own address to get the one in block `rank`.
#pragma once

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

static __device__ __forceinline__ unsigned int shared_address(const void* p) {
    return (unsigned int)__cvta_generic_to_shared(p);
}

// Rank of this block in its cluster.
static __device__ __forceinline__ int cluster_rank() {
    int rank;
    asm("mov.u32 %0, %%cluster_ctarank;\n" : "=r"(rank));
    return rank;
}

// Distance from an address of this block's shared memory to the same place in block `rank`.
static __device__ __forceinline__ unsigned int cluster_window(const void* p, int rank) {
    unsigned int there, here = shared_address(p);
    asm("mapa.shared::cluster.u32 %0, %1, %2;\n" : "=r"(there) : "r"(here), "r"(rank));
    return there - here;
}

// Every thread of every block arrives and then waits; what was written before is visible behind.
static __device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release;\n" ::: "memory");
}
static __device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire;\n" ::: "memory");
}

// A barrier whose phase ends after `arrivals` arrivals and all expected bytes.
static __device__ __forceinline__ void barrier_init(unsigned long long* barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to messages of other blocks, after the next cluster barrier.
static __device__ __forceinline__ void barrier_publish() {
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
}

// One arrival, which also says that `bytes` bytes of messages belong to the phase.
static __device__ __forceinline__ void barrier_expect(unsigned long long* barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

static __device__ __forceinline__ void barrier_arrive(unsigned long long* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(shared_address(barrier)) : "memory");
}

// Waits for the end of the phase of this parity: 0 for the first, then alternating.
static __device__ __forceinline__ void barrier_wait(unsigned long long* barrier, int parity) {
    const unsigned int address = shared_address(barrier);
    unsigned int done = 0;
    while (!done) {
        asm volatile(
            "{\n.reg .pred ready;\n"
            "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 ready, [%1], %2;\n"
            "selp.u32 %0, 1, 0, ready;\n}\n"
            : "=r"(done) : "r"(address), "r"(parity) : "memory");
    }
}

// Messages: `to` and `barrier` are addresses in the shared memory of the receiver, `to` a multiple of the size.
static __device__ __forceinline__ void send(unsigned int to, unsigned int barrier, float a) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];\n"
                 ::"r"(to), "f"(a), "r"(barrier) : "memory");
}
static __device__ __forceinline__ void send(unsigned int to, unsigned int barrier, float a, float b) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];\n"
                 ::"r"(to), "f"(a), "f"(b), "r"(barrier) : "memory");
}
static __device__ __forceinline__ void send(unsigned int to, unsigned int barrier, const float* v) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];\n"
                 ::"r"(to), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "r"(barrier) : "memory");
}

#endif
