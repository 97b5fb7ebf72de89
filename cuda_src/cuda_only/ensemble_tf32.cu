// Action values of every position class from both critics in one pass: product, softmax over atoms, expectation.
//
// A block keeps the weights of its pairs (class, action) in shared memory, in the order in which tensor cores want
// them, and takes tiles of 256 rows; a warp keeps 32 rows of encodings in registers, as TF32. So the wide product reads
// its left operand once, its right operand once a block, and the logits (2,079 a row) never leave the registers. Each
// pair's 21 atoms are padded to three tiles of eight columns with a bias of -3e38, which vanishes in the softmax.
#include "cuda_only/mma.cuh"
#include "generated/isv_slots.cuh"
#include "nets/c51.cuh"

#define VALUE_WARPS 8
#define VALUE_ROWS (32 * VALUE_WARPS)  // rows of a tile
#define VALUE_PAIRS 11                 // pairs of a block at most
#define VALUE_STRIDE 13                // of a warp's rows of results: eleven, and odd
#define VALUE_STEPS 8                  // groups of 16 inputs: two steps of a tensor core
#define PAIR_TILES 3
#define PAIR_COLUMNS (8 * PAIR_TILES)
#define IQN_TILES 2

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// Inputs of a group of 16 are dealt out so that a lane reads four adjacent ones: its inputs 4t, 4t + 1 are the depths
// t, t + 4 of the first step, 4t + 2, 4t + 3 those of the second. Both operands use this order.
struct ValueWeights {
    float* tiles;  // [PAIR_TILES each + IQN_TILES][VALUE_STEPS][32 lanes][4], TF32
    float* bias;   // [each][24]

    // Column `col` of the tile: an atom of a pair, or E[IQN] of a pair; null where there is none.
    static __device__ __forceinline__ const float* column(const float* w_c51, const float* iqn_mean_w, int tile,
                                                          int col, int first, int each, int pairs) {
        const bool iqn = tile >= PAIR_TILES * each;
        const int atom = tile % PAIR_TILES * 8 + col;
        const int pair = first + (iqn ? (tile - PAIR_TILES * each) * 8 + col : tile / PAIR_TILES);
        if (pair >= pairs || (iqn ? pair >= first + each : atom >= C51_ATOMS)) return nullptr;
        return iqn ? iqn_mean_w + pair : w_c51 + pair * C51_ATOMS + atom;
    }

    __device__ __forceinline__ void load(const float* w_c51, const float* b_c51, const float* iqn_mean_w, int first,
                                         int each, int pairs) const {
        const int count = (PAIR_TILES * each + IQN_TILES) * VALUE_STEPS * 32;
        for (int i = threadIdx.x; i < count; i += blockDim.x) {
            const int lane = i % 32, step = i / 32 % VALUE_STEPS, tile = i / (32 * VALUE_STEPS);
            const float* from = column(w_c51, iqn_mean_w, tile, lane / 4, first, each, pairs);
            const long long ld = tile >= PAIR_TILES * each ? pairs : (long long)pairs * C51_ATOMS;
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                tiles[4 * i + e] = from ? __uint_as_float(to_tf32(from[(16 * step + 4 * (lane % 4) + e) * ld])) : 0.0f;
            }
        }
        for (int i = threadIdx.x; i < each * PAIR_COLUMNS; i += blockDim.x) {
            const int atom = i % PAIR_COLUMNS, pair = first + i / PAIR_COLUMNS;
            bias[i] = atom < C51_ATOMS && pair < pairs ? b_c51[pair * C51_ATOMS + atom] : -3e38f;
        }
    }
};

// 32 rows of encodings: rows (16 m + g + 8 half) of the warp, inputs 16 s + 4 t to + 3.
static __device__ __forceinline__ void load_encodings(const float* h, int row0, int rows, int g, int t,
                                                      unsigned int (*a)[2][VALUE_STEPS][4]) {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = row0 + 16 * m + 8 * half + g;
            const float* from = h + (long long)(row < rows ? row : rows - 1) * HIDDEN_DIM + 4 * t;
#pragma unroll
            for (int s = 0; s < VALUE_STEPS; ++s) {
                const float4 v = *(const float4*)(from + 16 * s);
                a[m][half][s][0] = to_tf32(v.x), a[m][half][s][1] = to_tf32(v.y);
                a[m][half][s][2] = to_tf32(v.z), a[m][half][s][3] = to_tf32(v.w);
            }
        }
    }
}

// sums = the warp's 32 rows x TILES tiles of columns, from the first lane's place in the weights on.
template <int TILES>
static __device__ __forceinline__ void multiply(const unsigned int (*a)[2][VALUE_STEPS][4], const float* weights,
                                                float (*sums)[TILES][4]) {
#pragma unroll
    for (int i = 0; i < 2 * TILES * 4; ++i) (&sums[0][0][0])[i] = 0.0f;
#pragma unroll
    for (int s = 0; s < VALUE_STEPS; ++s) {
        float4 b[TILES];
#pragma unroll
        for (int j = 0; j < TILES; ++j) b[j] = *(const float4*)(weights + (j * VALUE_STEPS + s) * 128);
        // The second step of a tile waits for its first: all first steps go before it.
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
            for (int i = 0; i < 2 * TILES; ++i) {
                const int m = i % 2, j = i / 2, e = 2 * half;
                const unsigned int left[4] = {a[m][0][s][e], a[m][1][s][e], a[m][0][s][e + 1], a[m][1][s][e + 1]};
                const float low = half ? b[j].z : b[j].x, high = half ? b[j].w : b[j].y;
                const unsigned int right[2] = {__float_as_uint(low), __float_as_uint(high)};
                mma_tf32(sums[m][j], left, right);
            }
        }
    }
}

