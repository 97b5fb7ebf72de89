// Number, sum and squared deviations of many values, joined from parts in the order of columns.cuh: no large squares are
// subtracted from each other (Chan, Golub and LeVeque 1983).
#pragma once
#include "include/columns.cuh"

struct Spread {
    float n, sum, square;  // square: sum of squared deviations from the mean of these values
};

static __device__ inline Spread spread_join(Spread a, Spread b) {
    if (b.n == 0.0f) return a;
    if (a.n == 0.0f) return b;
    const float n = a.n + b.n, apart = b.sum / b.n - a.sum / a.n;
    return {n, a.sum + b.sum, a.square + b.square + apart * apart * (a.n * b.n / n)};
}

// Shared memory of a block; all its threads call.
struct SpreadLanes {
    Spread lanes[PART_LANES];
    float squares[PART_LANES];
    Spread all;

    // A block that walks over all parts: before the first; each (one barrier later the caller may change `one`).
    __device__ inline void clear() {
        if (threadIdx.x < PART_LANES) lanes[threadIdx.x] = {0.0f, 0.0f, 0.0f};
        __syncthreads();
    }
    __device__ inline void add(Spread one, int part) {
        const int lane = part % PART_LANES;
        if (threadIdx.x == 0) lanes[lane] = spread_join(lanes[lane], one);
    }
    // `all` of the lanes, complete for all threads after it.
    __device__ inline void of_lanes() {
        __syncthreads();
        if (threadIdx.x < PART_LANES) {
            float n = 0.0f, sum = 0.0f;
#pragma unroll
            for (int i = 0; i < PART_LANES; ++i) {
                n += lanes[i].n;
                sum += lanes[i].sum;
            }
            const Spread mine = lanes[threadIdx.x];
            const float apart = mine.n > 0.0f ? mine.sum / mine.n - sum / n : 0.0f;
            squares[threadIdx.x] = fmaf(mine.n * apart, apart, mine.square);
            if (threadIdx.x == 0) {
                all.n = n;
                all.sum = sum;
            }
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            float square = 0.0f;
#pragma unroll
            for (int i = 0; i < PART_LANES; ++i) square += squares[i];
            all.square = square;
        }
        __syncthreads();
    }
    // The last block: `all` of parts left by every block; n, sum, square [count], global.
    __device__ inline void of_parts(const float* n, const float* sum, const float* square, int count) {
        if (threadIdx.x < PART_LANES) {
            Spread mine = {0.0f, 0.0f, 0.0f};
#pragma unroll 8
            for (int p = threadIdx.x; p < count; p += PART_LANES) {
                mine = spread_join(mine, {n[p], sum[p], square[p]});
            }
            lanes[threadIdx.x] = mine;
        }
        of_lanes();
    }
};
