// The tile of a matrix product that one block computes: what it is and how a block finds its own.
//
// Shared by the float32 and the TF32 products. One block computes one tile of one split. blockIdx.x = (split *
// tiles_m + tile_m) * tiles_n + tile_n, columns fastest, so that neighbours share rows of a in the L2 cache.
#pragma once

// What one block computes: rows [m0, ...) x columns [n0, ...) of the product over k in [k0, k1).
struct GemmTile {
    const float* a;
    const float* b;
    const float* addend;  // null, or what is added to the product; it may be out
    float* out;
    int M, N, lda, ldb, ldo, ldd;
    int m0, n0, k0, k1;
    bool wide_a, wide_b;  // wide: 16-byte copies are aligned
};

// The block's tile from its index.
static __device__ __forceinline__ GemmTile locate_tile(
    const float* a, const float* b, const float* addend, float* out, int M, int N, int K, int lda, int ldb, int ldo,
    int ldd, int k_chunk, long long split_stride, int tile_rows, int tile_cols) {
    int tiles_m = (M + tile_rows - 1) / tile_rows, tiles_n = (N + tile_cols - 1) / tile_cols;
    int tile_n = (int)(blockIdx.x % tiles_n);
    int tile_m = (int)(blockIdx.x / tiles_n % tiles_m);
    int split = (int)(blockIdx.x / tiles_n / tiles_m);
    GemmTile t;
    t.a = a, t.b = b, t.addend = addend, t.out = out + split * split_stride;
    t.M = M, t.N = N, t.lda = lda, t.ldb = ldb, t.ldo = ldo, t.ldd = ldd;
    t.m0 = tile_m * tile_rows, t.n0 = tile_n * tile_cols;
    t.k0 = split * k_chunk;
    t.k1 = K - t.k0 > k_chunk ? t.k0 + k_chunk : K;
    t.wide_a = (lda & 3) == 0 && ((unsigned long long)a & 15) == 0;
    t.wide_b = (ldb & 3) == 0 && ((unsigned long long)b & 15) == 0;
    return t;
}
