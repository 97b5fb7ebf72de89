// 16 x 16 matrices on tensor cores, one warp: tiles in shared memory, operands, sums.
//
// Who holds what, with g = lane / 4 and t = lane % 4: rows g and g + 8 and columns 2t, 2t + 1, 2t + 8, 2t + 9, which is how
// sums of products lie in the registers and, at the same time, how an operand may lie there whose columns are summed over:
// the order in which k is counted is free, so products follow one another without an exchange between lanes. "Turned"
// operands are the transposed ones: columns g and g + 8.
#pragma once
#include "cuda_only/mma.cuh"

#define CHUNK 16                     // rows of a tile: snapshots
#define CHUNK_NEAREST 1.00033838f    // 1 + ln 2 / 2048: see to_operand()

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// Of a row of sums (a: columns 2 t and 2 t + 1, b: 8 + 2 t and the next) four adjacent columns a lane, from four_column(t)
// on: neighbouring lanes trade. By all lanes.
static __device__ __forceinline__ float4 four_columns(float a0, float a1, float b0, float b1, int t) {
    const bool odd = t & 1;
    const float c0 = __shfl_xor_sync(0xffffffffu, odd ? a0 : b0, 1), c1 = __shfl_xor_sync(0xffffffffu, odd ? a1 : b1, 1);
    return odd ? make_float4(c0, c1, b0, b1) : make_float4(a0, a1, c0, c1);
}

static __device__ __forceinline__ int four_column(int t) { return t % 2 * 8 + t / 2 * 4; }

// The lane's number, newly each time: what is computed from it is computed again where it is needed. Kept from chunk to
// chunk, the many addresses in shared memory would leave no registers for the sums.
static __device__ __forceinline__ int fresh(int lane) {
#ifdef __CUDACC_RTC__
    asm volatile("" : "+r"(lane));
#endif
    return lane;
}

// Two adjacent columns of an array in shared or device memory.
static __device__ __forceinline__ float2 two_at(const float* from) { return *(const float2*)from; }

static __device__ __forceinline__ void put_two(float* to, float a, float b) { *(float2*)to = make_float2(a, b); }

// 16 snapshots x 32 columns of operands: B and C, or x and dy of a head.
struct ChunkTile {
    alignas(16) float v[CHUNK * 32];

    // Where an element lies. Of eight columns the even ones come first, so that a lane's columns 2 t and 2 t + 1 are t and
    // t + 4 of the instruction's k; pieces of four trade places, so that rows and columns can be read without conflict.
    static __device__ __forceinline__ constexpr int at(int i, int c) {
        return i * 32 + (((c >> 3) * 2 + (c & 1)) ^ (i & 7)) * 4 + ((c & 7) >> 1);
    }
};

// Bytes from a tile's start to what a lane reads first: as a left and as a right operand, eight rows of four by each eight
// lanes; and to its first element as rows and as columns lie. Everything else is an exclusive or with a constant away.
struct ChunkPlace {
    int left, right, rows, columns;

    __device__ __forceinline__ explicit ChunkPlace(int lane)
        : left(4 * ChunkTile::at(lane % 16, lane / 16)), right(4 * ChunkTile::at(lane % 8 + lane / 16 * 8, lane / 8 % 2)),
          rows(4 * ChunkTile::at(lane / 4, lane % 4 * 2)), columns(4 * ChunkTile::at(lane % 4 * 2, lane / 4)) {}

    static constexpr int EIGHT = 4 * 8, ODD = 4 * 4, NEXT = 4 * (32 + 4), LOWER = 4 * 256;  // columns; snapshot; 8 of them
};

// A value as an operand. The tensor cores cut off what TF32 has no bits for; this factor, as large as half a unit in the
// mean over the mantissas, makes of that rounding: at most 0.69 of a unit off instead of 0.5, for one instruction
// instead of three. What TF32 can hold stays as it is; NaN and infinity stay. An operand times a weight is an operand.
static __device__ __forceinline__ unsigned int to_operand(float v) { return __float_as_uint(v * CHUNK_NEAREST); }

static __device__ __forceinline__ unsigned int times(unsigned int operand, float weight) {
    return __float_as_uint(weight * __uint_as_float(operand));
}

