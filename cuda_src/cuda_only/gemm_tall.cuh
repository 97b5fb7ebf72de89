// Products over very many rows with a small result, out[M,N] = a[K,M]^T b[K,N]: weight gradients. TF32, float32 sums, sm_90.
//
// A block keeps a tile of the transposed result in registers, TILES warpgroups of 64 columns of b each, by all ROWS
// columns of a, and streams its share of the K rows past it. The columns of b are the left operand: a warp reads its
// 16 as fragments from where asynchronous copies left them. The right operand, a, has to lie with k adjacent, which in
// memory it does not: all threads turn a stage around, four k at a time, while the tensor cores work on the one before.
// What a bias' gradient needs, the sums of b's columns, is added in float32 on the way.
// Order of addition: k in steps of 8, ascending, then splits (gemm_splits.cu); fixed by the sizes.
#pragma once
#include "cuda_only/gemm_tf32.cuh"
#include "cuda_only/wgmma.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// ROWS: of the result, a's columns. COLUMNS: of b that a block copies, 64 TILES or fewer.
template <int ROWS, int TILES, int COLUMNS, int STAGES>
struct Tall {
    static constexpr int DEPTH = GEMM_TF32_DEPTH, THREADS = 128 * TILES, EIGHT = 8 * ROWS;
    // Strides of 8 or 24 banks keep the lanes of a fragment's read apart.
    static constexpr int STRIDE = COLUMNS % 16 == 8 ? COLUMNS : COLUMNS + 8;
    static constexpr int SIZE_B = DEPTH * STRIDE, SIZE = SIZE_B + DEPTH * ROWS, TURNED = DEPTH * ROWS;
    static_assert(COLUMNS <= 64 * TILES && STRIDE % 16 == 8, "a warp's columns");

    // From [k][row] to blocks of 8 rows x 4 k, rows fastest, as warpgroup products want them; rounded.
    static __device__ __forceinline__ void turn(float* to, const float* from) {
#pragma unroll
        for (int i = 0; i < (DEPTH / 4 * ROWS + THREADS - 1) / THREADS; ++i) {
            const int item = threadIdx.x + i * THREADS, row = item % ROWS, quad = item / ROWS;
            if (DEPTH / 4 * ROWS % THREADS != 0 && item >= DEPTH / 4 * ROWS) continue;
            const float* v = from + 4 * quad * ROWS + row;
            const uint4 four = make_uint4(to_tf32(v[0]), to_tf32(v[ROWS]), to_tf32(v[2 * ROWS]), to_tf32(v[3 * ROWS]));
            *(uint4*)(to + 4 * item) = four;
        }
        show_to_tensor_cores();
    }

    // Columns 2 g and 2 g + 1 of the warp's 16 are rows g and g + 8 of its fragments; depths t and t + 4.
    static __device__ __forceinline__ void read(unsigned int (*to)[4], const float* from, float* column, int lane) {
        from += lane % 4 * STRIDE + lane / 4 * 2;
#pragma unroll
        for (int e = 0; e < DEPTH / 8; ++e) {
            const float2 v = *(const float2*)(from + 8 * e * STRIDE), w = *(const float2*)(from + (8 * e + 4) * STRIDE);
            column[0] += v.x + w.x, column[1] += v.y + w.y;
            to[e][0] = to_tf32(v.x), to[e][1] = to_tf32(v.y), to[e][2] = to_tf32(w.x), to[e][3] = to_tf32(w.y);
        }
    }

    static __device__ __forceinline__ void store(const GemmTile& t, const float* sums, int col, int lane) {
        if (col >= t.N) return;
        const bool pair = col + 1 < t.N && (t.ldo & 1) == 0;
#pragma unroll
        for (int j = 0; j < ROWS / 8; ++j) {
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const int row = t.m0 + 8 * j + 2 * (lane % 4) + e;
                if (row >= t.M) continue;
                float* to = t.out + (long long)row * t.ldo + col;
                if (pair) {
                    *(float2*)to = make_float2(sums[4 * j + e], sums[4 * j + 2 + e]);
                } else {
                    to[0] = sums[4 * j + e];
                    if (col + 1 < t.N) to[1] = sums[4 * j + 2 + e];
                }
            }
        }
    }

    // The sums of b's columns follow the M rows of the plane.
    static __device__ __forceinline__ void store_columns(const GemmTile& t, const float* column, int col, int lane) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            float sum = column[i];
            sum += __shfl_xor_sync(~0u, sum, 1);
            sum += __shfl_xor_sync(~0u, sum, 2);
            if (lane % 4 == 0 && col + i < t.N) t.out[(long long)t.M * t.ldo + col + i] = sum;
        }
    }

    static __device__ __forceinline__ void run(float* shared, const GemmTile& t, bool with_columns) {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        const int steps = (t.k1 - t.k0 + DEPTH - 1) / DEPTH;
        float* ring = shared + 2 * TURNED;
        float sums[ROWS / 2], column[2] = {0.0f, 0.0f};
        Stager<ROWS, ROWS, THREADS, false> stage_a(t.a, t.lda, t.m0, t.M, t.k0, t.wide_a);
        Stager<COLUMNS, STRIDE, THREADS, false> stage_b(t.b, t.ldb, t.n0, t.N, t.k0, t.wide_b);
        int left = t.k1 - t.k0;
        auto start = [&](int s) {
            if (left > 0) {
                stage_b.stage(ring + s % STAGES * SIZE, left, t.wide_b);
                stage_a.stage(ring + s % STAGES * SIZE + SIZE_B, left, t.wide_a);
            }
            left -= DEPTH;
            copy_commit();
        };
        for (int s = 0; s < STAGES - 1; ++s) start(s);
        for (int step = 0; step < steps; ++step) {
            const float* stage = ring + step % STAGES * SIZE;
            float* turned = shared + step % 2 * TURNED;
            copy_wait<STAGES - 2>();
            __syncthreads();  // this stage is there for all, and nobody reads the one that is filled next
            start(step + STAGES - 1);
            turn(turned, stage + SIZE_B);
            __syncthreads();
            wgmma_wait();  // the products of the stage before ran until here
            unsigned int fragments[DEPTH / 8][4];
            read(fragments, stage + 16 * warp, column, lane);
            const unsigned long long operand = wgmma_operand(turned, 16 * ROWS, 128);
            wgmma_fence();
#pragma unroll
            for (int e = 0; e < DEPTH / 8; ++e) {
                Wgmma<ROWS>::run(sums, fragments[e], operand + e * (EIGHT / 4), step > 0 || e > 0);
            }
            wgmma_commit();
        }
        wgmma_wait();
        const int col = t.n0 + 16 * warp + lane / 4 * 2;
        store(t, sums, col, lane);
        if (with_columns && t.m0 == 0) store_columns(t, column, col, lane);
    }
};

#endif
