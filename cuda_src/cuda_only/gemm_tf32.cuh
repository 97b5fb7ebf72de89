// One output tile of a matrix product on tensor cores: TF32 operands, float32 sums.
//
// Operands stream through a ring of shared-memory stages by asynchronous copies while the tensor cores work on the
// oldest stage. A tile keeps the orientation it has in memory: [row][k] or [k][row], so no copy transposes. Row
// strides (depth + 4, width + 8 floats) put the 32 lanes of every fragment read in 32 different banks.
// Order of addition: k in steps of 8 inside the tensor core, ascending; the same in every run.
#pragma once
#include "cuda_only/gemm_tile.cuh"
#include "cuda_only/mma.cuh"

#define GEMM_TF32_DEPTH 32  // k per stage: a row of a stage is one 128-byte line

// Copies one operand's part of a stage after another into shared memory. A thread keeps its place in the tile and
// moves along k by one addition: computed afresh for each copy, the addresses cost more than the multiplication.
// DEPTH_ADJACENT: k is the adjacent axis in memory (tile [across][k]), otherwise the rows are k (tile [k][across]).
template <int WIDTH, int STRIDE, int THREADS, bool DEPTH_ADJACENT>
struct Stager {
    static constexpr int DEPTH = GEMM_TF32_DEPTH;
    const float* from;  // this thread's first element of the next stage
    int ld, into, local, across, depth, across_end;

    __device__ __forceinline__ Stager(const float* src, int ld_, int first, int end, int k0, bool wide)
        : ld(ld_), across_end(end) {
        int vec = wide ? 4 : 1, per_row = DEPTH_ADJACENT ? DEPTH / vec : THREADS / DEPTH;
        int row = threadIdx.x / per_row, col = threadIdx.x % per_row * vec;
        local = DEPTH_ADJACENT ? row : col;
        depth = DEPTH_ADJACENT ? col : row;
        across = first + local;
        into = row * STRIDE + col;
        from = DEPTH_ADJACENT ? src + (long long)across * ld + k0 + depth : src + (long long)(k0 + depth) * ld + across;
    }

    // Starts the copies of one stage; left = how many k remain. Outside the matrix a copy reads nothing, writes zero.
    template <int VEC>
    __device__ __forceinline__ void start(float* shared, int left) {
        constexpr int PASS = DEPTH_ADJACENT ? THREADS / (DEPTH / VEC) : THREADS / DEPTH * VEC;  // reach of one pass
#pragma unroll(VEC == 4 ? 8 : 1)  // single floats are the rare case: it must not take registers from the other
        for (int i = 0; i < (WIDTH + PASS - 1) / PASS; ++i) {
            if (WIDTH % PASS != 0 && local + i * PASS >= WIDTH) continue;
            int along = DEPTH_ADJACENT ? left - depth : across_end - (across + i * PASS);
            bool inside = DEPTH_ADJACENT ? across + i * PASS < across_end : depth < left;
            int valid = !inside || along < 0 ? 0 : (along > VEC ? VEC : along);
            float* to = shared + into + (DEPTH_ADJACENT ? i * PASS * STRIDE : i * PASS);
            const float* source = DEPTH_ADJACENT ? from + (long long)(i * PASS) * ld : from + i * PASS;
            if (VEC == 4) copy16_async(to, source, valid * 4);
            else copy4_async(to, source, valid * 4);
        }
    }

    __device__ __forceinline__ void stage(float* shared, int left, bool wide) {
        if (wide) start<4>(shared, left);
        else start<1>(shared, left);
        from += DEPTH_ADJACENT ? (long long)DEPTH : (long long)DEPTH * ld;
    }
};

// A tile of BM x BN by WARPS_M x WARPS_N warps, over a ring of STAGES (as many as 99 kB of shared memory hold, the most
// a block may have on every architecture with TF32).
template <int BM, int BN, int WARPS_M, int WARPS_N, int STAGES, bool TRANS_A, bool TRANS_B>
struct Tf32 {
    static constexpr int DEPTH = GEMM_TF32_DEPTH, THREADS = 32 * WARPS_M * WARPS_N;
    static constexpr int STRIDE_A = TRANS_A ? BM + 8 : DEPTH + 4, STRIDE_B = TRANS_B ? DEPTH + 4 : BN + 8;
    static constexpr int SIZE_A = TRANS_A ? DEPTH * STRIDE_A : BM * STRIDE_A;
    static constexpr int SIZE_B = TRANS_B ? BN * STRIDE_B : DEPTH * STRIDE_B;
    static constexpr int WARP_M = BM / WARPS_M, WARP_N = BN / WARPS_N, TILES_M = WARP_M / 16, TILES_N = WARP_N / 8;

