// Matrix products for captured graphs, float32: out[M,N] = op(a)[M,K] op(b)[K,N] (+ addend), rows strided.
//
// Why not the library: CuPy refuses its cuBLAS calls while a stream is capturing, and a sum order that is ours is
// the same in every run. One kernel per tile shape; foxhunt_cli/device/cuda_matmul.py chooses.
//
// Thread mapping: one block, one tile of one split (gemm_tile.cuh). Method and order of addition: gemm_fp32.cuh.
// Split K (weight gradients: K of a hundred thousand, a tile or two of output): split s sums k in [s k_chunk,
// (s + 1) k_chunk) into its own plane of a workspace, out + s split_stride; gemm_sum_splits (gemm_splits.cu) then
// adds the planes in a fixed order. No atomics.
// Inputs: a is [M,K] with lda, or [K,M] where trans_a; b is [K,N] with ldb, or [N,K] where trans_b; ld in floats.
// addend: null, or [M,N] with ldd, added to the product; it may be out. Edges: any M, N, K >= 1; tiles are cut by predicates.
// NaN and infinity pass through.
#include "cuda_only/gemm_fp32.cuh"

template <int BM, int BN, int TM, int TN>
static __device__ __forceinline__ void fp32_product(float* shared, const GemmTile& t, int trans_a, int trans_b) {
    if (trans_a && trans_b) {
        if constexpr (BM == 64) Fp32<BM, BN, TM, TN, true, true>::run(shared, t);
    } else if (trans_a) Fp32<BM, BN, TM, TN, true, false>::run(shared, t);
    else if (trans_b) Fp32<BM, BN, TM, TN, false, true>::run(shared, t);
    else Fp32<BM, BN, TM, TN, false, false>::run(shared, t);
}

// gemm_fp32_128x128: tiles of 128 x 128; wide products.
// launch: blocks TILES, block 256, shared 16896
// updates: out
extern "C" __global__ void __launch_bounds__(256, 2) gemm_fp32_128x128(
    const float* a, const float* b, const float* addend, float* out, int M, int N, int K, int lda, int ldb, int ldo,
    int ldd, int trans_a, int trans_b, int k_chunk, long long split_stride) {
    extern __shared__ __align__(16) float tile_memory[];
    GemmTile t = locate_tile(a, b, addend, out, M, N, K, lda, ldb, ldo, ldd, k_chunk, split_stride, 128, 128);
    fp32_product<128, 128, 8, 8>(tile_memory, t, trans_a, trans_b);
}

// gemm_fp32_64x64: tiles of 64 x 64; a few thousand rows, or columns that fill few tiles of 128.
// launch: blocks TILES, block 256, shared 8704
// updates: out
extern "C" __global__ void __launch_bounds__(256) gemm_fp32_64x64(
    const float* a, const float* b, const float* addend, float* out, int M, int N, int K, int lda, int ldb, int ldo,
    int ldd, int trans_a, int trans_b, int k_chunk, long long split_stride) {
    extern __shared__ __align__(16) float tile_memory[];
    GemmTile t = locate_tile(a, b, addend, out, M, N, K, lda, ldb, ldo, ldd, k_chunk, split_stride, 64, 64);
    fp32_product<64, 64, 4, 4>(tile_memory, t, trans_a, trans_b);
}

// gemm_fp32_32x32: tiles of 32 x 32; a few hundred rows.
// launch: blocks TILES, block 256, shared 4608
// updates: out
extern "C" __global__ void __launch_bounds__(256) gemm_fp32_32x32(
    const float* a, const float* b, const float* addend, float* out, int M, int N, int K, int lda, int ldb, int ldo,
    int ldd, int trans_a, int trans_b, int k_chunk, long long split_stride) {
    extern __shared__ __align__(16) float tile_memory[];
    GemmTile t = locate_tile(a, b, addend, out, M, N, K, lda, ldb, ldo, ldd, k_chunk, split_stride, 32, 32);
    fp32_product<32, 32, 2, 2>(tile_memory, t, trans_a, trans_b);
}

// gemm_fp32_128x16: tiles of 128 x 16; skinny: up to 16 columns.
// launch: blocks TILES, block 256, shared 9728
// updates: out
extern "C" __global__ void __launch_bounds__(256) gemm_fp32_128x16(
    const float* a, const float* b, const float* addend, float* out, int M, int N, int K, int lda, int ldb, int ldo,
    int ldd, int trans_a, int trans_b, int k_chunk, long long split_stride) {
    extern __shared__ __align__(16) float tile_memory[];
    GemmTile t = locate_tile(a, b, addend, out, M, N, K, lda, ldb, ldo, ldd, k_chunk, split_stride, 128, 16);
    fp32_product<128, 16, 4, 2>(tile_memory, t, trans_a, trans_b);
}
