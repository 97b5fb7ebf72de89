// The C51 heads as the tensor-core kernels read them: noisy weights in the order of matrix fragments, gradients in parts.
//
// A pair (class, action) has 24 places for its 21 atoms: three blocks of eight columns. Logits are in powers of two: the
// weights and biases are those of the head times log2 e, and the bias of a place without an atom is NO_ATOM. Weights are
// halves, whose ten bits of mantissa are those of TF32. Of sixteen inputs and eight columns lane 4 g + t of a warp has of
// column g inputs 2t and 2t + 1, then 2t + 8 and 2t + 9, a word each.
//   c51_packed_w [2 heads, pairs, 3 blocks, 8 steps, 32 lanes, 2] words, c51_packed_b [2 heads, pairs, 24]: online, target
//   c51_grad_parts [slices, 129, pairs, 24]: gradients of the weights by a slice of the batch, input-major, 128 = bias
#pragma once
#include "generated/structure.cuh"
#include "include/half_bits.cuh"
#include "nets/noise.cuh"

#define C51_ATOMS 21
#define C51_PLACES 24       // of a pair's atoms
#define PAIR_BLOCKS (C51_PLACES / 8)
#define PAIR_STEPS (HIDDEN_DIM / 16)
#define PAIR_WORDS (PAIR_BLOCKS * PAIR_STEPS * 64)  // of a pair's packed weights
#define NO_ATOM (-3e38f)    // bias of a place without an atom: its softmax is 0
#define LOG2_E 1.44269504f

#define TILE_PAIRS 8        // pairs of a tile
#define TILE_INPUTS 8       // inputs of a tile; the last tile of a column has the bias besides
#define TILE_ROW 196        // 8 * 24 floats and four, so that rows begin in different banks
#define TILE_THREADS 512

// Noisy weights of a tile, of both heads, input-major. Row TILE_INPUTS is the bias.
struct C51Tile {
    float head[2][TILE_INPUTS + 1][TILE_ROW];
};

// Where the four tensors of a head stand in its part of the flat vector: w, b, sw, sb, each padded to whole chunks of 32.
struct C51Places {
    int outputs, b, sw, sb, end;
};

static __device__ inline C51Places c51_places(int P) {
    const int outputs = P * N_ACTIONS * C51_ATOMS;
    const int w = (HIDDEN_DIM * outputs + 31) / 32 * 32, b = (outputs + 31) / 32 * 32;
    return C51Places{outputs, w, w + b, 2 * w + b, 2 * (w + b)};
}

// The tile of a block: `tile` counts columns of tiles (pairs) fastest.
struct C51Corner {
    int input0, rows, pair0, pairs;  // rows: the inputs, one more with the bias; pairs: those that exist
};

static __device__ inline C51Corner c51_corner(int tile, int P) {
    const int all = P * N_ACTIONS, across = (all + TILE_PAIRS - 1) / TILE_PAIRS;
    const int pair0 = tile % across * TILE_PAIRS, input0 = tile / across * TILE_INPUTS;
    const bool last = input0 + TILE_INPUTS == HIDDEN_DIM;
    return C51Corner{input0, TILE_INPUTS + (last ? 1 : 0), pair0, all - pair0 < TILE_PAIRS ? all - pair0 : TILE_PAIRS};
}

static __device__ inline void clear_tile(C51Tile* tile) {
    float* all = &tile->head[0][0][0];
    for (int i = threadIdx.x; i < 2 * (TILE_INPUTS + 1) * TILE_ROW; i += blockDim.x) all[i] = 0.0f;
}

// Writes a tile in packed order; the rest of a last column of tiles does not exist. All threads; barriers are the caller's.
static __device__ inline void store_packed(const C51Tile& tile, C51Corner at, unsigned int* packed_w, float* packed_b,
                                           int P) {
    const int all = P * N_ACTIONS, each = at.pairs * PAIR_BLOCKS * 32;
    const int step = at.input0 / 16, word = at.input0 / 8 % 2;  // eight inputs are one word of a step's two
    for (int i = threadIdx.x; i < 2 * each; i += blockDim.x) {
        const int head = i / each, pair = i % each / (PAIR_BLOCKS * 32), block = i / 32 % PAIR_BLOCKS, lane = i % 32;
        const int input = lane % 4 * 2, place = pair * C51_PLACES + block * 8 + lane / 4;
        const long long to = ((long long)(head * all + at.pair0 + pair) * PAIR_BLOCKS + block) * PAIR_STEPS + step;
        packed_w[to * 64 + 2 * lane + word] =
            pack_halves(tile.head[head][input][place] * LOG2_E, tile.head[head][input + 1][place] * LOG2_E);
    }
    if (at.rows == TILE_INPUTS) return;
    for (int i = threadIdx.x; i < 2 * at.pairs * C51_PLACES; i += blockDim.x) {
        const int head = i / (at.pairs * C51_PLACES), place = i % (at.pairs * C51_PLACES);
        packed_b[(head * all + at.pair0) * C51_PLACES + place] =
            place % C51_PLACES < C51_ATOMS ? tile.head[head][TILE_INPUTS][place] * LOG2_E : NO_ATOM;
    }
}

// Element i of a tile's outputs x rows: row (local), output (global) and its place in a tile's row.
struct C51Element {
    int row, output, place;
};

static __device__ inline C51Element c51_element(int i, C51Corner at) {
    const int width = at.pairs * C51_ATOMS, row = i / width, column = i - row * width;
    return C51Element{row, at.pair0 * C51_ATOMS + column, column / C51_ATOMS * C51_PLACES + column % C51_ATOMS};
}

// A noisy weight, or with row = TILE_INPUTS a noisy bias. noise: one head's inputs, then outputs.
static __device__ inline float c51_noisy(float w, float sw, const float* noise, C51Element e, int input0) {
    const float out = noise[HIDDEN_DIM + e.output];
    return e.row == TILE_INPUTS ? noisy_bias(w, sw, out) : noisy_weight(w, sw, noise[input0 + e.row], out);
}
