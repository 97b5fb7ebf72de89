// Weight gradients over very many rows, TF32 tensor cores, sm_90: out[M,N] = a[K,M]^T b[K,N], and the sums of b's columns.
//
// Method, fragments and order of addition: gemm_tall.cuh; foxhunt_cli/device/cuda_matmul.py chooses.
// Thread mapping: one block, one tile of one split (gemm_tile.cuh). A split leaves a plane of M rows, and one more with
// the sums of b's columns where with_columns; gemm_sum_splits (gemm_splits.cu) adds the planes in a fixed order.
// Inputs: as gemm_tf32.cu, where trans_a is 1, trans_b is 0. NaN and infinity pass through.
#include "cuda_only/gemm_tall.cuh"

template <int ROWS, int TILES, int COLUMNS, int STAGES>
static __device__ __forceinline__ void tall_product(
    const float* a, const float* b, float* planes, int M, int N, int K, int lda, int ldb, int k_chunk, int with_columns) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(128) float tile_memory[];
    const long long plane = (long long)(M + (with_columns ? 1 : 0)) * N;
    const GemmTile t = locate_tile(a, b, nullptr, planes, M, N, K, lda, ldb, N, 0, k_chunk, plane, ROWS, COLUMNS);
    Tall<ROWS, TILES, COLUMNS, STAGES>::run(tile_memory, t, with_columns != 0);
#endif
}

// gemm_tall_56x296: tiles of 56 x 296: an in-projection of 56 inputs.
// launch: blocks TILES, block 640, shared 194560
extern "C" __global__ void __launch_bounds__(640, 1) gemm_tall_56x296(
    const float* a, const float* b, float* planes, int M, int N, int K, int lda, int ldb, int k_chunk, int with_columns) {
    tall_product<56, 5, 296, 4>(a, b, planes, M, N, K, lda, ldb, k_chunk, with_columns);
}

// gemm_tall_128x256: tiles of 128 x 256: the four gates, in two tiles.
// launch: blocks TILES, block 512, shared 183296
extern "C" __global__ void __launch_bounds__(512, 1) gemm_tall_128x256(
    const float* a, const float* b, float* planes, int M, int N, int K, int lda, int ldb, int k_chunk, int with_columns) {
    tall_product<128, 4, 256, 3>(a, b, planes, M, N, K, lda, ldb, k_chunk, with_columns);
}

// gemm_tall_128x128: tiles of 128 x 128, two blocks a multiprocessor.
// launch: blocks TILES, block 256, shared 100352
extern "C" __global__ void __launch_bounds__(256, 2) gemm_tall_128x128(
    const float* a, const float* b, float* planes, int M, int N, int K, int lda, int ldb, int k_chunk, int with_columns) {
    tall_product<128, 2, 128, 2>(a, b, planes, M, N, K, lda, ldb, k_chunk, with_columns);
}

// gemm_tall_56x56: tiles of 56 x 56, three blocks a multiprocessor.
// launch: blocks TILES, block 128, shared 71680
extern "C" __global__ void __launch_bounds__(128, 3) gemm_tall_56x56(
    const float* a, const float* b, float* planes, int M, int N, int K, int lda, int ldb, int k_chunk, int with_columns) {
    tall_product<56, 1, 56, 4>(a, b, planes, M, N, K, lda, ldb, k_chunk, with_columns);
}
