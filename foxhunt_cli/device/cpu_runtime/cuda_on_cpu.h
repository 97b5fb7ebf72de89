// The subset of CUDA that kernels may use, for a C++ compiler of the host.
//
// Stands before every kernel file. Includes nothing of the standard library: that text would cost more time to
// compile than the kernels do. What is missing here is missing on purpose (float atomics, textures, 2-D grids):
// using it is a compile error that names it.
#pragma once

#include "abi.h"

#define __FOXHUNT_CPU__ 1

typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;

// ------------------------------------------------------------------------------------------------ qualifiers
#define __device__
#define __host__
#define __constant__
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#ifdef FOXHUNT_SANITIZE
// Redzones stand only around plain statics of functions that are not inline; the runtime keeps to one OS thread.
#define __shared__ static
#define __forceinline__
#define __global__
#else
#define __shared__ static thread_local // a block runs on one OS thread
#define __forceinline__ inline __attribute__((always_inline))
#define __global__ inline __attribute__((always_inline))
#endif

// ------------------------------------------------------------------------------------------------ built-in variables
// An index behaves as the unsigned int it is in CUDA, with one liberty: sums and products of indices, and of an index
// and an int, do not wrap. So `blockIdx.x * blockDim.x + threadIdx.x` counts up with the loop over threads as far as
// the compiler can see, and the loop vectorises. Differences and comparisons stay unsigned.
struct fh_index {
    int value;
    constexpr operator unsigned() const { return (unsigned)value; }
};
constexpr fh_index operator+(fh_index a, fh_index b) { return {a.value + b.value}; }
constexpr fh_index operator*(fh_index a, fh_index b) { return {a.value * b.value}; }
constexpr fh_index operator+(fh_index a, int b) { return {a.value + b}; }
constexpr fh_index operator*(fh_index a, int b) { return {a.value * b}; }
constexpr fh_index operator+(int a, fh_index b) { return {a + b.value}; }
constexpr fh_index operator*(int a, fh_index b) { return {a * b.value}; }
constexpr long long operator+(long long a, fh_index b) { return a + b.value; }
constexpr long long operator*(long long a, fh_index b) { return a * b.value; }
template <class T> constexpr auto operator+(fh_index a, T b) -> decltype(0u + b) { return (unsigned)a + b; }
template <class T> constexpr auto operator*(fh_index a, T b) -> decltype(0u * b) { return (unsigned)a * b; }
template <class T> constexpr auto operator+(T a, fh_index b) -> decltype(a + 0u) { return a + (unsigned)b; }
template <class T> constexpr auto operator*(T a, fh_index b) -> decltype(a * 0u) { return a * (unsigned)b; }

struct fh_index3 {
    fh_index x;
    unsigned y, z;
};
// Kernels with barriers read these; a kernel without gets parameters of the same names from its launcher.
#define FH_BUILT_IN(type, name, symbol) \
    extern "C" __thread type name __asm__(symbol) __attribute__((tls_model("initial-exec")))
FH_BUILT_IN(fh_index3, threadIdx, "fh_thread_index");
FH_BUILT_IN(fh_index3, blockIdx, "fh_block_index");
FH_BUILT_IN(fh_index3, blockDim, "fh_block_size");
FH_BUILT_IN(fh_index3, gridDim, "fh_grid_size");
FH_BUILT_IN(void*, fh_dynamic_shared, "fh_dynamic_shared");
#define warpSize 32

// ------------------------------------------------------------------------------------------------ barriers
// The place of a barrier, for reports: one object for each place in the source.
#define FH_HERE ({ static const fh_site fh_here = {__FILE__, __LINE__}; &fh_here; })

#define __syncthreads() fh_sync(FH_HERE)
#define __syncthreads_count(predicate) fh_sync_reduce((predicate) ? 1 : 0, FH_COUNT, FH_HERE)
#define __syncthreads_and(predicate) fh_sync_reduce((predicate) ? 1 : 0, FH_AND, FH_HERE)
#define __syncthreads_or(predicate) fh_sync_reduce((predicate) ? 1 : 0, FH_OR, FH_HERE)
#define __threadfence() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define __threadfence_block() __atomic_signal_fence(__ATOMIC_SEQ_CST)

// ------------------------------------------------------------------------------------------------ warp operations
#define __shfl_sync(...) fh_shuffle(FH_HERE, __VA_ARGS__)
#define __shfl_up_sync(...) fh_shuffle_up(FH_HERE, __VA_ARGS__)
#define __shfl_down_sync(...) fh_shuffle_down(FH_HERE, __VA_ARGS__)
#define __shfl_xor_sync(...) fh_shuffle_xor(FH_HERE, __VA_ARGS__)
#define __ballot_sync(mask, predicate) ((unsigned)fh_warp((mask), (predicate) ? 1 : 0, FH_WARP_BALLOT, 0, FH_HERE))
#define __any_sync(mask, predicate) (__ballot_sync(mask, predicate) != 0u)
#define __all_sync(mask, predicate) (__ballot_sync(mask, !(predicate)) == 0u)
#define __activemask() fh_activemask_is_not_supported__name_the_mask
#define __syncwarp(...) fh_sync_warp(FH_HERE, ##__VA_ARGS__)

