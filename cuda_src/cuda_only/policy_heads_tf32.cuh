// The products of the policy and value heads, side by side, on tensor cores: TF32 operands, float32 sums.
//
// Columns: P*11 of the policy, then P of the value, padded with zeros to WIDTH. A block of 512 threads keeps the weights
// of both heads in shared memory and takes tiles of M rows, tile blockIdx.x + i gridDim.x, i ascending; what it needs of
// the next tile it asks for while it multiplies. Sums over rows stay in registers until the block ends;
// rl_policy_backward_reduce adds those of all blocks in order.
#pragma once
#include "cuda_only/block_tf32.cuh"
#include "generated/isv_slots.cuh"
#include "generated/structure.cuh"

#define POLICY_THREADS 512
#define POLICY_WIDTH(P) ((P) <= 9 ? 112 : 240)  // P at most 20
#define POLICY_H_STRIDE 136                     // 8 mod 32 (block_tf32.cuh)
#define POLICY_SUMS (1 + HEAD_CONTEXT_DIM)      // of a column beside its weights: bias, terms of the context
#define POLICY_GROUPS (POLICY_THREADS / 128)    // threads that share a column's sums
// Sums of a block: gradients of the weights [128][WIDTH], of the bias [WIDTH], of the context's terms [3][WIDTH].
#define POLICY_PART_SIZE(width) ((HIDDEN_DIM + POLICY_SUMS) * (width))

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// Column c of both heads: of which matrix, and where there; null where it is a pad.
template <class Element>
static __device__ __forceinline__ Element* policy_column(Element* pi, Element* v, int row, int c, int P) {
    const int pairs = P * N_ACTIONS;
    if (c < pairs) return pi + row * pairs + c;
    return c < pairs + P ? v + row * P + c - pairs : nullptr;
}

// A stretch of memory that is a matrix of so many columns: the row of element i, i below 2^16 and columns below 2^8.
struct FlatRows {
    unsigned int columns, factor;

    __device__ __forceinline__ explicit FlatRows(int width) : columns(width), factor((1u << 24) / width + 1u) {}
    __device__ __forceinline__ int row(int i) const { return (int)((unsigned int)i * factor >> 24); }
};

// Weights of both heads [128][WIDTH], rows of STRIDE floats, as TF32 numbers.
template <int WIDTH, int STRIDE>
static __device__ __forceinline__ void load_policy_weights(float* to, const float* w_pi, const float* w_v, int P) {
    const int pairs = P * N_ACTIONS;
#pragma unroll 14
    for (int i = threadIdx.x; i < HIDDEN_DIM * WIDTH; i += POLICY_THREADS) {
        const int k = i / WIDTH, c = i - k * WIDTH, of_v = c - pairs;
        const bool pi = of_v < 0, real = of_v < P;
        // Every thread loads, also where a pad is: a load behind a branch would wait for the one before.
        const float v = (pi ? w_pi : w_v)[pi ? k * pairs + c : (real ? k * P + of_v : 0)];
        to[k * STRIDE + c] = real ? Tf32Math::operand(v) : 0.0f;
    }
}

// Encodings of a tile on their way from device to shared memory: this thread's share in registers.
template <int M, int STRIDE>
struct TileOfH {
    static constexpr int EACH = (M * HIDDEN_DIM / 4 + POLICY_THREADS - 1) / POLICY_THREADS;
    float v[EACH][4];

    __device__ __forceinline__ void fetch(const float* h, int row0, int rows) {
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            const int at = threadIdx.x + i * POLICY_THREADS, r = at / (HIDDEN_DIM / 4);
            v[i][0] = v[i][1] = v[i][2] = v[i][3] = 0.0f;
            if (r < M && row0 + r < rows) load4(h + (long long)row0 * HIDDEN_DIM + 4 * at, v[i]);
        }
    }

    __device__ __forceinline__ void keep(float* shared) {
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            const int at = threadIdx.x + i * POLICY_THREADS, r = at / (HIDDEN_DIM / 4), k = at % (HIDDEN_DIM / 4) * 4;
            if (r >= M) continue;
#pragma unroll
            for (int e = 0; e < 4; ++e) v[i][e] = Tf32Math::operand(v[i][e]);
            store4(shared + r * STRIDE + k, v[i]);
        }
    }
};

// Outputs of both heads for every class, without bias.
template <int M, int WIDTH>
struct PolicyForward {
    static constexpr int H_STRIDE = HIDDEN_DIM + 4, W_STRIDE = WIDTH + 8;
    using Outputs = Tf32Block<M, WIDTH, HIDDEN_DIM, false, false, H_STRIDE, W_STRIDE, POLICY_THREADS>;
    struct Shared {
        float h[M * H_STRIDE], w[HIDDEN_DIM * W_STRIDE], outputs[M * WIDTH];
    };

