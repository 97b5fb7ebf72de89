// Products of very many rows with a small matrix that stays in shared memory: TF32 operands, float32 sums, sm_90.
//
// A block keeps the whole of b, rounded to TF32 once, as operand of warpgroup products, and streams rows of a past it:
// every float of a is read once, every float of out written once. A warp copies the 16 rows that it multiplies itself,
// through a ring of its own, so that nobody waits at a barrier: while one warpgroup stores, the others multiply. Where
// the columns are too many for the registers of a warpgroup, two share the rows: SHARE = 2, each has half the columns,
// and their warps meet in pairs.
// Order of addition: k in steps of 8, ascending; it depends neither on the grid nor on who shares.
#pragma once
#include "cuda_only/mma.cuh"
#include "cuda_only/wgmma.cuh"

// a [M,K] with lda, rows at multiples of 16 bytes; b [K,N] with ldb, or [N,K] where trans_b; K a multiple of 4, N of 8.
// addend: null, or [M,N] with ldd, added to the product; it may be out.
struct RowsProduct {
    const float *a, *b, *addend;
    float* out;
    int M, N, K, lda, ldb, ldo, ldd;
    bool trans_b;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// COLUMNS: of a warpgroup. GROUPS: of warpgroups that share rows. STAGES: of a ring; DEPTH: k of a stage, 32 or 64.
template <int COLUMNS, int SHARE, int GROUPS, int STAGES, int DEPTH>
struct Rows {
    // Stride of a row in a stage: the eight rows of a block that one instruction reads meet no bank twice.
    static constexpr int STRIDE = DEPTH + 4, STAGE = 16 * STRIDE, EIGHTS = DEPTH / 8;
    static constexpr int THREADS = 128 * SHARE * GROUPS, WIDTH = COLUMNS * SHARE, TILES = COLUMNS / 8;
    static constexpr int RINGS = 4 * GROUPS, EIGHT = 8 * WIDTH;  // floats of b in eight k

    // Blocks of 8 columns x 4 k, columns fastest; a thread takes four k of a column. What lies outside b is zero.
    // A warp reads 32 adjacent columns, or where k is adjacent 16 of them of eight columns.
    template <bool TRANS_B>
    static __device__ __forceinline__ void load_b(float* shared, const RowsProduct& p) {
        const int quads = (p.K + 7) / 8 * 2, all = (quads + 3) / 4 * 4 * WIDTH;
#pragma unroll 8
        for (int i = threadIdx.x; i < all; i += THREADS) {
            const int col = TRANS_B ? i / 32 % (WIDTH / 8) * 8 + i % 8 : i % WIDTH;
            const int quad = TRANS_B ? i / (4 * WIDTH) * 4 + i / 8 % 4 : i / WIDTH, k = 4 * quad;
            const bool inside = k < p.K && col < p.N;
            const float* from = p.b + (inside ? (TRANS_B ? (long long)col * p.ldb + k : (long long)k * p.ldb + col) : 0);
            const long long down = inside && !TRANS_B ? p.ldb : 0;
            float4 v;
            if (TRANS_B) v = *(const float4*)from;
            else v = make_float4(from[0], from[down], from[2 * down], from[3 * down]);
            if (!inside) v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (quad >= quads) continue;
            const uint4 rounded = make_uint4(to_tf32(v.x), to_tf32(v.y), to_tf32(v.z), to_tf32(v.w));
            *(uint4*)(shared + quad * 4 * WIDTH + 4 * col) = rounded;
        }
        show_to_tensor_cores();
        __syncthreads();
    }

    // Starts this warp's part of the copies of a stage; rows behind M and k behind K become zero.
    static __device__ __forceinline__ void copy(float* stage, const RowsProduct& p, int row0, int k0, int part) {
        const int lane = threadIdx.x % 32, row = lane / (DEPTH / 4), col = lane % (DEPTH / 4) * 4;
        const bool inside = k0 + col < p.K;
#pragma unroll
        for (int i = 0; i < EIGHTS / SHARE; ++i) {
            const int r = row + 128 / DEPTH * (i * SHARE + part);
            const bool in = inside && row0 + r < p.M;
            const float* from = in ? p.a + (long long)(row0 + r) * p.lda + k0 + col : p.a;
            copy16_async(stage + r * STRIDE + col, from, in ? 16 : 0);
        }
    }

    // The warps that share a ring wait for one another; a ring of a single warp needs no more than the warp.
    static __device__ __forceinline__ void meet(int ring) {
        if (SHARE == 1) __syncwarp();
        else asm volatile("bar.sync %0, %1;\n" ::"r"(ring + 1), "n"(32 * SHARE) : "memory");
    }

    // sums = the product of the first COUNT eights of a stage, or += it.
    template <int COUNT>
    static __device__ __forceinline__ void multiply(
        float* sums, const unsigned int (*left)[4], unsigned long long b, bool add) {
        wgmma_fence();
#pragma unroll
        for (int e = 0; e < COUNT; ++e) Wgmma<COLUMNS>::run(sums, left[e], b + e * (EIGHT / 4), add || e > 0);
        wgmma_commit();
        wgmma_wait();
    }

