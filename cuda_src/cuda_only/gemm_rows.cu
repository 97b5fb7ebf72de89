// Matrix products of very many rows with a matrix that fits into shared memory beside the rows under way, TF32, sm_90.
//
// out[M,N] = a[M,K] op(b)[K,N] (+ addend): the wide products of the encoder, M = rows x snapshots. Method, order of
// addition and what is asked of the sizes: gemm_rows.cuh; foxhunt_cli/device/cuda_matmul.py chooses.
// Thread mapping: persistent blocks, one a multiprocessor; a warpgroup, or two that share the columns, takes every
// (blocks * groups)-th tile of 64 rows, blocks first. NaN and infinity pass through.
#include "cuda_only/gemm_rows.cuh"

template <int COLUMNS, int SHARE, int GROUPS, int STAGES, int DEPTH>
static __device__ __forceinline__ void rows_product(const RowsProduct& p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(128) float rows_memory[];
    Rows<COLUMNS, SHARE, GROUPS, STAGES, DEPTH>::run(rows_memory, p);
#endif
}

// gemm_rows_304x128: up to 304 columns, K up to 128.
// launch: blocks BLOCKS, block 512, shared 229376
// updates: out
extern "C" __global__ void __launch_bounds__(512, 1) gemm_rows_304x128(
    const float* a, const float* b, const float* addend, float* out, int M, int N, int K, int lda, int ldb, int ldo,
    int ldd, int trans_b) {
    rows_product<152, 2, 2, 4, 32>({a, b, addend, out, M, N, K, lda, ldb, ldo, ldd, trans_b != 0});
}

// gemm_rows_128x128: up to 128 columns, K up to 128.
// launch: blocks BLOCKS, block 512, shared 212992
// updates: out
extern "C" __global__ void __launch_bounds__(512, 1) gemm_rows_128x128(
    const float* a, const float* b, const float* addend, float* out, int M, int N, int K, int lda, int ldb, int ldo,
    int ldd, int trans_b) {
    rows_product<128, 1, 4, 4, 32>({a, b, addend, out, M, N, K, lda, ldb, ldo, ldd, trans_b != 0});
}

// gemm_rows_128x304: up to 128 columns, K up to 304.
// launch: blocks BLOCKS, block 512, shared 229376
// updates: out
extern "C" __global__ void __launch_bounds__(512, 1) gemm_rows_128x304(
    const float* a, const float* b, const float* addend, float* out, int M, int N, int K, int lda, int ldb, int ldo,
    int ldd, int trans_b) {
    rows_product<128, 1, 4, 2, 32>({a, b, addend, out, M, N, K, lda, ldb, ldo, ldd, trans_b != 0});
}

// gemm_rows_56x304: up to 56 columns, K up to 304.
// launch: blocks BLOCKS, block 512, shared 215552
// updates: out
extern "C" __global__ void __launch_bounds__(512, 1) gemm_rows_56x304(
    const float* a, const float* b, const float* addend, float* out, int M, int N, int K, int lda, int ldb, int ldo,
    int ldd, int trans_b) {
    rows_product<56, 1, 4, 4, 32>({a, b, addend, out, M, N, K, lda, ldb, ldo, ldd, trans_b != 0});
}