// Operands of a product: element (outer g + 8 r, inner 8 s + 2 t + e), where inner is summed over.
struct ChunkLeft {
    unsigned int v[2][4];
    __device__ __forceinline__ unsigned int& at(int s, int r, int e) { return v[s][r + 2 * e]; }
};

struct ChunkRight {
    unsigned int v[2][4];
    __device__ __forceinline__ unsigned int& at(int s, int r, int e) { return v[s][2 * r + e]; }
};

// 16 x 16 sums: v[j][2 r + e] is element (row g + 8 r, column 8 j + 2 t + e).
struct ChunkSums {
    float v[2][4];
};

static __device__ __forceinline__ void clear_sums(ChunkSums* sums) {
#pragma unroll
    for (int k = 0; k < 8; ++k) sums->v[k / 4][k % 4] = 0.0f;
}

// sums += a b^T over the inner index; rows are a's outer index, columns b's.
static __device__ __forceinline__ void multiply(ChunkSums* sums, const ChunkLeft& a, const ChunkRight& b) {
#pragma unroll
    for (int s = 0; s < 2; ++s) {
#pragma unroll
        for (int j = 0; j < 2; ++j) mma_tf32(sums->v[j], a.v[s], &b.v[s][2 * j]);
    }
}

// Sums as an operand: rows become the outer, columns the inner index.
template <class Operand>
static __device__ __forceinline__ Operand operand_of(const ChunkSums& sums) {
    Operand operand;
#pragma unroll
    for (int k = 0; k < 8; ++k) operand.at(k / 4, k % 4 / 2, k % 2) = to_operand(sums.v[k / 4][k % 4]);
    return operand;
}

// Columns FIRST to FIRST + 15 of a tile: outer snapshots, inner columns.
template <int FIRST, class Operand>
static __device__ __forceinline__ Operand read_rows(const ChunkTile& tile, int place) {
    Operand operand;
#pragma unroll
    for (int s = 0; s < 2; ++s) {
        float four[4];
        load_blocks<4>(four, (const float*)((const char*)tile.v + (place ^ (FIRST / 8 + s) * ChunkPlace::EIGHT)));
#pragma unroll
        for (int k = 0; k < 4; ++k) operand.v[s][k] = __float_as_uint(four[k]);
    }
    return operand;
}

template <int FIRST>
static __device__ __forceinline__ ChunkLeft left_rows(const ChunkTile& tile, ChunkPlace place) {
    return read_rows<FIRST, ChunkLeft>(tile, place.left);
}

template <int FIRST>
static __device__ __forceinline__ ChunkRight right_rows(const ChunkTile& tile, ChunkPlace place) {
    return read_rows<FIRST, ChunkRight>(tile, place.right);
}

// Bytes to element (column FIRST + g + 8 r, snapshot 8 s + 2 t + e).
template <int FIRST>
static __device__ __forceinline__ int column_place(ChunkPlace place, int s, int r, int e) {
    return place.columns ^ (FIRST / 8 + r) * ChunkPlace::EIGHT ^ e * ChunkPlace::NEXT ^ s * ChunkPlace::LOWER;
}

// The same columns turned round: outer columns, inner snapshots.
template <int FIRST, class Operand>
static __device__ __forceinline__ Operand read_columns(const ChunkTile& tile, ChunkPlace place) {
    Operand operand;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        const int s = k / 4, r = k % 2, e = k % 4 / 2;
        operand.at(s, r, e) = *(const unsigned int*)((const char*)tile.v + column_place<FIRST>(place, s, r, e));
    }
    return operand;
}

// Columns FIRST + 8 j + 2 t and the next of snapshot g + 8 r.
template <int FIRST>
static __device__ __forceinline__ void put_row(ChunkTile* tile, ChunkPlace place, int j, int r, float a, float b) {
    const int at = place.rows ^ (FIRST / 8 + j) * ChunkPlace::EIGHT ^ r * ChunkPlace::LOWER;
    *(float*)((char*)tile->v + at) = a, *(float*)((char*)tile->v + (at ^ ChunkPlace::ODD)) = b;
}

// Whether snapshot g + 8 r comes after the one of column c of the eight s (positive), before it (negative) or is it (0).
static __device__ __forceinline__ int later(int r, int s, int g, int c) { return r > s ? 1 : r < s ? -1 : g - c; }

#endif
