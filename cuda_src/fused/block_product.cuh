// Products of small matrices in shared memory by all threads of a group; the sums stay in the threads' registers.
//
// A fused kernel is written once over a Math: Fp32Math (here: float32 throughout, every device) or Tf32Math
// (cuda_only/block_tf32.cuh: tensor cores). Math::Block<M, N, K, A_T, B_T, LDA, LDB, THREADS> is the M x N product over
// K of a ([M][K], or [K][M] where A_T; rows of LDA floats) and b ([K][N], or [N][K] where B_T; rows of LDB floats):
//   Block sums(rank);             // rank of this thread among the THREADS of the group; sums are zero
//   sums.multiply(a, b);          // sums += op(a) op(b), k ascending
//   sums.each([&](int row, int col, float& value) { ... });  // the elements that this thread holds
// Whoever writes an operand to shared memory writes Math::operand(v): rounded once there, not at every read.
// M is a multiple of 16, N of 8, K of 8, LDA and LDB of 4; a and b are 16-byte aligned. Rows of a and columns of b that
// nobody asks for may hold anything; along K every element must be a number. No barrier inside: callers order reads and
// writes. Order of addition: fixed by the template arguments alone.
#pragma once

// Four adjacent floats of memory that is aligned to 16 bytes; the sanitized build of the CPU device checks that it is.
struct alignas(16) FourFloats {
    float v[4];
};

static __device__ __forceinline__ void load4(const float* from, float* to) {
#ifdef __CUDACC_RTC__
    const float4 v = *(const float4*)from;
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
#else
    const FourFloats four = *(const FourFloats*)from;
    for (int i = 0; i < 4; ++i) to[i] = four.v[i];
#endif
}

static __device__ __forceinline__ void store4(float* to, const float* from) {
#ifdef __CUDACC_RTC__
    *(float4*)to = make_float4(from[0], from[1], from[2], from[3]);
#else
    *(FourFloats*)to = {{from[0], from[1], from[2], from[3]}};
#endif
}

// A thread holds four adjacent columns of every DOWN-th row.
template <int M, int N, int K, bool A_T, bool B_T, int LDA, int LDB, int THREADS>
struct Fp32Block {
    static constexpr int ACROSS = N / 4, DOWN = THREADS / ACROSS, EACH = (M + DOWN - 1) / DOWN;
    static_assert(DOWN >= 1, "more threads are needed across");
    int row0, col0;
    float sums[EACH][4];

    __device__ __forceinline__ explicit Fp32Block(int rank) : row0(rank / ACROSS), col0(rank % ACROSS * 4) {
        if (row0 >= DOWN) row0 = M;  // threads that are left over
#pragma unroll
        for (int i = 0; i < EACH * 4; ++i) (&sums[0][0])[i] = 0.0f;
    }

    __device__ __forceinline__ void multiply(const float* a, const float* b) {
        if (row0 >= M) return;
#pragma unroll 4
        for (int k = 0; k < K; ++k) {
            float right[4];
            if (B_T) {
#pragma unroll
                for (int j = 0; j < 4; ++j) right[j] = b[(col0 + j) * LDB + k];
            } else {
                load4(b + k * LDB + col0, right);
            }
#pragma unroll
            for (int i = 0; i < EACH; ++i) {
                const int row = row0 + i * DOWN;
                if (M % DOWN != 0 && row >= M) continue;
                const float left = A_T ? a[k * LDA + row] : a[row * LDA + k];
#pragma unroll
                for (int j = 0; j < 4; ++j) sums[i][j] = fmaf(left, right[j], sums[i][j]);
            }
        }
    }

    template <class F>
    __device__ __forceinline__ void each(F visit) {
        if (row0 >= M) return;
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            if (M % DOWN != 0 && row0 + i * DOWN >= M) continue;
#pragma unroll
            for (int j = 0; j < 4; ++j) visit(row0 + i * DOWN, col0 + j, sums[i][j]);
        }
    }
};

struct Fp32Math {
    static __device__ __forceinline__ float operand(float v) { return v; }
    template <int M, int N, int K, bool A_T, bool B_T, int LDA, int LDB, int THREADS>
    using Block = Fp32Block<M, N, K, A_T, B_T, LDA, LDB, THREADS>;
};
