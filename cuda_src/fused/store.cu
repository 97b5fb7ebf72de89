// The replay takes in an iteration's moments: their slots, their copies, and behind hindsight (store_hindsight.cu) the tree
// above what was written.
#include "include/last_block.cuh"
#include "replay/push.cuh"
#include "replay/tree.cuh"

#define STORE_STEPS 32   // steps of a tile of PUSH_ROWS rows
#define MOMENTS_AHEAD 4  // encodings of a warp that are under way together
#define PENDING_ROWS 2   // rows of a block, with so many ages of each at once
#define PENDING_AGES 8

// rl_store_slots: what every step of every row completes, and the slots of it all.
// launch: blocks (B + 31) // 32, block 128
// updates: pending_moments, push_base, replay_state, isv, blocks_done
// fuses: rl_per_push_count, rl_per_push
// A block has 32 rows, a tile of steps at a time; the last block to finish adds up in front of them. Parameters are those
// of the kernels that it stands for.
extern "C" __global__ void rl_store_slots(const unsigned char* __restrict__ terminal,
                                          const unsigned char* __restrict__ truncated,
                                          const unsigned char* __restrict__ new_episode, unsigned char* pending_moments,
                                          unsigned char* push_pending, unsigned char* push_count, int* push_offset,
                                          int* push_base, unsigned int* replay_state, float* isv,
                                          unsigned int* blocks_done, int C, int T, int B) {
    __shared__ bool last;
    __shared__ unsigned char ends[STORE_STEPS * PUSH_ROWS], waits[STORE_STEPS * PUSH_ROWS];
    __shared__ int offsets[STORE_STEPS * (PUSH_ROWS + 1)];
    const int lane = threadIdx.x, group = blockIdx.x, first = group * PUSH_ROWS, b = first + lane, n = n_step(isv);
    const bool walks = lane < PUSH_ROWS && b < B;
    int pending = walks && !new_episode[b] ? pending_moments[b] : 0;
    for (int t0 = 0; t0 < T; t0 += STORE_STEPS) {
        const int items = (T - t0 < STORE_STEPS ? T - t0 : STORE_STEPS) * PUSH_ROWS;
#pragma unroll 8
        for (int i = lane; i < items; i += blockDim.x) {
            const int row = first + i % PUSH_ROWS;
            const long long at = (long long)(t0 + i / PUSH_ROWS) * B + row;
            ends[i] = row < B ? terminal[at] | truncated[at] : 0;
        }
        __syncthreads();
        for (int i = lane; walks && i < items; i += PUSH_ROWS) {
            pending += 1;
            const int count = ends[i] ? pending : moments_ready(pending, n);
            waits[i] = (unsigned char)pending;
            ends[i] = (unsigned char)count;  // from here on what the step completes
            pending -= count;
        }
        __syncthreads();
        if (lane * PUSH_ROWS < items) {  // a thread a step
            int before = 0;
#pragma unroll
            for (int i = 0; i < PUSH_ROWS; ++i) {
                offsets[lane * (PUSH_ROWS + 1) + i] = before;
                before += ends[lane * PUSH_ROWS + i];
            }
            push_base[(t0 + lane) * gridDim.x + group] = before;
        }
        __syncthreads();
        for (int i = lane; i < items; i += blockDim.x) {
            const int row = first + i % PUSH_ROWS;
            const long long at = (long long)(t0 + i / PUSH_ROWS) * B + row;
            if (row >= B) continue;
            push_pending[at] = waits[i];
            push_count[at] = ends[i];
            push_offset[at] = offsets[i / PUSH_ROWS * (PUSH_ROWS + 1) + i % PUSH_ROWS];
        }
        __syncthreads();
    }
    if (walks) pending_moments[b] = (unsigned char)pending;
    if (!is_last_block(blocks_done, &last)) return;
    per_push_finish(push_base, replay_state, isv, C, T, B);
}