    // `count` floats of shared to device memory, both aligned to 16 bytes.
    static __device__ __forceinline__ void store_flat(float* to, const float* from, int count) {
        for (int i = 4 * threadIdx.x; i + 3 < count; i += 4 * POLICY_THREADS) {
            float v[4];
            load4(from + i, v);
            store4(to + i, v);
        }
        const int rest = count / 4 * 4 + threadIdx.x;
        if (rest < count) to[rest] = from[rest];
    }

    static __device__ __forceinline__ void run(float* memory, const float* h, const float* w_pi, const float* w_v,
                                               float* pi_all, float* v_all, int rows, int P) {
        Shared& s = *(Shared*)memory;
        const int pairs = P * N_ACTIONS;
        TileOfH<M, H_STRIDE> ahead;
        ahead.fetch(h, blockIdx.x * M, rows);
        load_policy_weights<WIDTH, W_STRIDE>(s.w, w_pi, w_v, P);
        for (int row0 = blockIdx.x * M; row0 < rows; row0 += gridDim.x * M) {
            ahead.keep(s.h);
            __syncthreads();
            ahead.fetch(h, row0 + gridDim.x * M, rows);
            Outputs outputs(threadIdx.x);
            outputs.multiply(s.h, s.w);
            // As it lies in device memory: the tile's rows of one head, then of the other.
            outputs.each([&](int r, int c, float& v) {
                float* to = policy_column(s.outputs, s.outputs + M * pairs, r, c, P);
                if (to) *to = v;
            });
            __syncthreads();
            const int here = rows - row0 < M ? rows - row0 : M;
            store_flat(pi_all + (long long)row0 * pairs, s.outputs, here * pairs);
            store_flat(v_all + (long long)row0 * P, s.outputs + M * pairs, here * P);
        }
    }
};

// What the backward reads, and the sums it writes.
struct PolicyGradients {
    const float *h, *grad_pi, *grad_v, *context;  // [rows, 128], [rows, P*11], [rows, P], [rows, 3]
    const float *w_pi, *w_v;
    float *grad_h, *parts;
    int rows, P, first;  // first: grad_h is overwritten, else added to
};

// Gradients of weights, biases and context terms; of the encodings.
template <int M, int WIDTH>
struct PolicyBackward {
    static constexpr int STRIDE = WIDTH + 8, W_STRIDE = WIDTH + 4;
    static constexpr int PI_LOADS = (M * WIDTH / 4 + POLICY_THREADS - 1) / POLICY_THREADS;  // of four floats
    static constexpr int V_LOADS = (M * WIDTH / 12 + POLICY_THREADS - 1) / POLICY_THREADS;  // a value for eleven logits
    static constexpr int COLUMNS = (WIDTH + 127) / 128;  // of a thread
    using GradW = Tf32Block<HIDDEN_DIM, WIDTH, M, true, false, POLICY_H_STRIDE, STRIDE, POLICY_THREADS>;
    using GradH = Tf32Block<M, HIDDEN_DIM, WIDTH, false, true, STRIDE, W_STRIDE, POLICY_THREADS>;
    struct Shared {
        float h[M * POLICY_H_STRIDE], grad[M * STRIDE], w[HIDDEN_DIM * W_STRIDE];
        float held[M][POLICY_SUMS];  // 1, then the trade context
    };
    struct Ahead {
        TileOfH<M, POLICY_H_STRIDE> h;
        float pi[PI_LOADS][4], v[V_LOADS], held;
    };

    static __device__ __forceinline__ void fetch(Ahead& ahead, const PolicyGradients& u, int row0) {
        ahead.h.fetch(u.h, row0, u.rows);
        const int pairs = u.P * N_ACTIONS, here = u.rows - row0 < M ? u.rows - row0 : M;  // perhaps negative
        const float* pi = u.grad_pi + (long long)row0 * pairs;
#pragma unroll
        for (int i = 0; i < PI_LOADS; ++i) {
            const int at = 4 * (threadIdx.x + i * POLICY_THREADS);
            if (at + 3 < here * pairs) {
                load4(pi + at, ahead.pi[i]);
            } else {
#pragma unroll
                for (int e = 0; e < 4; ++e) ahead.pi[i][e] = at + e < here * pairs ? pi[at + e] : 0.0f;
            }
        }
#pragma unroll
        for (int i = 0; i < V_LOADS; ++i) {
            const int at = threadIdx.x + i * POLICY_THREADS;
            ahead.v[i] = at < here * u.P ? u.grad_v[(long long)row0 * u.P + at] : 0.0f;
        }
        const int r = threadIdx.x / POLICY_SUMS, k = threadIdx.x % POLICY_SUMS;
        ahead.held = 1.0f;
        if (k > 0) ahead.held = r < here ? u.context[(long long)(row0 + r) * HEAD_CONTEXT_DIM + k - 1] : 0.0f;
    }

