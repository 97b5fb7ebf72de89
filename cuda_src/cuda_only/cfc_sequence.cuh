// What the two recurrence kernels of the CfC cell share: who does what in a cluster, tiles in fragment order, products.
//
// Work. A cluster of four blocks does all snapshots of up to CFC_TILES tiles of eight rows. Block r owns the hidden
// units [32 r, 32 r + 32) with their four gates, 32 + 128 columns of the weights, which stay in registers as operands
// of the tensor cores. A product is weights (16 outputs, 128 inputs) times a tile (128 inputs, 8 rows): the tile is
// the narrow operand, so that eight rows fill an instruction. Tiles are independent recurrences; a warp takes them in
// turn, and one tile's exchange passes while another is computed.
// Blocks exchange by messages (cfc_cluster.cuh). A buffer is written again only after every reader's own next message
// has been waited for: u needs the whole h before it, h the whole u, and so on around; hence no second buffer.
// Rows behind B are computed as zeros and not stored.
#pragma once
#include "cuda_only/cfc_cluster.cuh"
#include "cuda_only/mma.cuh"
#include "nets/cfc.cuh"

#define CFC_BLOCKS 4                            // blocks of a cluster
#define CFC_OWN (HIDDEN_DIM / CFC_BLOCKS)       // hidden units of a block
#define CFC_ROWS 8                              // rows of a tile
#define CFC_TILES 16                            // tiles of a cluster, at most
#define CFC_TILE (HIDDEN_DIM * CFC_ROWS)        // floats of a tile
#define CFC_TILE_BYTES (4 * CFC_TILE)
#define CFC_THREADS 384                         // eight warps for the wide product, four for the other
#define CFC_WIDE_WARPS 8
#define CFC_STREAMS 2                           // pairs of the four other warps; a pair takes every second tile
#define CFC_GROUPS (HIDDEN_DIM / 16)            // inputs of a tile lie in groups of 16: two instructions
#define CFC_GROUP (16 * CFC_ROWS)               // floats of a group

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define __cluster_dims__(...)                   // the kernels are empty there, and the host does not launch them
#endif

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// Where a tile keeps inputs 4 chunk to 4 chunk + 3 of a group for a row: an instruction's operand is 16 contiguous
// bytes a lane. The exclusive or spreads both the readers and the writers of a warp over all banks.
static __device__ __forceinline__ int tile_place(int group, int chunk, int row) {
    return group * CFC_GROUP + 4 * ((row * 4 + chunk) ^ (row & 6));
}

// This thread's part of a (16 outputs, 128 inputs) block of weights: inputs 16 G + 4 t + {0, 1, 2, 3} of outputs g and
// g + 8, for lane = 4 g + t. w: input 4 t of output g. From there it is `input` floats to the next input, `output` to
// output g + 8, `group` to the next group of 16 inputs and `pair` to the one after it.
struct CfcWeights {
    unsigned int part[2 * CFC_GROUPS][4];

    __device__ __forceinline__ void load(const float* w, int input, int output, int group, int pair) {
#pragma unroll
        for (int G = 0; G < CFC_GROUPS; ++G) {
#pragma unroll
            for (int q = 0; q < 2; ++q) {
                const float* at = w + (G >> 1) * pair + (G & 1) * group + 2 * q * input;
                part[2 * G + q][0] = to_tf32(at[0]);
                part[2 * G + q][1] = to_tf32(at[output]);
                part[2 * G + q][2] = to_tf32(at[input]);
                part[2 * G + q][3] = to_tf32(at[input + output]);
            }
        }
    }

    // d = weights times tile: outputs g (d[0], d[1]) and g + 8 (d[2], d[3]) of rows 2 t and 2 t + 1. Four sums of 32
    // inputs each, so that the tensor cores always have an instruction that waits for none before it.
    __device__ __forceinline__ void times(const float* tile, float* d) const {
        const int lane = threadIdx.x & 31;
        const float* at = tile + tile_place(0, lane & 3, lane >> 2);
        float sum[4][4] = {};
#pragma unroll
        for (int G = 0; G < CFC_GROUPS; ++G) {
            const uint4 b = *(const uint4*)(at + G * CFC_GROUP);
            const unsigned int first[2] = {b.x, b.y}, second[2] = {b.z, b.w};
            mma_tf32(sum[2 * (G & 1)], part[2 * G], first);
            mma_tf32(sum[2 * (G & 1) + 1], part[2 * G + 1], second);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) d[i] = (sum[0][i] + sum[1][i]) + (sum[2][i] + sum[3][i]);
    }
};

// This block's place: rank in the cluster, tiles of the cluster, the other blocks' shared memory.
struct CfcCluster {
    int rank, first_row, count;
    unsigned int window[CFC_BLOCKS];

    __device__ __forceinline__ CfcCluster(const float* shared, int tiles, int B) {
        rank = cluster_rank();
        const int first = (int)blockIdx.x / CFC_BLOCKS * tiles, all = (B + CFC_ROWS - 1) / CFC_ROWS;
        first_row = first * CFC_ROWS;
        count = all - first < tiles ? all - first : tiles;
#pragma unroll
        for (int r = 0; r < CFC_BLOCKS; ++r) window[r] = cluster_window(shared, r);
    }

    // Two neighbouring inputs of a row, as operands, to the same place of every block.
    __device__ __forceinline__ void broadcast(const float* to, unsigned long long* barrier, float a, float b) const {
        a = __uint_as_float(to_tf32(a)), b = __uint_as_float(to_tf32(b));
#pragma unroll
        for (int r = 0; r < CFC_BLOCKS; ++r) send(shared_address(to) + window[r], shared_address(barrier) + window[r], a, b);
    }

    __device__ __forceinline__ void broadcast(const float* to, unsigned long long* barrier, float a) const {
        a = __uint_as_float(to_tf32(a));
#pragma unroll
        for (int r = 0; r < CFC_BLOCKS; ++r) send(shared_address(to) + window[r], shared_address(barrier) + window[r], a);
    }
};

// Waits for a phase's messages; the one thread that `arms` lets the barrier count the next ones. None of those can
// be on its way before that thread has sent its own.
static __device__ __forceinline__ void wait_tile(unsigned long long* barrier, int phase, bool arms) {
    barrier_wait(barrier, phase & 1);
    if (arms) barrier_expect(barrier, CFC_TILE_BYTES);
}

static __device__ __forceinline__ float2 read_pair(const float* from, bool inside) {
    return inside ? *(const float2*)from : make_float2(0.0f, 0.0f);
}

#endif