static inline void fh_sync_warp(const fh_site* here, unsigned mask = 0xffffffffu) {
    fh_warp(mask, 0, FH_WARP_SYNC, 0, here);
}
template <class T> static inline T fh_exchange(const fh_site* here, unsigned mask, T value, int source) {
    static_assert(sizeof(T) <= 8, "a warp shuffle moves at most 8 bytes");
    unsigned long long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    bits = fh_warp(mask, bits, FH_WARP_SHUFFLE, source, here);
    __builtin_memcpy(&value, &bits, sizeof(T));
    return value;
}
static inline int fh_lane() { return threadIdx.x.value & 31; }
template <class T>
static inline T fh_shuffle(const fh_site* here, unsigned mask, T value, int source, int width = 32) {
    return fh_exchange(here, mask, value, (fh_lane() & ~(width - 1)) | (source & (width - 1)));
}
template <class T>
static inline T fh_shuffle_up(const fh_site* here, unsigned mask, T value, unsigned delta, int width = 32) {
    const int lane = fh_lane(), within = lane & (width - 1);
    return fh_exchange(here, mask, value, within >= (int)delta ? lane - (int)delta : lane);
}
template <class T>
static inline T fh_shuffle_down(const fh_site* here, unsigned mask, T value, unsigned delta, int width = 32) {
    const int lane = fh_lane(), within = lane & (width - 1);
    return fh_exchange(here, mask, value, within + (int)delta < width ? lane + (int)delta : lane);
}
template <class T>
static inline T fh_shuffle_xor(const fh_site* here, unsigned mask, T value, int bits, int width = 32) {
    const int lane = fh_lane(), source = lane ^ bits;
    return fh_exchange(here, mask, value, (source & ~(width - 1)) > (lane & ~(width - 1)) ? lane : source);
}

// ------------------------------------------------------------------------------------------------ atomics
// Integers only: a sum of floats by atomics depends on the order of threads, on a GPU as here.
#define FH_ATOMICS(T) \
    static inline T atomicAdd(T* p, T v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); } \
    static inline T atomicAnd(T* p, T v) { return __atomic_fetch_and(p, v, __ATOMIC_RELAXED); } \
    static inline T atomicOr(T* p, T v) { return __atomic_fetch_or(p, v, __ATOMIC_RELAXED); } \
    static inline T atomicXor(T* p, T v) { return __atomic_fetch_xor(p, v, __ATOMIC_RELAXED); } \
    static inline T atomicExch(T* p, T v) { return __atomic_exchange_n(p, v, __ATOMIC_RELAXED); } \
    static inline T atomicCAS(T* p, T expected, T v) { \
        __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED); \
        return expected; \
    } \
    static inline T atomicMax(T* p, T v) { \
        T old = __atomic_load_n(p, __ATOMIC_RELAXED); \
        while (old < v && !__atomic_compare_exchange_n(p, &old, v, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {} \
        return old; \
    } \
    static inline T atomicMin(T* p, T v) { \
        T old = __atomic_load_n(p, __ATOMIC_RELAXED); \
        while (v < old && !__atomic_compare_exchange_n(p, &old, v, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {} \
        return old; \
    }
FH_ATOMICS(int)
FH_ATOMICS(unsigned)
FH_ATOMICS(unsigned long long)
static inline int atomicSub(int* p, int v) { return atomicAdd(p, -v); }
static inline unsigned atomicSub(unsigned* p, unsigned v) { return atomicAdd(p, 0u - v); }

// ------------------------------------------------------------------------------------------------ integer intrinsics
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned shift) {
    shift &= 31;
    return shift ? hi << shift | lo >> (32 - shift) : hi;
}

// ------------------------------------------------------------------------------------------------ bits of a float
// Before cuda_math.h: these speak of 32-bit floats in the double build too.
template <class To, class From> static inline To fh_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "same size");
    To to;
    __builtin_memcpy(&to, &from, sizeof(To));
    return to;
}
static inline unsigned __float_as_uint(float x) { return fh_bits<unsigned>(x); }
static inline int __float_as_int(float x) { return fh_bits<int>(x); }
static inline float __uint_as_float(unsigned x) { return fh_bits<float>(x); }
static inline float __int_as_float(int x) { return fh_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return fh_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return fh_bits<double>(x); }

#include "cuda_math.h"

// ------------------------------------------------------------------------------------------------ launchers
// cpu_build.py writes one launcher a kernel below the file, with these words.
#define FH_LAUNCHER extern "C" __attribute__((visibility("default")))
// Appended to the parameters of a kernel without barriers, and to the arguments of its call: indices by value let
// the compiler see the loop over threads through the kernel. Such a kernel may not depend on another thread's writes,
// which FH_INDEPENDENT tells the compiler.
#define FH_INDEX_PARAMETERS \
    const fh_index3 threadIdx, const fh_index3 blockIdx, const fh_index3 blockDim, const fh_index3 gridDim
#define FH_INDEX_ARGUMENTS {{thread}, 0, 0}, {{block}, 0, 0}, {{block_size}, 1, 1}, {{grid_size}, 1, 1}
#ifdef __clang__
#define FH_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define FH_INDEPENDENT _Pragma("GCC ivdep")
#endif
#define FH_FOR_EACH_THREAD \
    for (int block = first_block; block < last_block; ++block) \
        FH_INDEPENDENT for (int thread = first_thread; thread < last_thread; ++thread)
