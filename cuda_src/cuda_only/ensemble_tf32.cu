// Action values of every position class from both critics in one pass: product, softmax over atoms, expectation.
//
// A block keeps the weights of its pairs (class, action) in shared memory, in the order in which tensor cores want
// them, and takes tiles of 512 rows; a warp keeps 32 rows of encodings in registers (c51_rows.cuh). So the wide product
// reads its left operand once a block, and the logits (2,079 a row) never leave the registers.
#include "cuda_only/c51_rows.cuh"

#define VALUE_WARPS 16
#define VALUE_ROWS (32 * VALUE_WARPS)  // rows of a tile
#define VALUE_PAIRS 25                 // pairs of a block at most
#define VALUE_STRIDE 27                // of a warp's rows of results: more than the pairs, and odd
#define IQN_TILES 4

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// Inputs of a group of 16 are dealt out so that a lane reads four adjacent ones: its inputs 4t, 4t + 1 are the depths
// 2t, 2t + 1 of the step, 4t + 2, 4t + 3 the depths 2t + 8, 2t + 9. Both operands use this order.
struct ValueWeights {
    unsigned int* tiles;  // [PAIR_BLOCKS each + IQN_TILES][PAIR_STEPS][32 lanes][2], halves; logits in powers of two
    float* bias;          // [each][24]

    // Column `col` of the tile: an atom of a pair, or E[IQN] of a pair; null where there is none.
    static __device__ __forceinline__ const float* column(const float* w_c51, const float* iqn_mean_w, int tile,
                                                          int col, int first, int each, int pairs) {
        const bool iqn = tile >= PAIR_BLOCKS * each;
        const int atom = tile % PAIR_BLOCKS * 8 + col;
        const int pair = first + (iqn ? (tile - PAIR_BLOCKS * each) * 8 + col : tile / PAIR_BLOCKS);
        if (pair >= pairs || (iqn ? pair >= first + each : atom >= C51_ATOMS)) return nullptr;
        return iqn ? iqn_mean_w + pair : w_c51 + pair * C51_ATOMS + atom;
    }

    __device__ __forceinline__ void load(const float* w_c51, const float* b_c51, const float* iqn_mean_w, int first,
                                         int each, int pairs) const {
        const int count = (PAIR_BLOCKS * each + IQN_TILES) * PAIR_STEPS * 32;
#pragma unroll 6
        for (int i = threadIdx.x; i < count; i += blockDim.x) {
            const int lane = i % 32, step = i / 32 % PAIR_STEPS, tile = i / (32 * PAIR_STEPS);
            const float* from = column(w_c51, iqn_mean_w, tile, lane / 4, first, each, pairs);
            const bool iqn = tile >= PAIR_BLOCKS * each;
            const long long ld = iqn ? pairs : (long long)pairs * C51_ATOMS;
            float w[4];
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                w[e] = from ? from[(16 * step + 4 * (lane % 4) + e) * ld] * (iqn ? 1.0f : LOG2_E) : 0.0f;
            }
            tiles[2 * i] = to_halves(w[0], w[1]);
            tiles[2 * i + 1] = to_halves(w[2], w[3]);
        }
        for (int i = threadIdx.x; i < each * C51_PLACES; i += blockDim.x) {
            const int atom = i % C51_PLACES, pair = first + i / C51_PLACES;
            bias[i] = atom < C51_ATOMS && pair < pairs ? b_c51[pair * C51_ATOMS + atom] * LOG2_E : NO_ATOM;
        }
    }
};

// 32 rows of encodings: rows (16 m + g + 8 half) of the warp, inputs 16 s + 4 t to + 3.
static __device__ __forceinline__ void load_encodings(const float* h, int row0, int rows, int g, int t,
                                                      unsigned int (*a)[PAIR_STEPS][4]) {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = row0 + 16 * m + 8 * half + g;
            const float* from = h + (long long)(row < rows ? row : rows - 1) * HIDDEN_DIM + 4 * t;
#pragma unroll
            for (int s = 0; s < PAIR_STEPS; ++s) {
                const float4 v = *(const float4*)(from + 16 * s);
                a[m][s][half] = to_halves(v.x, v.y);
                a[m][s][2 + half] = to_halves(v.z, v.w);
            }
        }
    }
}

