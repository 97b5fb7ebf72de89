// Matrix products: out = op(a) op(b), or out += with `accumulate`, cut into blocks that OS threads share.
//
// Every element is the same chain of fused multiply-adds, k ascending, in pieces of DEPTH that are added in order. So
// its bits depend on the operands alone: not on threads, on the block or tile that holds it, or on register widths.
#pragma once

#include "abi.h"
#include "wide.h"

#include <stdlib.h>
#include <string.h>

namespace fh {

constexpr long DEPTH = 256;           // of packed strips: one of them stays in the first-level cache
constexpr double BLOCK_WORK = 250000; // multiply-adds that are worth a block of their own
constexpr long MAX_BLOCKS = 32;
constexpr long DIRECT_TILES = 4;     // as few rows of tiles as this read columns where they stand
constexpr long PACKED_COLUMNS = 256; // a block as wide as this repays packing its rows
constexpr long PACKED_ROWS = 64;     // a block as high as this repays packing its columns

// An operand or the output, element (i, j) at data[i * row + j * column].
template <class T> struct View {
    T* data;
    long row, column;
    T* at(long i, long j) const { return data + i * row + j * column; }
    View from(long i, long j) const { return {at(i, j), row, column}; }
    View turned() const { return {data, column, row}; }
};

inline long up(long a, long b) { return (a + b - 1) / b; }
inline long within(long value, long low, long high) { return value < low ? low : value > high ? high : value; }

// What a thread packs operands into.
struct Scratch {
    void* memory;
    size_t capacity;
    void* reserve(size_t bytes) {
        if (bytes > capacity) {
            free(memory);
            capacity = (bytes + 4095) & ~size_t(4095);
            memory = aligned_alloc(4096, capacity);
        }
        return memory;
    }
};

// ROWS x (VECTORS * LANES) sums over `depth` products, to `sums`, or to `into` where that is set. STEP: from one element
// of a row of a to the next. Rows from `rows` on repeat the last one; columns of b are adjacent.
template <class T, int ROWS, int VECTORS, int STEP>
void tile(long depth, const T* a, long a_row, long rows, const T* b, long b_row, T* sums, T* into, long stride, bool add) {
    using V = Wide<T>;
    constexpr int LANES = lanes<T>;
    const T* row[ROWS];
    for (int i = 0; i < ROWS; ++i) {
        row[i] = a + (i < rows ? i : rows - 1) * a_row;
        if (into)
            for (int j = 0; j < VECTORS; ++j) __builtin_prefetch(into + i * stride + j * LANES, 1);
    }
    V sum[ROWS][VECTORS];
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 8
        for (int j = 0; j < VECTORS; ++j) sum[i][j] = V{};
#pragma GCC unroll 4
    for (long p = 0; p < depth; ++p, b += b_row) {
        V right[VECTORS];
#pragma GCC unroll 8
        for (int j = 0; j < VECTORS; ++j) {
            right[j] = load_wide<V>(b + j * LANES);
            keep(right[j]);
        }
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; ++i) {
            const V left = row[i][p * STEP] - V{}; // in every lane
#pragma GCC unroll 8
            for (int j = 0; j < VECTORS; ++j) sum[i][j] = multiply_add(left, right[j], sum[i][j]);
        }
    }
    if (!into) {
        memcpy(sums, sum, sizeof sum);
        return;
    }
    for (int i = 0; i < ROWS; ++i, into += stride) {
        for (int j = 0; j < VECTORS; ++j) {
            const V v = add ? load_wide<V>(into + j * LANES) + sum[i][j] : sum[i][j];
            memcpy(into + j * LANES, &v, sizeof v);
        }
    }
}

// `count` columns of b over `depth` rows to strips of WIDTH columns, zeros beyond count. Few rows at a time over all
// strips: that follows the rows of b through memory.
template <class T, long WIDTH> void pack_columns(T* strips, View<const T> b, long count, long depth) {
    if (b.row == 1) { // transposed: a column stands in one piece
        for (long j = 0; j < count; j += WIDTH, strips += WIDTH * depth)
            for (long i = 0; i < WIDTH; ++i)
                for (long p = 0; p < depth; ++p) strips[p * WIDTH + i] = i < count - j ? *b.at(p, j + i) : T(0);
        return;
    }
    constexpr long TOGETHER = 8;
    for (long first = 0; first < depth; first += TOGETHER) {
        const long last = first + TOGETHER < depth ? first + TOGETHER : depth;
        for (long j = 0; j < count; j += WIDTH) {
            T* const to = strips + j * depth;
            for (long p = first; p < last; ++p) {
                if (count - j >= WIDTH)
                    memcpy(to + p * WIDTH, b.at(p, j), size_t(WIDTH) * sizeof(T));
                else
                    for (long i = 0; i < WIDTH; ++i) to[p * WIDTH + i] = i < count - j ? *b.at(p, j + i) : T(0);
            }
        }
    }
}

// `count` rows of a transposed operand to panels of HEIGHT rows, zeros beyond count.
template <class T, long HEIGHT> void pack_rows(T* panels, View<const T> a, long count, long depth) {
    for (long first = 0; first < count; first += HEIGHT, panels += HEIGHT * depth) {
        const long rows = count - first < HEIGHT ? count - first : HEIGHT;
        const T* from = a.data + first;
        for (long p = 0; p < depth; ++p, from += a.column) {
            if (rows == HEIGHT)
                for (long i = 0; i < HEIGHT; ++i) panels[p * HEIGHT + i] = from[i];
            else
                for (long i = 0; i < HEIGHT; ++i) panels[p * HEIGHT + i] = i < rows ? from[i] : T(0);
        }
    }
}