// rl_store_moments: the completed moments into their slots.
// launch: blocks T * ((B + 31) // 32), block 128
// updates: per_tree, store_h, store_next_h, store_index, store_n, store_lots, store_next_lots, store_action, store_return
// updates: store_discount, store_terminal, store_source, store_birth, store_row, replay_state
// fuses: rl_per_push_copy
// A block has a step of 32 rows, whose slots are adjacent: a thread a row, then a warp an encoding at a time, four of them
// under way. Parameters are those of the kernel that it stands for.
extern "C" __global__ void rl_store_moments(
    const int* __restrict__ cursor, const float* __restrict__ h, const float* __restrict__ reward,
    const int* __restrict__ position_before, const int* __restrict__ position_after,
    const signed char* __restrict__ action, const unsigned char* __restrict__ terminal,
    const unsigned char* __restrict__ push_pending, const unsigned char* __restrict__ push_count,
    const int* __restrict__ push_offset, const int* __restrict__ push_base, const float* __restrict__ pending_h,
    const float* __restrict__ pending_reward, const signed char* __restrict__ pending_lots,
    const signed char* __restrict__ pending_action, unsigned int* replay_state, const float* isv, float* store_h,
    float* store_next_h, unsigned int* store_index, unsigned short* store_n, signed char* store_lots,
    signed char* store_next_lots, signed char* store_action, float* store_return, float* store_discount,
    unsigned char* store_terminal, unsigned char* store_source, unsigned int* store_birth, unsigned int* store_row,
    float* per_tree, int C, int T, int B) {
    __shared__ int counts[PUSH_ROWS], waits[PUSH_ROWS], replaced;
    __shared__ unsigned int befores[PUSH_ROWS];
    const int groups = push_groups(B), t = blockIdx.x / groups, first = (blockIdx.x - t * groups) * PUSH_ROWS;
    const int own = threadIdx.x, warp = own / 32, lane = own % 32;
    const unsigned int clock = replay_state[REPLAY_CLOCK] - (unsigned int)T;
    if (own < PUSH_ROWS) {
        const int b = first + own;
        const long long at = (long long)t * B + b;
        counts[own] = b < B ? push_count[at] : 0;
        waits[own] = b < B ? push_pending[at] : 0;
        befores[own] =
            b < B ? replay_state[REPLAY_START] + (unsigned int)pushed_before(push_base, push_offset, t, b, B) : 0u;
        if (own == 0) replaced = 0;
    }
    __syncthreads();
    int mine = 0;
    for (int i = 0; __syncthreads_or(own < PUSH_ROWS && i < counts[own % PUSH_ROWS]); ++i) {
        if (own < PUSH_ROWS && i < counts[own]) {
            const PushedMoment m = pushed_moment(befores[own], waits[own], i, clock, C, t, first + own, B);
            mine += push_record(m, cursor, reward, position_before, position_after, action, terminal, pending_reward,
                                pending_lots, pending_action, isv, store_index, store_n, store_lots, store_next_lots,
                                store_action, store_return, store_discount, store_terminal, store_source, store_birth,
                                store_row, per_tree, C, B, t, first + own);
        }
        for (int r0 = warp; r0 < PUSH_ROWS; r0 += MOMENTS_AHEAD * 4) {
            EncodingVector now[MOMENTS_AHEAD], next[MOMENTS_AHEAD];
#pragma unroll
            for (int k = 0; k < MOMENTS_AHEAD; ++k) {
                const int r = r0 + 4 * k, b = first + r;
                if (i >= counts[r]) continue;
                const PushedMoment m = pushed_moment(befores[r], waits[r], i, clock, C, t, b, B);
                const float* from = m.s < 0 ? pending_h + m.ring * HIDDEN_DIM : h + ((long long)m.s * B + b) * HIDDEN_DIM;
                now[k] = ((const EncodingVector*)from)[lane];
                next[k] = ((const EncodingVector*)(h + ((long long)(t + 1) * B + b) * HIDDEN_DIM))[lane];
            }
#pragma unroll
            for (int k = 0; k < MOMENTS_AHEAD; ++k) {
                const int r = r0 + 4 * k;
                if (i >= counts[r]) continue;
                const long long to = (long long)((befores[r] + (unsigned int)i) & ((unsigned int)C - 1u)) * HIDDEN_DIM;
                ((EncodingVector*)(store_h + to))[lane] = now[k];
                ((EncodingVector*)(store_next_h + to))[lane] = next[k];
            }
        }
    }
    if (mine) atomicAdd(&replaced, mine);
    __syncthreads();
    if (own == 0 && replaced) atomicSub(&replay_state[REPLAY_SYNTHETIC], (unsigned int)replaced);
}

// rl_store_tree: the tree above everything that the iteration wrote, all bands; what is still pending, into the rings.
// launch: blocks (groups + 127) // 128 + (B + 1) // 2, block 128
// updates: per_tree, isv, pending_h, pending_reward, pending_lots, pending_action, blocks_done
// fuses: rl_per_tree_range, rl_per_tree_rebuild, rl_per_pending
// One thread a group of the lowest band, as rl_per_tree_range with bottom = depth counts them (all of them where groups is
// the number there is); the last of these blocks to finish renews the bands above. Behind them blocks of two rows: the rings
// take new moments only here, once rl_store_moments has read the old ones. Slot written: PER_TREE_TOTAL.
extern "C" __global__ void rl_store_tree(const float* __restrict__ h, const float* __restrict__ reward,
                                         const int* __restrict__ position_before, const signed char* __restrict__ action,
                                         const unsigned char* __restrict__ pending_moments,
                                         const unsigned int* replay_state, float* per_tree, float* isv,
                                         float* pending_h, float* pending_reward, signed char* pending_lots,
                                         signed char* pending_action, unsigned int* blocks_done, int groups, int depth,
                                         int T, int B) {
    __shared__ bool last;
    const int blocks = (groups + (int)blockDim.x - 1) / (int)blockDim.x;
    if ((int)blockIdx.x >= blocks) {
        const int lane = threadIdx.x % COPY_LANES, place = threadIdx.x / COPY_LANES;
        const int b = (blockIdx.x - blocks) * PENDING_ROWS + place / PENDING_AGES;
        if (b >= B) return;
        for (int j = place % PENDING_AGES; j < pending_moments[b] && j < T; j += PENDING_AGES) {
            per_pending_item(h, reward, position_before, action, pending_moments, replay_state, pending_h,
                             pending_reward, pending_lots, pending_action, T, B, b, j, lane);
        }
        return;
    }
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int top = depth > TREE_BAND ? depth - TREE_BAND : 0;
    if (i < groups) tree_renew_written(replay_state, per_tree, i, depth, depth, top);
    if (!is_last_of(blocks_done, &last, blocks)) return;
    for (int bottom = top; bottom > 0; bottom -= TREE_BAND) {
        const int upper = bottom > TREE_BAND ? bottom - TREE_BAND : 0;
        if (upper == 0) {
            if (threadIdx.x == 0) isv[ISV_PER_TREE_TOTAL] = tree_renew_group(per_tree, 0, bottom, 0);
            return;
        }
        for (int g = threadIdx.x; g < 1 << upper; g += blockDim.x) {
            tree_renew_written(replay_state, per_tree, g, depth, bottom, upper);
        }
        __syncthreads();
    }
}
