// Products of small matrices in shared memory on tensor cores: TF32 operands, float32 sums (fused/block_product.cuh).
//
// Warps share the product as WARPS_M x WARPS_N, each a rectangle of 16 x 8 tiles. Fragments are read element by element:
// rows of LDA = 4 mod 32 floats put the 32 lanes in different banks where k is adjacent, 8 mod 32 where it is not;
// other strides cost a second access, nothing more.
#pragma once
#include "cuda_only/mma.cuh"
#include "fused/block_product.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

template <int M, int N, int K, bool A_T, bool B_T, int LDA, int LDB, int THREADS>
struct Tf32Block {
    static constexpr int WARPS = THREADS / 32, ALL_M = M / 16, ALL_N = N / 8;
    // As square a rectangle a warp as divides evenly: fewer fragments are read.
    static constexpr int WARPS_M = ALL_M >= 4 && WARPS >= 4 && WARPS % 4 == 0 ? 4 : (ALL_M >= 2 && WARPS >= 2 ? 2 : 1);
    static constexpr int WARPS_N = WARPS / WARPS_M;
    static constexpr int TILES_M = (ALL_M + WARPS_M - 1) / WARPS_M, TILES_N = (ALL_N + WARPS_N - 1) / WARPS_N;
    int m0, n0, g, t;  // first row and column of the warp; lane / 4, lane % 4
    float sums[TILES_M][TILES_N][4];

    __device__ __forceinline__ explicit Tf32Block(int rank)
        : m0(rank / 32 / WARPS_N * TILES_M * 16), n0(rank / 32 % WARPS_N * TILES_N * 8), g(rank % 32 / 4), t(rank % 4) {
#pragma unroll
        for (int i = 0; i < TILES_M * TILES_N * 4; ++i) (&sums[0][0][0])[i] = 0.0f;
    }

    // Whether tile i of the warp lies inside; known at compile time where the tiles divide evenly.
    __device__ __forceinline__ bool inside_m(int i) const { return ALL_M % WARPS_M == 0 || m0 + 16 * i < M; }
    __device__ __forceinline__ bool inside_n(int j) const { return ALL_N % WARPS_N == 0 || n0 + 8 * j < N; }

    __device__ __forceinline__ void multiply(const float* a, const float* b) {
#pragma unroll 4
        for (int k = 0; k < K; k += 8) {
            unsigned int left[TILES_M][4], right[TILES_N][2];
#pragma unroll
            for (int i = 0; i < TILES_M; ++i) {
                if (!inside_m(i)) continue;
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    const int row = m0 + 16 * i + g + 8 * (e & 1), depth = k + t + 4 * (e >> 1);
                    left[i][e] = __float_as_uint(A_T ? a[depth * LDA + row] : a[row * LDA + depth]);
                }
            }
#pragma unroll
            for (int j = 0; j < TILES_N; ++j) {
                if (!inside_n(j)) continue;
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    const int col = n0 + 8 * j + g, depth = k + t + 4 * e;
                    right[j][e] = __float_as_uint(B_T ? b[col * LDB + depth] : b[depth * LDB + col]);
                }
            }
#pragma unroll
            for (int i = 0; i < TILES_M; ++i) {
#pragma unroll
                for (int j = 0; j < TILES_N; ++j) {
                    if (inside_m(i) && inside_n(j)) mma_tf32(sums[i][j], left[i], right[j]);
                }
            }
        }
    }

    template <class F>
    __device__ __forceinline__ void each(F visit) {
#pragma unroll
        for (int i = 0; i < TILES_M; ++i) {
#pragma unroll
            for (int j = 0; j < TILES_N; ++j) {
                if (!inside_m(i) || !inside_n(j)) continue;
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    visit(m0 + 16 * i + g + 8 * (e >> 1), n0 + 8 * j + 2 * t + (e & 1), sums[i][j][e]);
                }
            }
        }
    }
};

struct Tf32Math {
    static __device__ __forceinline__ float operand(float v) { return __uint_as_float(to_tf32(v)); }
    template <int M, int N, int K, bool A_T, bool B_T, int LDA, int LDB, int THREADS>
    using Block = Tf32Block<M, N, K, A_T, B_T, LDA, LDB, THREADS>;
};

#endif