// out (rows x columns) of one block.
template <class T, int ROWS, int VECTORS>
void multiply_block(View<const T> a, View<const T> b, View<T> out, long rows, long columns, long depth, bool add,
                    Scratch& scratch) {
    constexpr long WIDTH = VECTORS * lanes<T>;
    const bool packs_rows = a.column != 1;
    const long room = packs_rows ? up(rows, ROWS) * ROWS : 0;
    const bool direct = b.column == 1 && rows <= DIRECT_TILES * ROWS;
    const long whole = columns / WIDTH * WIDTH, first_packed = direct ? whole : 0;
    const long packed = up(columns - first_packed, WIDTH) * WIDTH;
    const long deepest = depth < DEPTH ? depth : DEPTH;
    T* const strips = static_cast<T*>(scratch.reserve(size_t(deepest * (packed + room)) * sizeof(T)));
    T* const panels = strips + deepest * packed;
    alignas(64) T sums[ROWS * WIDTH];
    for (long p = 0; p < depth; p += DEPTH, add = true) {
        const long piece = depth - p < DEPTH ? depth - p : DEPTH;
        if (packs_rows) pack_rows<T, ROWS>(panels, a.from(0, p), rows, piece);
        pack_columns<T, WIDTH>(strips, b.from(p, first_packed), columns - first_packed, piece);
        for (long j = 0; j < columns; j += WIDTH) {
            const long width = columns - j < WIDTH ? columns - j : WIDTH;
            const T* const right = j < first_packed ? b.at(p, j) : strips + (j - first_packed) * piece;
            const long right_row = j < first_packed ? b.row : WIDTH;
            for (long i = 0; i < rows; i += ROWS) {
                const long height = rows - i < ROWS ? rows - i : ROWS;
                const View<T> target = out.from(i, j);
                T* const into = height == ROWS && width == WIDTH && out.column == 1 ? target.data : nullptr;
                if (packs_rows)
                    tile<T, ROWS, VECTORS, ROWS>(piece, panels + i * piece, 1, ROWS, right, right_row, sums, into, out.row, add);
                else
                    tile<T, ROWS, VECTORS, 1>(piece, a.at(i, p), a.row, height, right, right_row, sums, into, out.row, add);
                if (into) continue;
                for (long r = 0; r < height; ++r)
                    for (long c = 0; c < width; ++c) {
                        T& element = *target.at(r, c);
                        element = add ? element + sums[r * WIDTH + c] : sums[r * WIDTH + c];
                    }
            }
        }
    }
}

// A product and how it is cut: tiles of which shape, blocks of which size.
struct Cut {
    fh_product of; // turned where out^T = op(b)^T op(a)^T reads better
    int shape;     // index into TILES
    long rows, columns; // of a block
    long across, blocks;
};

constexpr struct { int rows, vectors; } TILES[] = {{4, 3}, {6, 2}, {1, 8}};

inline Cut cut(fh_product product) {
    fh_product& p = product;
    if (p.k == 1) p.a_column = p.b_row = 1; // one element: any distance will do
    // Few rows times a transposed matrix: turned, the matrix is read as it stands and the few are packed.
    if (p.b_row == 1 && p.a_column == 1 && p.n >= 2 * p.m)
        p = {p.out, p.b, p.a, p.n, p.m, p.k, p.out_column, p.out_row, p.b_column, p.b_row, p.a_column, p.a_row, p.accumulate, p.is_double};
    const long lanes_of = p.is_double ? lanes<double> : lanes<float>;
    Cut c{p, 0, 0, 0, 0, 0};
    long least = 0;
    for (int s = 0; s < 3; ++s) {
        const long width = TILES[s].vectors * lanes_of;
        const long padded = up(p.m, TILES[s].rows) * TILES[s].rows * up(p.n, width) * width;
        if (s == 2 ? p.m == 1 : s == 0 || padded < least) c.shape = s, least = padded;
    }
    const long width = TILES[c.shape].vectors * lanes_of, height = TILES[c.shape].rows;
    const long wanted = within(long(double(p.m) * double(p.n) * double(p.k) / BLOCK_WORK), 1, MAX_BLOCKS);
    const long strips = up(p.n, width);
    const long across = within(wanted, 1, p.a_column == 1 ? strips : within(p.n / PACKED_COLUMNS, 1, strips));
    c.columns = up(strips, across) * width;
    c.across = up(p.n, c.columns);
    const long down = within(wanted / c.across, 1, within(p.m / PACKED_ROWS, 1, MAX_BLOCKS));
    c.rows = up(up(p.m, height), down) * height;
    c.blocks = c.across * up(p.m, c.rows);
    return c;
}

template <class T> void run_block(const Cut& c, long index, Scratch& scratch) {
    const fh_product& p = c.of;
    const long i = index / c.across * c.rows, j = index % c.across * c.columns;
    const long rows = p.m - i < c.rows ? p.m - i : c.rows, columns = p.n - j < c.columns ? p.n - j : c.columns;
    const auto a = View<const T>{static_cast<const T*>(p.a), p.a_row, p.a_column}.from(i, 0);
    const auto b = View<const T>{static_cast<const T*>(p.b), p.b_row, p.b_column}.from(0, j);
    const auto out = View<T>{static_cast<T*>(p.out), p.out_row, p.out_column}.from(i, j);
    const bool add = p.accumulate;
    if (c.shape == 0) multiply_block<T, 4, 3>(a, b, out, rows, columns, p.k, add, scratch);
    if (c.shape == 1) multiply_block<T, 6, 2>(a, b, out, rows, columns, p.k, add, scratch);
    if (c.shape == 2) multiply_block<T, 1, 8>(a, b, out, rows, columns, p.k, add, scratch);
}

} // namespace fh
