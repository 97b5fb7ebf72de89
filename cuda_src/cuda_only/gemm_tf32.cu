// Matrix products for captured graphs, TF32 tensor cores (sm_80 and newer): out[M,N] = op(a)[M,K] op(b)[K,N] (+ addend), rows strided.
//
// Why not the library: CuPy refuses its cuBLAS calls while a stream is capturing, and a sum order that is ours is
// the same in every run. One kernel per tile shape; foxhunt_cli/device/cuda_matmul.py chooses.
//
// Thread mapping: one block, one tile of one split (gemm_tile.cuh). Method and order of addition: gemm_tf32.cuh.
// Split K (weight gradients: K of a hundred thousand, a tile or two of output): split s sums k in [s k_chunk,
// (s + 1) k_chunk) into its own plane of a workspace, out + s split_stride; gemm_sum_splits (gemm_splits.cu) then
// adds the planes in a fixed order. No atomics.
// Inputs: a is [M,K] with lda, or [K,M] where trans_a; b is [K,N] with ldb, or [N,K] where trans_b; ld in floats.
// addend: null, or [M,N] with ldd, added to the product; it may be out. Edges: any M, N, K >= 1; tiles are cut by predicates and zero-filled copies.
// NaN and infinity pass through.
#include "cuda_only/gemm_tf32.cuh"

template <int BM, int BN, int WARPS_M, int WARPS_N, int STAGES>
static __device__ __forceinline__ void tf32_product(float* shared, const GemmTile& t, int trans_a, int trans_b) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    if (trans_a && trans_b) {
        // One shape is enough for the rarest case; the host chooses it.
        if constexpr (BM == 64) Tf32<BM, BN, WARPS_M, WARPS_N, STAGES, true, true>::run(shared, t);
    } else if (trans_a) Tf32<BM, BN, WARPS_M, WARPS_N, STAGES, true, false>::run(shared, t);
    else if (trans_b) Tf32<BM, BN, WARPS_M, WARPS_N, STAGES, false, true>::run(shared, t);
    else Tf32<BM, BN, WARPS_M, WARPS_N, STAGES, false, false>::run(shared, t);
#endif
}

// gemm_tf32_128x160: tiles of 128 x 160; columns near a multiple of 160, such as the 296 of an in-projection.
// launch: blocks TILES, block 256, shared 82944
// updates: out
extern "C" __global__ void __launch_bounds__(256, 2) gemm_tf32_128x160(
    const float* a, const float* b, const float* addend, float* out, int M, int N, int K, int lda, int ldb, int ldo,
    int ldd, int trans_a, int trans_b, int k_chunk, long long split_stride) {
    extern __shared__ __align__(16) float tile_memory[];
    GemmTile t = locate_tile(a, b, addend, out, M, N, K, lda, ldb, ldo, ldd, k_chunk, split_stride, 128, 160);
    tf32_product<128, 160, 2, 4, 2>(tile_memory, t, trans_a, trans_b);
}

// gemm_tf32_128x128: tiles of 128 x 128; wide products.
// launch: blocks TILES, block 256, shared 73728
// updates: out
extern "C" __global__ void __launch_bounds__(256, 2) gemm_tf32_128x128(
    const float* a, const float* b, const float* addend, float* out, int M, int N, int K, int lda, int ldb, int ldo,
    int ldd, int trans_a, int trans_b, int k_chunk, long long split_stride) {
    extern __shared__ __align__(16) float tile_memory[];
    GemmTile t = locate_tile(a, b, addend, out, M, N, K, lda, ldb, ldo, ldd, k_chunk, split_stride, 128, 128);
    tf32_product<128, 128, 2, 4, 2>(tile_memory, t, trans_a, trans_b);
}

// gemm_tf32_128x64: tiles of 128 x 64; many rows, up to 64 columns.
// launch: blocks TILES, block 256, shared 82944
// updates: out
extern "C" __global__ void __launch_bounds__(256, 2) gemm_tf32_128x64(
    const float* a, const float* b, const float* addend, float* out, int M, int N, int K, int lda, int ldb, int ldo,
    int ldd, int trans_a, int trans_b, int k_chunk, long long split_stride) {
    extern __shared__ __align__(16) float tile_memory[];
    GemmTile t = locate_tile(a, b, addend, out, M, N, K, lda, ldb, ldo, ldd, k_chunk, split_stride, 128, 64);
    tf32_product<128, 64, 4, 2, 3>(tile_memory, t, trans_a, trans_b);
}

// gemm_tf32_64x64: tiles of 64 x 64; a few thousand rows: more, smaller blocks.
// launch: blocks TILES, block 128, shared 55296
// updates: out
extern "C" __global__ void __launch_bounds__(128) gemm_tf32_64x64(
    const float* a, const float* b, const float* addend, float* out, int M, int N, int K, int lda, int ldb, int ldo,
    int ldd, int trans_a, int trans_b, int k_chunk, long long split_stride) {
    extern __shared__ __align__(16) float tile_memory[];
    GemmTile t = locate_tile(a, b, addend, out, M, N, K, lda, ldb, ldo, ldd, k_chunk, split_stride, 64, 64);
    tf32_product<64, 64, 2, 2, 3>(tile_memory, t, trans_a, trans_b);
}

// gemm_tf32_32x64: tiles of 32 x 64; a few hundred rows.
// launch: blocks TILES, block 128, shared 43008
// updates: out
extern "C" __global__ void __launch_bounds__(128) gemm_tf32_32x64(
    const float* a, const float* b, const float* addend, float* out, int M, int N, int K, int lda, int ldb, int ldo,
    int ldd, int trans_a, int trans_b, int k_chunk, long long split_stride) {
    extern __shared__ __align__(16) float tile_memory[];
    GemmTile t = locate_tile(a, b, addend, out, M, N, K, lda, ldb, ldo, ldd, k_chunk, split_stride, 32, 64);
    tf32_product<32, 64, 2, 2, 3>(tile_memory, t, trans_a, trans_b);
}

// gemm_tf32_16x32: tiles of 16 x 32; a few dozen rows.
// launch: blocks TILES, block 128, shared 24576
// updates: out
extern "C" __global__ void __launch_bounds__(128) gemm_tf32_16x32(
    const float* a, const float* b, const float* addend, float* out, int M, int N, int K, int lda, int ldb, int ldo,
    int ldd, int trans_a, int trans_b, int k_chunk, long long split_stride) {
    extern __shared__ __align__(16) float tile_memory[];
    GemmTile t = locate_tile(a, b, addend, out, M, N, K, lda, ldb, ldo, ldd, k_chunk, split_stride, 16, 32);
    tf32_product<16, 32, 1, 4, 3>(tile_memory, t, trans_a, trans_b);
}

// gemm_tf32_128x16: tiles of 128 x 16; skinny: up to 16 columns, bound by reading a.
// launch: blocks TILES, block 256, shared 64512
// updates: out
extern "C" __global__ void __launch_bounds__(256, 2) gemm_tf32_128x16(
    const float* a, const float* b, const float* addend, float* out, int M, int N, int K, int lda, int ldb, int ldo,
    int ldd, int trans_a, int trans_b, int k_chunk, long long split_stride) {
    extern __shared__ __align__(16) float tile_memory[];
    GemmTile t = locate_tile(a, b, addend, out, M, N, K, lda, ldb, ldo, ldd, k_chunk, split_stride, 128, 16);
    tf32_product<128, 16, 8, 1, 3>(tile_memory, t, trans_a, trans_b);
}