#endif

// rl_ensemble_q_tf32: alpha E[C51] + (1 - alpha) E[IQN] of every class and action.
// launch: blocks groups*((P*N_ACTIONS + each - 1)/each), block 512, shared 2048*(3*each + 4) + 96*each + 55296
// chain: 7 us
// fuses: rl_c51_expected_q, rl_ensemble_action_value
// Block b takes pairs [c each, (c + 1) each), c = b mod chunks, each at most 25, and tiles of 512 rows, group b / chunks
// first, then every groups-th. Operands have the mantissa of TF32, sums and softmax are float32. h [rows, 128]; w_c51
// [128, P*11*21]; b_c51 [P*11*21]; iqn_mean_w [128, P*11] of rl_iqn_mean_embedding; b_iqn [P*11]; ensemble_q [rows, P*11].
// Slots read: C51_V_MIN, C51_V_MAX, ENSEMBLE_ALPHA.
extern "C" __global__ void __launch_bounds__(32 * VALUE_WARPS, 1) rl_ensemble_q_tf32(
    const float* h, const float* w_c51, const float* b_c51, const float* iqn_mean_w, const float* b_iqn,
    const float* isv, float* ensemble_q, int rows, int P, int each, int groups) {
    extern __shared__ __align__(16) float memory[];
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    const int pairs = P * N_ACTIONS, chunks = (pairs + each - 1) / each, first = blockIdx.x % chunks * each;
    const int count = pairs - first < each ? pairs - first : each;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const ValueWeights weights = {(unsigned int*)memory, memory + 512 * (PAIR_BLOCKS * each + IQN_TILES)};
    float* results = weights.bias + C51_PLACES * each + warp * 32 * VALUE_STRIDE;
    weights.load(w_c51, b_c51, iqn_mean_w, first, each, pairs);
    __syncthreads();
    const float v_min = isv[ISV_C51_V_MIN], step = (isv[ISV_C51_V_MAX] - v_min) / (C51_ATOMS - 1);
    const float alpha = isv[ISV_ENSEMBLE_ALPHA];
    const int own_row = 16 * (t / 2) + 8 * (t % 2) + g;  // of the quad's four rows, the one this lane writes

    for (int row0 = (blockIdx.x / chunks * VALUE_WARPS + warp) * 32; row0 < rows; row0 += groups * VALUE_ROWS) {
        unsigned int a[2][PAIR_STEPS][4];
        load_encodings(h, row0, rows, g, t, a);
#pragma unroll 1
        for (int tile = 0; 8 * tile < count; ++tile) {
            float sums[2][1][4] = {};
            multiply<2, 1>(a, weights.tiles + 2 * lane + (PAIR_BLOCKS * each + tile) * PAIR_STEPS * 64, sums);
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const int pair = 8 * tile + 2 * t + i % 2, row = 16 * (i / 4) + 8 * (i / 2 % 2) + g;
                if (pair < count) results[row * VALUE_STRIDE + pair] = sums[i / 4][0][i % 4] + b_iqn[first + pair];
            }
        }
        __syncwarp();
#pragma unroll 1
        for (int pair = 0; pair < count; ++pair) {
            float sums[2][PAIR_BLOCKS][4];
            begin_pair<2>(sums, weights.bias + pair * C51_PLACES, t);
            multiply<2, PAIR_BLOCKS>(a, weights.tiles + 2 * lane + pair * PAIR_WORDS, sums);
            const float index = expected_index(sums, t);
            float* result = results + own_row * VALUE_STRIDE + pair;
            *result = fmaf(alpha, fmaf(step, index, v_min) - *result, *result);
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