    // The 16 x 8 part of a at (row, k). Where k is adjacent one instruction reads four 8 x 4 blocks.
    static __device__ __forceinline__ void read_a(unsigned int* to, const float* as, int row, int k, int lane) {
        if (TRANS_A) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                to[e] = to_tf32(as[(k + lane % 4 + 4 * (e >> 1)) * STRIDE_A + row + lane / 4 + 8 * (e & 1)]);
            }
        } else {
            float v[4];
            load_blocks<4>(v, as + (row + lane % 16) * STRIDE_A + k + lane / 16 * 4);
#pragma unroll
            for (int e = 0; e < 4; ++e) to[e] = to_tf32(v[e]);
        }
    }

    // The 8 x 8 part of b at (k, col), and where `pair` the one to its right.
    static __device__ __forceinline__ void read_b(
        unsigned int (*to)[2], const float* bs, int col, int k, int lane, bool pair) {
        if (!TRANS_B) {
#pragma unroll
            for (int e = 0; e < (pair ? 4 : 2); ++e) {
                to[e / 2][e % 2] = to_tf32(bs[(k + lane % 4 + 4 * (e % 2)) * STRIDE_B + col + e / 2 * 8 + lane / 4]);
            }
        } else if (pair) {
            float v[4];
            load_blocks<4>(v, bs + (col + lane / 16 * 8 + lane % 8) * STRIDE_B + k + lane / 8 % 2 * 4);
#pragma unroll
            for (int e = 0; e < 4; ++e) to[e / 2][e % 2] = to_tf32(v[e]);
        } else {
            float v[2];
            load_blocks<2>(v, bs + (col + lane % 8) * STRIDE_B + k + lane / 8 % 2 * 4);
#pragma unroll
            for (int e = 0; e < 2; ++e) to[0][e] = to_tf32(v[e]);
        }
    }

    // sums += the product of one stage; m and n are the warp's corner inside the tile.
    static __device__ __forceinline__ void multiply(
        const float* as, float (*sums)[TILES_N][4], int m, int n, int lane) {
        const float* bs = as + SIZE_A;
#pragma unroll
        for (int k = 0; k < DEPTH; k += 8) {
            unsigned int a[TILES_M][4], b[TILES_N][2];
#pragma unroll
            for (int i = 0; i < TILES_M; ++i) read_a(a[i], as, m + 16 * i, k, lane);
#pragma unroll
            for (int j = 0; j < TILES_N; j += 2) read_b(b + j, bs, n + 8 * j, k, lane, j + 1 < TILES_N);
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
                    if (t.addend) {
                        const float* add = t.addend + (long long)row * t.ldd + col;
                        x += add[0];
                        if (both) y += add[1];
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
        Stager<BM, STRIDE_A, THREADS, !TRANS_A> stage_a(t.a, t.lda, t.m0, t.M, t.k0, t.wide_a);
        Stager<BN, STRIDE_B, THREADS, TRANS_B> stage_b(t.b, t.ldb, t.n0, t.N, t.k0, t.wide_b);
        int left = t.k1 - t.k0;
        for (int s = 0; s < STAGES - 1; ++s, left -= DEPTH) {
            stage_a.stage(shared + s * (SIZE_A + SIZE_B), left, t.wide_a);
            stage_b.stage(shared + s * (SIZE_A + SIZE_B) + SIZE_A, left, t.wide_b);
            copy_commit();
        }
        for (int step = 0; step < steps; ++step) {
            copy_wait<STAGES - 2>();
            __syncthreads();  // this step's stage is there for all, and nobody reads the stage that is filled next
            float* next = shared + (step + STAGES - 1) % STAGES * (SIZE_A + SIZE_B);
            if (left > 0) {
                stage_a.stage(next, left, t.wide_a);
                stage_b.stage(next + SIZE_A, left, t.wide_b);
            }
            left -= DEPTH;
            copy_commit();
            multiply(shared + step % STAGES * (SIZE_A + SIZE_B), sums, m, n, lane);
        }
        store(t, sums, t.m0 + m, t.n0 + n, g, lane4);
    }
};
