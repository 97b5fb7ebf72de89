// One output tile of a matrix product on the float32 units: every product and sum is one fmaf, k ascending.
//
// Operands are held in shared memory as [k][row] and [k][column], two buffers: while the threads multiply one, the
// next is on its way through registers. A thread owns TM x TN outputs in groups of four adjacent ones, spread over
// the tile so that the 16-byte reads of a warp meet no bank twice.
#pragma once
#include "cuda_only/gemm_tile.cuh"

#define GEMM_FP32_DEPTH 8

// V adjacent floats from shared memory in one read (V = 1, 2 or 4; the address is a multiple of 4 V bytes).
template <int V>
static __device__ __forceinline__ void read_group(float* to, const float* from) {
    if (V == 4) {
        float4 v = *(const float4*)from;
        to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    } else if (V == 2) {
        float2 v = *(const float2*)from;
        to[0] = v.x, to[1] = v.y;
    } else {
        to[0] = from[0];
    }
}

template <int BM, int BN, int TM, int TN, bool TRANS_A, bool TRANS_B>
struct Fp32 {
    static constexpr int DEPTH = GEMM_FP32_DEPTH, THREADS = (BM / TM) * (BN / TN);
    static constexpr int STRIDE_A = BM + 4, STRIDE_B = BN + 4, SIZE = DEPTH * (STRIDE_A + STRIDE_B);
    static constexpr int EACH_A = (BM * DEPTH + THREADS - 1) / THREADS, EACH_B = (BN * DEPTH + THREADS - 1) / THREADS;
    static constexpr int VM = TM < 4 ? TM : 4, VN = TN < 4 ? TN : 4;

    // Row (or column) and depth of the i-th element this thread carries; adjacent threads read adjacent memory.
    template <int WIDTH, bool DEPTH_ADJACENT>
    static __device__ __forceinline__ void place(int i, int* across, int* depth) {
        int e = threadIdx.x + i * THREADS;
        *across = DEPTH_ADJACENT ? e / DEPTH : e % WIDTH;
        *depth = DEPTH_ADJACENT ? e % DEPTH : e / WIDTH;
    }

    static __device__ __forceinline__ void fetch(const GemmTile& t, int k, float* ra, float* rb) {
        int across, depth;
#pragma unroll
        for (int i = 0; i < EACH_A; ++i) {
            place<BM, !TRANS_A>(i, &across, &depth);
            int row = t.m0 + across, kk = k + depth;
            bool inside = across < BM && depth < DEPTH && row < t.M && kk < t.k1;
            ra[i] = inside ? t.a[TRANS_A ? (long long)kk * t.lda + row : (long long)row * t.lda + kk] : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < EACH_B; ++i) {
            place<BN, TRANS_B>(i, &across, &depth);
            int col = t.n0 + across, kk = k + depth;
            bool inside = across < BN && depth < DEPTH && col < t.N && kk < t.k1;
            rb[i] = inside ? t.b[TRANS_B ? (long long)col * t.ldb + kk : (long long)kk * t.ldb + col] : 0.0f;
        }
    }

    static __device__ __forceinline__ void deposit(float* shared, const float* ra, const float* rb) {
        int across, depth;
#pragma unroll
        for (int i = 0; i < EACH_A; ++i) {
            place<BM, !TRANS_A>(i, &across, &depth);
            if (across < BM && depth < DEPTH) shared[depth * STRIDE_A + across] = ra[i];
        }
#pragma unroll
        for (int i = 0; i < EACH_B; ++i) {
            place<BN, TRANS_B>(i, &across, &depth);
            if (across < BN && depth < DEPTH) shared[DEPTH * STRIDE_A + depth * STRIDE_B + across] = rb[i];
        }
    }

    static __device__ __forceinline__ void multiply(const float* shared, float (*sums)[TN], int ty, int tx) {
        const float* bs = shared + DEPTH * STRIDE_A;
#pragma unroll
        for (int k = 0; k < DEPTH; ++k) {
            float a[TM], b[TN];
#pragma unroll
            for (int i = 0; i < TM; i += VM) read_group<VM>(a + i, shared + k * STRIDE_A + i / VM * (BM * VM / TM) + ty * VM);
#pragma unroll
            for (int j = 0; j < TN; j += VN) read_group<VN>(b + j, bs + k * STRIDE_B + j / VN * (BN * VN / TN) + tx * VN);
#pragma unroll
            for (int i = 0; i < TM; ++i) {
#pragma unroll
                for (int j = 0; j < TN; ++j) sums[i][j] = fmaf(a[i], b[j], sums[i][j]);
            }
        }
    }

    static __device__ __forceinline__ void store(const GemmTile& t, const float (*sums)[TN], int ty, int tx) {
        bool wide = VN == 4 && (t.ldo & 3) == 0 && ((unsigned long long)t.out & 15) == 0;
#pragma unroll
        for (int i = 0; i < TM; ++i) {
            int row = t.m0 + i / VM * (BM * VM / TM) + ty * VM + i % VM;
            float* line = t.out + (long long)row * t.ldo;
#pragma unroll
            for (int j = 0; j < TN; j += VN) {
                int col = t.n0 + j / VN * (BN * VN / TN) + tx * VN;
                if (row >= t.M || col >= t.N) continue;
                float v[VN];
#pragma unroll
                for (int e = 0; e < VN; ++e) {
                    bool add = t.addend && col + e < t.N;
                    v[e] = sums[i][j + e] + (add ? t.addend[(long long)row * t.ldd + col + e] : 0.0f);
                }
                if (wide && col + VN <= t.N) {
                    *(float4*)(line + col) = make_float4(v[0], v[VN > 1 ? 1 : 0], v[VN > 2 ? 2 : 0], v[VN > 3 ? 3 : 0]);
                } else {
#pragma unroll
                    for (int e = 0; e < VN; ++e) {
                        if (col + e < t.N) line[col + e] = v[e];
                    }
                }
            }
        }
    }

    static __device__ __forceinline__ void run(float* shared, const GemmTile& t) {
        int tx = threadIdx.x % (BN / TN), ty = threadIdx.x / (BN / TN);
        float sums[TM][TN], ra[EACH_A], rb[EACH_B];
#pragma unroll
        for (int i = 0; i < TM * TN; ++i) (&sums[0][0])[i] = 0.0f;
        fetch(t, t.k0, ra, rb);
        deposit(shared, ra, rb);
        __syncthreads();
        int buffer = 0;
        for (int k = t.k0; k < t.k1; k += DEPTH) {
            bool more = k + DEPTH < t.k1;
            if (more) fetch(t, k + DEPTH, ra, rb);
            multiply(shared + buffer * SIZE, sums, ty, tx);
            buffer ^= 1;
            if (more) deposit(shared + buffer * SIZE, ra, rb);
            __syncthreads();
        }
        store(t, sums, ty, tx);
    }
};
