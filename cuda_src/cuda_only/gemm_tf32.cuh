// One output tile of a matrix product on tensor cores: TF32 operands, float32 sums.
//
// Operands stream through a ring of shared-memory stages by asynchronous copies while the tensor cores work on the
// oldest stage. A tile keeps the orientation it has in memory: [row][k] or [k][row], so no copy transposes. Row
// strides (depth + 4, width + 8 floats) put the 32 lanes of every fragment read in 32 different banks.
// Order of addition: k in steps of 8 inside the tensor core, ascending; the same in every run.
#pragma once
#include "cuda_only/gemm_tile.cuh"
#include "cuda_only/mma.cuh"

#ifndef GEMM_TF32_DEPTH
#define GEMM_TF32_DEPTH 16
#endif
#ifndef GEMM_TF32_STAGES
#define GEMM_TF32_STAGES 4
#endif

// Starts copies of rows x cols floats (cols adjacent in memory); what lies outside [rows_end) x [cols_end) is zero.
template <int ROWS, int COLS, int STRIDE, int THREADS>
static __device__ __forceinline__ void stage_tile(
    float* shared, const float* src, int ld, int row0, int rows_end, int col0, int cols_end, bool wide) {
    if (wide) {
#pragma unroll 1  // unrolled, the addresses alone would not fit in the registers
        for (int i = threadIdx.x; i < ROWS * COLS / 4; i += THREADS) {
            int r = i / (COLS / 4), c = (i % (COLS / 4)) * 4;
            int left = row0 + r < rows_end ? cols_end - (col0 + c) : 0;
            int valid = left < 0 ? 0 : (left > 4 ? 4 : left);
            const float* from = valid ? src + (long long)(row0 + r) * ld + col0 + c : src;
            copy16_async(shared + r * STRIDE + c, from, valid * 4);
        }
    } else {
#pragma unroll 1
        for (int i = threadIdx.x; i < ROWS * COLS; i += THREADS) {
            int r = i / COLS, c = i % COLS;
            bool valid = row0 + r < rows_end && col0 + c < cols_end;
            copy4_async(shared + r * STRIDE + c, valid ? src + (long long)(row0 + r) * ld + col0 + c : src, valid ? 4 : 0);
        }
    }
}

template <int BM, int BN, int WARPS_M, int WARPS_N, bool TRANS_A, bool TRANS_B>
struct Tf32 {
    static constexpr int DEPTH = GEMM_TF32_DEPTH, STAGES = GEMM_TF32_STAGES, THREADS = 32 * WARPS_M * WARPS_N;
    static constexpr int STRIDE_A = TRANS_A ? BM + 8 : DEPTH + 4, STRIDE_B = TRANS_B ? DEPTH + 4 : BN + 8;
    static constexpr int SIZE_A = TRANS_A ? DEPTH * STRIDE_A : BM * STRIDE_A;
    static constexpr int SIZE_B = TRANS_B ? BN * STRIDE_B : DEPTH * STRIDE_B;
    static constexpr int WARP_M = BM / WARPS_M, WARP_N = BN / WARPS_N, TILES_M = WARP_M / 16, TILES_N = WARP_N / 8;

    static __device__ __forceinline__ void stage(float* shared, const GemmTile& t, int k) {
        if (TRANS_A) stage_tile<DEPTH, BM, STRIDE_A, THREADS>(shared, t.a, t.lda, k, t.k1, t.m0, t.M, t.wide_a);
        else stage_tile<BM, DEPTH, STRIDE_A, THREADS>(shared, t.a, t.lda, t.m0, t.M, k, t.k1, t.wide_a);
        if (TRANS_B) stage_tile<BN, DEPTH, STRIDE_B, THREADS>(shared + SIZE_A, t.b, t.ldb, t.n0, t.N, k, t.k1, t.wide_b);
        else stage_tile<DEPTH, BN, STRIDE_B, THREADS>(shared + SIZE_A, t.b, t.ldb, k, t.k1, t.n0, t.N, t.wide_b);
    }

    // sums += the product of one stage; m and n are the warp's corner inside the tile.
    static __device__ __forceinline__ void multiply(
        const float* as, float (*sums)[TILES_N][4], int m, int n, int g, int t) {
        const float* bs = as + SIZE_A;
#pragma unroll
        for (int k = 0; k < DEPTH; k += 8) {
            unsigned int a[TILES_M][4], b[TILES_N][2];
#pragma unroll
            for (int i = 0; i < TILES_M; ++i) {
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    int row = m + 16 * i + g + 8 * (e & 1), depth = k + t + 4 * (e >> 1);
                    a[i][e] = to_tf32(as[TRANS_A ? depth * STRIDE_A + row : row * STRIDE_A + depth]);
                }
            }
#pragma unroll
            for (int j = 0; j < TILES_N; ++j) {
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    int col = n + 8 * j + g, depth = k + t + 4 * e;
                    b[j][e] = to_tf32(bs[TRANS_B ? col * STRIDE_B + depth : depth * STRIDE_B + col]);
                }
            }
#pragma unroll
            for (int i = 0; i < TILES_M; ++i) {
#pragma unroll
                for (int j = 0; j < TILES_N; ++j) mma_tf32(sums[i][j], a[i], b[j]);
            }
        }
    }

    static __device__ __forceinline__ void store(
        const GemmTile& t, const float (*sums)[TILES_N][4], int m, int n, int g, int lane4) {
        bool pairs = (t.ldo & 1) == 0 && ((unsigned long long)t.out & 7) == 0;
#pragma unroll
        for (int i = 0; i < TILES_M; ++i) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                int row = m + 16 * i + g + 8 * half;
                float* line = t.out + (long long)row * t.ldo;
#pragma unroll
                for (int j = 0; j < TILES_N; ++j) {
                    int col = n + 8 * j + 2 * lane4;
                    float x = sums[i][j][2 * half], y = sums[i][j][2 * half + 1];
                    if (row >= t.M || col >= t.N) continue;
                    bool both = col + 1 < t.N;
                    if (t.accumulate) {
                        x += line[col];
                        if (both) y += line[col + 1];
                    }
                    if (both && pairs) {
                        *(float2*)(line + col) = make_float2(x, y);
                    } else {
                        line[col] = x;
                        if (both) line[col + 1] = y;
                    }
                }
            }
        }
    }

    static __device__ __forceinline__ void run(float* shared, const GemmTile& t) {
        int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, lane4 = lane % 4;
        int m = (warp / WARPS_N) * WARP_M, n = (warp % WARPS_N) * WARP_N;
        int steps = (t.k1 - t.k0 + DEPTH - 1) / DEPTH;
        float sums[TILES_M][TILES_N][4];
#pragma unroll
        for (int i = 0; i < TILES_M * TILES_N * 4; ++i) (&sums[0][0][0])[i] = 0.0f;
        for (int s = 0; s < STAGES - 1; ++s) {
            if (s < steps) stage(shared + s * (SIZE_A + SIZE_B), t, t.k0 + s * DEPTH);
            copy_commit();
        }
        for (int step = 0; step < steps; ++step) {
            copy_wait<STAGES - 2>();
            __syncthreads();  // this step's stage is there for all, and nobody reads the stage that is filled next
            int next = step + STAGES - 1;
            if (next < steps) stage(shared + (next % STAGES) * (SIZE_A + SIZE_B), t, t.k0 + next * DEPTH);
            copy_commit();
            multiply(shared + (step % STAGES) * (SIZE_A + SIZE_B), sums, m, n, g, lane4);
        }
        store(t, sums, t.m0 + m, t.n0 + n, g, lane4);
    }
};