    static __device__ __forceinline__ void store(
        const RowsProduct& p, const float* sums, int row0, int col0, int lane) {
        const int t = lane % 4, odd = t & 1;
#pragma unroll
        for (int j = 0; j < TILES; j += 2) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = row0 + lane / 4 + 8 * half;
                const float* d = sums + 4 * j + 2 * half;
                if (j + 1 == TILES) {
                    if (row < p.M && col0 + 8 * j < p.N) put2(p, row, col0 + 8 * j + 2 * t, d[0], d[1]);
                    continue;
                }
                // Neighbours exchange, so that the even one holds four adjacent columns of tile j, the odd one of j + 1.
                const float x = __shfl_xor_sync(~0u, odd ? d[0] : d[4], 1), y = __shfl_xor_sync(~0u, odd ? d[1] : d[5], 1);
                const float4 v = odd ? make_float4(x, y, d[4], d[5]) : make_float4(d[0], d[1], x, y);
                const int tile = col0 + 8 * (j + odd);
                if (row < p.M && tile < p.N) put4(p, row, tile + 2 * (t - odd), v);
            }
        }
    }

    static __device__ __forceinline__ void put2(const RowsProduct& p, int row, int col, float x, float y) {
        if (p.addend) {
            const float2 add = *(const float2*)(p.addend + (long long)row * p.ldd + col);
            x += add.x, y += add.y;
        }
        *(float2*)(p.out + (long long)row * p.ldo + col) = make_float2(x, y);
    }

    static __device__ __forceinline__ void put4(const RowsProduct& p, int row, int col, float4 v) {
        if (p.addend) {
            const float4 add = *(const float4*)(p.addend + (long long)row * p.ldd + col);
            v.x += add.x, v.y += add.y, v.z += add.z, v.w += add.w;
        }
        *(float4*)(p.out + (long long)row * p.ldo + col) = v;
    }

    static __device__ __forceinline__ void run(float* shared, const RowsProduct& p) {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warpgroup = warp / 4;
        const int group = warpgroup / SHARE, part = warpgroup % SHARE, ring = group * 4 + warp % 4;
        const int eights = (p.K + 7) / 8, chunks = (p.K + DEPTH - 1) / DEPTH;
        const int stride = (int)gridDim.x * GROUPS, tiles = (p.M + 63) / 64;
        const int first = (int)blockIdx.x + group * (int)gridDim.x;
        const int mine = first < tiles ? (tiles - first + stride - 1) / stride : 0, stages = mine * chunks;
        float* stages_of_ring = shared + eights * EIGHT + ring * STAGES * STAGE;
        int row0 = first * 64 + warp % 4 * 16, next_row0 = row0, next_chunk = 0, started = 0;
        auto start = [&](float* stage) {
            if (started++ < stages) {
                copy(stage, p, next_row0, next_chunk * DEPTH, part);
                if (++next_chunk == chunks) next_chunk = 0, next_row0 += stride * 64;
            }
            copy_commit();
        };
        for (int s = 0; s < STAGES; ++s) start(stages_of_ring + s * STAGE);
        if (p.trans_b) load_b<true>(shared, p);
        else load_b<false>(shared, p);
        const unsigned long long b = wgmma_operand(shared + part * COLUMNS * 4, 16 * WIDTH, 128);
        const int at = lane % 16 * STRIDE + lane / 16 * 4;
        float sums[TILES * 4];
        int chunk = 0, slot = 0;
        for (int s = 0; s < stages; ++s) {
            float* stage = stages_of_ring + slot * STAGE;
            unsigned int left[EIGHTS][4];
            copy_wait<STAGES - 1>();
            meet(ring);
#pragma unroll
            for (int e = 0; e < EIGHTS; ++e) {
                float v[4];
                load_blocks<4>(v, stage + at + 8 * e);
#pragma unroll
                for (int i = 0; i < 4; ++i) left[e][i] = to_tf32(v[i]);
            }
            meet(ring);  // the stage is read: the next copies may overwrite it
            start(stage);
            const unsigned long long from = b + (unsigned long long)(chunk * EIGHTS * (EIGHT / 4));
            // Branches between the instructions would make the compiler wait for each: every number of them has a row.
            const int count = eights - EIGHTS * chunk;
            if (count >= EIGHTS) multiply<EIGHTS>(sums, left, from, chunk > 0);
            else if (EIGHTS > 7 && count == 7) multiply<7>(sums, left, from, chunk > 0);
            else if (EIGHTS > 6 && count == 6) multiply<6>(sums, left, from, chunk > 0);
            else if (EIGHTS > 5 && count == 5) multiply<5>(sums, left, from, chunk > 0);
            else if (EIGHTS > 4 && count == 4) multiply<4>(sums, left, from, chunk > 0);
            else if (count == 3) multiply<3>(sums, left, from, chunk > 0);
            else if (count == 2) multiply<2>(sums, left, from, chunk > 0);
            else multiply<1>(sums, left, from, chunk > 0);
            slot = slot + 1 == STAGES ? 0 : slot + 1;
            if (++chunk < chunks) continue;
            store(p, sums, row0, part * COLUMNS, lane);
            chunk = 0;
            row0 += stride * 64;
        }
    }
};

#endif
