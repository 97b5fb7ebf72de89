// Several columns over many rows, added up in an order that the sizes alone fix, by one block or by many.
//
// Rows are dealt into parts. Within a part a thread adds its rows, then one thread a column adds the threads up in their
// order. Part p belongs to lane p mod 32: a lane adds its parts in ascending order, then the lanes are added in theirs. So
// one block that walks over all parts (ColumnLanes) and a block a part whose last one adds (columns_of_parts) leave the same
// bits. SUMS columns are sums, MAXES behind them take the largest value (a NaN wins). Blocks have COLUMN_THREADS threads,
// all of which call.
#pragma once
#include "include/math.cuh"
#include "include/reduce.cuh"

#define COLUMN_THREADS 128
#define COLUMN_PAD 129  // row length of the shared table: neighbouring columns in different banks
#define PART_LANES 32
#define PART_PAD 33

// Value of nothing in column c.
template <int SUMS>
static __device__ inline float column_start(int c) {
    return c < SUMS ? 0.0f : -MATH_FLOAT_MAX;
}

// All of values[0], values[stride], .. in order, of column c. Which it is is asked once, not at every value.
template <int SUMS, int UNROLL>
static __device__ inline float column_of(int c, const float* values, int count, int stride) {
    float all = column_start<SUMS>(c);
    if (c < SUMS) {
#pragma unroll UNROLL
        for (int i = 0; i < count; ++i) all += values[i * stride];
    } else {
#pragma unroll UNROLL
        for (int i = 0; i < count; ++i) all = max_keep_nan(all, values[i * stride]);
    }
    return all;
}

// Shared memory of a block.
template <int SUMS, int MAXES = 0>
struct Columns {
    static const int COUNT = SUMS + MAXES;
    float table[COUNT * COLUMN_PAD];
    float lanes[COUNT * PART_PAD];
    float totals[COUNT];

    // Values that a thread brings, before its first row.
    __device__ static inline void begin(float* values) {
        for (int c = 0; c < COUNT; ++c) values[c] = column_start<SUMS>(c);
    }

    // Every thread brings values[COUNT]; totals is complete for all after it. Two barriers in all: much cheaper than a
    // shuffle reduction a column, where threads are fibers.
    __device__ inline void of_threads(const float* values) {
        for (int c = 0; c < COUNT; ++c) table[c * COLUMN_PAD + threadIdx.x] = values[c];
        __syncthreads();
        for (int c = threadIdx.x; c < COUNT; c += COLUMN_THREADS) {
            totals[c] = column_of<SUMS, 32>(c, table + c * COLUMN_PAD, COLUMN_THREADS, 1);
        }
        __syncthreads();
    }

    // A block that walks over all parts: before the first, behind of_threads of each, behind the last.
    __device__ inline void clear_lanes() {
        for (int i = threadIdx.x; i < COUNT * PART_PAD; i += COLUMN_THREADS) lanes[i] = column_start<SUMS>(i / PART_PAD);
        __syncthreads();
    }
    __device__ inline void add_to_lane(int part) {
        for (int c = threadIdx.x; c < COUNT; c += COLUMN_THREADS) {
            float* lane = lanes + c * PART_PAD + part % PART_LANES;
            *lane = c < SUMS ? *lane + totals[c] : max_keep_nan(*lane, totals[c]);
        }
    }
    __device__ inline void of_lanes() {
        __syncthreads();
        for (int c = threadIdx.x; c < COUNT; c += COLUMN_THREADS) {
            totals[c] = column_of<SUMS, 32>(c, lanes + c * PART_PAD, PART_LANES, 1);
        }
        __syncthreads();
    }

    // A block a part: behind of_threads, into parts [COUNT, count]; then the last block, totals of all.
    __device__ inline void store(float* parts, int part, int count) const {
        for (int c = threadIdx.x; c < COUNT; c += COLUMN_THREADS) parts[c * count + part] = totals[c];
    }
    __device__ inline void of_parts(const float* parts, int count) {
        if (count <= PART_LANES) {  // a part a lane: all loads are under way together
#pragma unroll
            for (int i = threadIdx.x; i < COUNT * PART_LANES; i += COLUMN_THREADS) {
                const int c = i / PART_LANES, lane = i % PART_LANES;
                const float part = lane < count ? parts[c * count + lane] : column_start<SUMS>(c);
                lanes[c * PART_PAD + lane] = c < SUMS ? 0.0f + part : max_keep_nan(-MATH_FLOAT_MAX, part);
            }
            of_lanes();
            return;
        }
        for (int i = threadIdx.x; i < COUNT * PART_LANES; i += COLUMN_THREADS) {
            const int c = i / PART_LANES, lane = i % PART_LANES;
            const int own = lane < count ? (count - lane + PART_LANES - 1) / PART_LANES : 0;
            lanes[c * PART_PAD + lane] = column_of<SUMS, 8>(c, parts + c * count + lane, own, PART_LANES);
        }
        of_lanes();
    }
};

// One block: columns.totals of what add(row, values) adds for every row; rows_a_part rows a part. add has no barrier in it.
template <int SUMS, int MAXES, class Add>
static __device__ inline void columns_of_rows(Columns<SUMS, MAXES>& columns, long long rows, int rows_a_part, Add add) {
    columns.clear_lanes();
    for (long long first = 0; first < rows; first += rows_a_part) {
        float values[SUMS + MAXES];
        columns.begin(values);
        const long long end = first + rows_a_part < rows ? first + rows_a_part : rows;
        for (long long at = first + threadIdx.x; at < end; at += COLUMN_THREADS) add(at, values);
        columns.of_threads(values);
        columns.add_to_lane((int)(first / rows_a_part));
    }
    columns.of_lanes();
}