static __device__ __forceinline__ float quad_sum(float v) {
    v += __shfl_xor_sync(0xffffffffu, v, 1);
    return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

// Mean atom index of one row of a pair: its 21 logits lie in the quad's registers, six a lane. NaN stays NaN.
static __device__ __forceinline__ float mean_index(const float (*sums)[4], int half, const float2* bias, int t) {
    float x[2 * PAIR_TILES];
#pragma unroll
    for (int j = 0; j < PAIR_TILES; ++j) {
        x[2 * j] = sums[j][2 * half] + bias[j].x;
        x[2 * j + 1] = sums[j][2 * half + 1] + bias[j].y;
    }
    float top = x[0];
#pragma unroll
    for (int i = 1; i < 2 * PAIR_TILES; ++i) top = x[i] > top ? x[i] : top;
    float other = __shfl_xor_sync(0xffffffffu, top, 1);
    top = other > top ? other : top;
    other = __shfl_xor_sync(0xffffffffu, top, 2);
    top = other > top ? other : top;
    float sum = 0.0f, weighted = 0.0f;
#pragma unroll
    for (int i = 0; i < 2 * PAIR_TILES; ++i) {
        const float e = __expf(x[i] - top);
        sum += e;
        weighted = fmaf((float)(i / 2 * 8 + 2 * t + i % 2), e, weighted);
    }
    return __fdividef(quad_sum(weighted), quad_sum(sum));
}

#endif

// rl_ensemble_q_tf32: alpha E[C51] + (1 - alpha) E[IQN] of every class and action.
// launch: blocks groups*((P*N_ACTIONS + each - 1)/each), block 256, shared 4096*(3*each + 2) + 96*each + 13312
// fuses: rl_c51_expected_q, rl_ensemble_action_value
// Block b takes pairs [c each, (c + 1) each), c = b mod chunks, each at most 11, and tiles of 256 rows, group
// b / chunks first, then every groups-th. Products are TF32, sums and softmax float32. h [rows, 128]; w_c51 [128, P*11*21]; b_c51
// [P*11*21]; iqn_mean_w [128, P*11] of rl_iqn_mean_embedding; b_iqn [P*11]; ensemble_q [rows, P*11].
// Slots read: C51_V_MIN, C51_V_MAX, ENSEMBLE_ALPHA.
extern "C" __global__ void __launch_bounds__(32 * VALUE_WARPS, 1) rl_ensemble_q_tf32(
    const float* h, const float* w_c51, const float* b_c51, const float* iqn_mean_w, const float* b_iqn,
    const float* isv, float* ensemble_q, int rows, int P, int each, int groups) {
    extern __shared__ __align__(16) float memory[];
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    const int pairs = P * N_ACTIONS, chunks = (pairs + each - 1) / each, first = blockIdx.x % chunks * each;
    const int count = pairs - first < each ? pairs - first : each;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const ValueWeights weights = {memory, memory + 1024 * (PAIR_TILES * each + IQN_TILES)};
    float* results = weights.bias + PAIR_COLUMNS * each + warp * 32 * VALUE_STRIDE;
    weights.load(w_c51, b_c51, iqn_mean_w, first, each, pairs);
    __syncthreads();
    const float v_min = isv[ISV_C51_V_MIN], step = (isv[ISV_C51_V_MAX] - v_min) / (C51_ATOMS - 1);
    const float alpha = isv[ISV_ENSEMBLE_ALPHA];
    const int own_row = 16 * (t / 2) + 8 * (t % 2) + g;  // of the quad's four rows, the one this lane writes

    for (int row0 = (blockIdx.x / chunks * VALUE_WARPS + warp) * 32; row0 < rows; row0 += groups * VALUE_ROWS) {
        unsigned int a[2][2][VALUE_STEPS][4];
        load_encodings(h, row0, rows, g, t, a);
        {
            float sums[2][IQN_TILES][4];
            multiply<IQN_TILES>(a, weights.tiles + 4 * lane + PAIR_TILES * each * VALUE_STEPS * 128, sums);
#pragma unroll
            for (int i = 0; i < 2 * IQN_TILES * 4; ++i) {
                const int m = i / 8, tile = i / 4 % 2, pair = 8 * tile + 2 * t + i % 2, row = 16 * m + 8 * (i / 2 % 2) + g;
                if (pair < count) results[row * VALUE_STRIDE + pair] = sums[m][tile][i % 4] + b_iqn[first + pair];
            }
        }
        __syncwarp();
#pragma unroll 1
        for (int pair = 0; pair < count; ++pair) {
            float sums[2][PAIR_TILES][4], q = 0.0f;
            multiply<PAIR_TILES>(a, weights.tiles + 4 * lane + PAIR_TILES * pair * VALUE_STEPS * 128, sums);
            float2 bias[PAIR_TILES];
#pragma unroll
            for (int j = 0; j < PAIR_TILES; ++j) {
                bias[j] = *(const float2*)(weights.bias + pair * PAIR_COLUMNS + 8 * j + 2 * t);
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float index = mean_index(sums[i / 2], i % 2, bias, t);
                q = t == i ? index : q;
            }
            float* result = results + own_row * VALUE_STRIDE + pair;
            *result = fmaf(alpha, fmaf(step, q, v_min) - *result, *result);
        }
        __syncwarp();
        for (int i = lane; i < 32 * count; i += 32) {
            const int row = i / count, pair = i - row * count;
            float* to = ensemble_q + (long long)(row0 + row) * pairs + first + pair;
            if (row0 + row < rows) *to = results[row * VALUE_STRIDE + pair];
        }
        __syncwarp();
    }
#endif
}
