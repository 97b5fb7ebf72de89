// What the two recurrence kernels of the CfC cell share: who does what in a block, tiles in operand order, products.
//
// Work. A block does all snapshots of a few tiles of rows; rows are independent. Each of its eight warps owns 16 hidden
// units with their gates; its weights stay in registers, as operands of the tensor cores, for the whole launch. A
// product is weights (16 outputs) times a tile (inputs by eight columns): the tile is the narrow operand, so that eight
// rows fill an instruction, and lane 4 g + t holds outputs g and g + 8 of columns 2 t and 2 t + 1. The outputs are
// always units 2 g and 2 g + 1 of the warp's 16: all four gates of a unit and row meet in one lane, and what goes to
// memory goes by two neighbours. A column is a row; where there are fewer rows than fill the GPU, a tile has four, in
// its even columns, and every lane has half the work around the products.
// Operands are half precision, sums float32. Half has TF32's ten bits of mantissa in half the space, and nothing but
// that lets the weights of a cell fit into one multiprocessor: sharing them among several would cost two exchanges of
// 500 cycles a snapshot. Its range is enough for weights (below 65504; above, h is NaN), for u and h (below 1.72), and
// for gradients scaled by a power of two. Below 6e-5 it rounds to 3e-8, which no sum of such operands notices.
// Rows behind B are computed as zeros and not stored.
// What a step begins with decides how long it takes: two warps of a scheduler hide nothing. So the places of a lane's
// operands are kept in registers (held: the compiler would derive them anew from the thread's number, twice a snapshot),
// and where tiles have four rows a block has one of them, without a loop over tiles, at 32-bit places.
#pragma once
#include "cuda_only/half.cuh"
#include "nets/cfc.cuh"

#define CFC_THREADS 256
#define CFC_UNITS 16                    // of a warp
#define CFC_COLUMNS 8                   // of a tile
#define CFC_GROUP 128                   // words of a group of 32 inputs: two instructions
#define CFC_TILE (HIDDEN_DIM / 32 * CFC_GROUP)  // words of a tile of 128 inputs

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// `v`, by way of a shuffle, through which no compiler sees what it was made from.
static __device__ __forceinline__ int held(int v) { return __shfl_sync(0xffffffffu, v, threadIdx.x & 31); }

// Word of a tile that holds inputs 8 chunk + 2 pair and the one after it, of a group of 32, in a column: a lane's
// operands of a group are the 16 contiguous bytes of its chunk. The exclusive or spreads readers and writers over all
// banks.
static __device__ __forceinline__ int tile_word(int group, int chunk, int column, int pair) {
    return group * CFC_GROUP + 4 * ((column * 4 + chunk) ^ (column & 6)) + pair;
}

// This lane's part of BLOCKS times (16 outputs, 16 STEPS inputs) of weights. Rows of weights start at multiples of 16
// bytes.
template <int BLOCKS, int STEPS>
struct CfcWeights {
    unsigned int part[BLOCKS][STEPS][4];

    // Step s of a block: four inputs of output g and of output g + 8.
    __device__ __forceinline__ void set(int block, int s, const float (&a)[4], const float (&b)[4]) {
        part[block][s][0] = to_halves(a[0], a[1]);
        part[block][s][1] = to_halves(b[0], b[1]);
        part[block][s][2] = to_halves(a[2], a[3]);
        part[block][s][3] = to_halves(b[2], b[3]);
    }

    // First of a lane's four inputs of step s, before its own 8 t.
    static __device__ __forceinline__ constexpr int input(int s) { return s / 2 * 32 + s % 2 * 4; }

    // d = weights times tile. Each output is SUMS sums of every SUMS-th instruction's inputs, added in pairs at the
    // end, so that the tensor cores always have an instruction that waits for none before it.
    // at: the tile from the lane's first operand on (CfcLane::read).
    template <int SUMS>
    __device__ __forceinline__ void times(const unsigned int* at, float (&d)[BLOCKS][4]) const {
        float sum[BLOCKS][SUMS][4] = {};
#pragma unroll
        for (int s = 0; s < STEPS; s += 2) {
            const uint4 b = *(const uint4*)(at + s / 2 * CFC_GROUP);
#pragma unroll
            for (int m = 0; m < BLOCKS; ++m) {
                mma_half(sum[m][s % SUMS], part[m][s], b.x, b.y);
                mma_half(sum[m][(s + 1) % SUMS], part[m][s + 1], b.z, b.w);
            }
        }
#pragma unroll
        for (int m = 0; m < BLOCKS; ++m) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
#pragma unroll
                for (int half = SUMS / 2; half > 0; half /= 2) {
#pragma unroll
                    for (int k = 0; k < half; ++k) sum[m][k][i] += sum[m][k + half][i];
                }
                d[m][i] = sum[m][0][i];
            }
        }
    }
};

// A lane's place: units 2 g and 2 g + 1 of its warp's, ROWS (1 or 2) rows of a tile: column 2 t, and 2 t + 1 for two.
// With one row a block has one tile.
template <int ROWS>
struct CfcLane {
    int warp, g, t, unit, first_row, left, B;
    int read, write;  // words of a tile: the lane's first operand of a product; its units as inputs of the next

    __device__ __forceinline__ CfcLane(int tiles, int B)
        : warp(threadIdx.x / 32), g((threadIdx.x & 31) / 4), t(threadIdx.x & 3), unit(held(warp * CFC_UNITS + 2 * g)),
          first_row((int)blockIdx.x * (ROWS == 1 ? 1 : tiles) * 4 * ROWS + t * ROWS), B(B),
          read(held(tile_word(0, threadIdx.x & 3, (threadIdx.x & 31) >> 2, 0))),
          write(held(tile_word(warp / 2, 2 * (warp & 1) + g / 4, 2 * t, g & 3))) {
        const int here = (B - (int)blockIdx.x * tiles * 4 * ROWS + 4 * ROWS - 1) / (4 * ROWS);
        left = here < tiles ? here : tiles;
        first_row = held(first_row);
    }

    // Tiles of the block.
    __device__ __forceinline__ int count() const { return ROWS == 1 ? 1 : left; }

    // Row n (below ROWS) of the lane's in tile i.
    __device__ __forceinline__ int row(int i, int n) const { return first_row + i * 4 * ROWS + n; }
    __device__ __forceinline__ bool inside(int i, int n) const { return row(i, n) < B; }

    // Index of the lane's first unit in a [W, B, columns] buffer; below 2^31 where a lane has one row.
    __device__ __forceinline__ long long at(int w, int i, int n, int columns) const {
        if (ROWS == 1) return (w * B + row(i, n)) * columns + unit;
        return ((long long)w * B + row(i, n)) * columns + unit;
    }

    // The lane's two units of row n as inputs of the next product; group: of the tile's first 32 inputs. The neighbouring
    // column's word differs in one bit.
    __device__ __forceinline__ void put(unsigned int* tile, int group, int n, float a, float b) const {
        tile[group * CFC_GROUP + (write ^ 16 * n)] = to_halves(a, b);
    }
};

// Zeros: the odd columns of tiles of four rows are operands that nobody writes.
static __device__ __forceinline__ void clear_tiles(unsigned int* memory, int words) {
    for (int i = threadIdx.x; i < words; i += CFC_THREADS) memory[i] = 0;
    __syncthreads();
}

static __device__ __forceinline__ float2 read_pair(const float* from, bool inside) {
    return inside ? *(const float2*)from : make_float2(0.0f, 0.0f);
}

static __device__ __forceinline__ void write_pair(float* to, float a, float b) { *(float2*)to = make_float2(a, b); }

#endif
