// The C51 heads as the tensor-core kernels read them: noisy weights in the order of matrix fragments, gradients in parts.
//
// A pair (class, action) has 24 places for its 21 atoms, the last three 0: three blocks of eight columns. Its weights of
// eight inputs are 192 floats, which a warp reads in two accesses without gaps: lane 4 g + t holds inputs 2t and 2t + 1
// of atoms g, 8 + g (floats 4 lane to 4 lane + 3), then of atom 16 + g (floats 128 + 2 lane, + 1).
//   c51_packed_w [2 heads, pairs, 16, 192], c51_packed_b [2 heads, pairs, 24]: online, then target
//   c51_grad_parts [slices, 129, pairs, 24]: gradients of the weights by a slice of the batch, input-major, 128 = bias
#pragma once
#include "generated/structure.cuh"
#include "nets/noise.cuh"

#define C51_ATOMS 21
#define C51_PLACES 24       // of a pair's atoms
#define C51_STEP 192        // packed weights of a pair and eight inputs
#define C51_STEPS (HIDDEN_DIM / 8)

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
static __device__ inline void store_packed(const C51Tile& tile, C51Corner at, float* packed_w, float* packed_b, int P) {
    const int all = P * N_ACTIONS, each = at.pairs * (TILE_INPUTS / 8) * C51_STEP;
    for (int i = threadIdx.x; i < 2 * each; i += blockDim.x) {
        const int head = i / each, within = i % C51_STEP, step = i % each / C51_STEP % (TILE_INPUTS / 8);
        const int pair = i % each / (C51_STEP * (TILE_INPUTS / 8));
        const bool early = within < 128;
        const int lane = early ? within / 4 : (within - 128) / 2, block = early ? within % 4 / 2 : 2;
        const int input = step * 8 + lane % 4 * 2 + within % 2, place = block * 8 + lane / 4;
        const long long to = (long long)(head * all + at.pair0 + pair) * C51_STEPS + at.input0 / 8 + step;
        packed_w[to * C51_STEP + within] = tile.head[head][input][pair * C51_PLACES + place];
    }
    if (at.rows == TILE_INPUTS) return;
    for (int i = threadIdx.x; i < 2 * at.pairs * C51_PLACES; i += blockDim.x) {
        const int head = i / (at.pairs * C51_PLACES), place = i % (at.pairs * C51_PLACES);
        packed_b[(head * all + at.pair0) * C51_PLACES + place] = tile.head[head][TILE_INPUTS][place];
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