    static __device__ __forceinline__ void keep(Shared& s, Ahead& ahead, int P) {
        ahead.h.keep(s.h);
        const int pairs = P * N_ACTIONS;
        const FlatRows pi_rows(pairs), v_rows(P);
#pragma unroll
        for (int i = 0; i < PI_LOADS; ++i) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int at = 4 * (threadIdx.x + i * POLICY_THREADS) + e, r = pi_rows.row(at);
                if (at < M * pairs) s.grad[r * STRIDE + at - r * pairs] = Tf32Math::operand(ahead.pi[i][e]);
            }
        }
#pragma unroll
        for (int i = 0; i < V_LOADS; ++i) {
            const int at = threadIdx.x + i * POLICY_THREADS, r = v_rows.row(at);
            if (at < M * P) s.grad[r * STRIDE + pairs + at - r * P] = Tf32Math::operand(ahead.v[i]);
        }
        if (threadIdx.x < M * POLICY_SUMS) s.held[threadIdx.x / POLICY_SUMS][threadIdx.x % POLICY_SUMS] = ahead.held;
    }

    // Bias and context terms: 128 threads a column each, four groups a quarter of the rows each.
    static __device__ __forceinline__ void add_columns(const Shared& s, float (*sums)[POLICY_SUMS]) {
        const int group = threadIdx.x / 128;
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) {
            const int c = threadIdx.x % 128 + 128 * j;
            if (c >= WIDTH) continue;
#pragma unroll 4
            for (int r = group * (M / POLICY_GROUPS); r < (group + 1) * (M / POLICY_GROUPS); ++r) {
                float held[POLICY_SUMS];
                load4(s.held[r], held);
                const float g = s.grad[r * STRIDE + c];
#pragma unroll
                for (int k = 0; k < POLICY_SUMS; ++k) sums[j][k] = fmaf(held[k], g, sums[j][k]);
            }
        }
    }

    // The sums leave; the groups' shares of a column are added in order, through memory that nobody needs any more.
    static __device__ __forceinline__ void finish(Shared& s, const PolicyGradients& u, GradW& grad_w,
                                                  const float (*sums)[POLICY_SUMS]) {
        float* part = u.parts + (long long)blockIdx.x * POLICY_PART_SIZE(WIDTH);
        grad_w.each([&](int k, int c, float& v) { part[k * WIDTH + c] = v; });
        float* shares = s.w;  // [groups][POLICY_SUMS][WIDTH]
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) {
            const int c = threadIdx.x % 128 + 128 * j;
            for (int k = 0; k < POLICY_SUMS && c < WIDTH; ++k) {
                shares[(threadIdx.x / 128 * POLICY_SUMS + k) * WIDTH + c] = sums[j][k];
            }
        }
        __syncthreads();
        for (int i = threadIdx.x; i < POLICY_SUMS * WIDTH; i += POLICY_THREADS) {
            float sum = 0.0f;
            for (int g = 0; g < POLICY_GROUPS; ++g) sum += shares[g * POLICY_SUMS * WIDTH + i];
            part[HIDDEN_DIM * WIDTH + i] = sum;
        }
    }

    static __device__ __forceinline__ void run(float* memory, const PolicyGradients& u) {
        Shared& s = *(Shared*)memory;
        Ahead ahead;
        GradW grad_w(threadIdx.x);
        float sums[COLUMNS][POLICY_SUMS] = {};
        fetch(ahead, u, blockIdx.x * M);
        load_policy_weights<WIDTH, W_STRIDE>(s.w, u.w_pi, u.w_v, u.P);
        for (int i = threadIdx.x; i < M * WIDTH; i += POLICY_THREADS) {  // the pads stay zero
            if (i % WIDTH >= u.P * (N_ACTIONS + 1)) s.grad[i / WIDTH * STRIDE + i % WIDTH] = 0.0f;
        }
        for (int row0 = blockIdx.x * M; row0 < u.rows; row0 += gridDim.x * M) {
            keep(s, ahead, u.P);
            __syncthreads();
            grad_w.multiply(s.h, s.grad);
            add_columns(s, sums);
            fetch(ahead, u, row0 + gridDim.x * M);
            GradH grad_h(threadIdx.x);
            float before[sizeof(grad_h.sums) / sizeof(float)];  // what is there, asked for early
            int own = 0;
            grad_h.each([&](int r, int k, float&) {
                before[own++] = !u.first && row0 + r < u.rows ? u.grad_h[(long long)(row0 + r) * HIDDEN_DIM + k] : 0.0f;
            });
            grad_h.multiply(s.grad, s.w);
            own = 0;
            grad_h.each([&](int r, int k, float& v) {
                const float sum = before[own++] + v;
                if (row0 + r < u.rows) u.grad_h[(long long)(row0 + r) * HIDDEN_DIM + k] = sum;
            });
            __syncthreads();
        }
        finish(s, u, grad_w, sums);
    }
};

#endif
