// The C51 head's update at h on tensor cores: from encodings and targets to the parts of its gradient in one kernel.
#include "cuda_only/c51_update_tf32.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

static_assert(sizeof(UpdateTile) <= 71680, "the launch rules ask for less shared memory than a tile takes");

template <bool PATH>
static __device__ __forceinline__ void c51_update(float* memory, const C51Batch& batch, const unsigned int* packed_w,
                                                  const float* packed_b, const float* isv, float* grad_parts,
                                                  float* td_parts, float* block_parts, float* row_gap, int groups,
                                                  int tiles_each, int R, int P) {
    UpdateTile* tile = (UpdateTile*)memory;
    Below* below = (Below*)(tile + 1);
    float* next = (float*)(below + UPDATE_ROWS * P * BELOW_ATOMS);
    const int pairs = P * N_ACTIONS, group = blockIdx.x % groups, slice = blockIdx.x / groups;
    const int pair0 = group * UPDATE_PAIRS, pair = pair0 + threadIdx.x / 32 % UPDATE_PAIRS;
    const int next_class = PATH && pair < pairs ? batch.next_class[pair] : 0;
    const float v_min = isv[ISV_C51_V_MIN], v_max = isv[ISV_C51_V_MAX];
    float* part = grad_parts + (long long)slice * (HIDDEN_DIM + 1) * pairs * C51_PLACES;
    UpdateSums sums;
#pragma unroll
    for (int i = 0; i < HALF_INPUTS / 16 * 12; ++i) (&sums.weights[0][0][0])[i] = 0.0f;
#pragma unroll
    for (int i = 0; i < 6; ++i) sums.bias[i] = 0.0f;
    sums.top = -MATH_FLOAT_MAX, sums.low = MATH_FLOAT_MAX, sums.clipped = 0.0f, sums.bad = 0.0f;

    const int first = slice * tiles_each * UPDATE_ROWS, end = first + tiles_each * UPDATE_ROWS, last = end < R ? end : R;
    fetch_tile(tile->rows[0], next, batch, first, R, P);
    for (int i = 0, r0 = first; r0 < last; ++i, r0 += UPDATE_ROWS) {
        float* rows = tile->rows[i % 2];
        load_scalars<PATH>(tile, batch, isv, r0, pair0, R, P);
        copy_wait<0>();
        round_rows(rows, tile->halves);
        __syncthreads();
        sum_next(next, below, P);
        __syncthreads();
        if (r0 + UPDATE_ROWS < last) fetch_tile(tile->rows[(i + 1) % 2], next, batch, r0 + UPDATE_ROWS, R, P);
        if (pair < pairs) {
            learn_pair<PATH>(tile, below, &sums, batch, packed_w, packed_b, v_min, v_max, row_gap, r0, pair, next_class, R, P);
        }
        __syncthreads();
        if (pair < pairs) add_weight_gradient(*tile, rows, &sums);
        if (threadIdx.x < UPDATE_ROWS && r0 + threadIdx.x < R) {
            float loss = 0.0f;
            for (int w = 0; w < UPDATE_PAIRS && pair0 + w < pairs; ++w) loss += tile->loss[threadIdx.x][w];
            td_parts[(long long)group * R + r0 + threadIdx.x] = loss;
            if (!is_finite(loss)) sums.bad += 1.0f;
        }
    }
    __syncthreads();
    if (pair < pairs) store_weight_gradient(&sums, part, pair, pairs);
    store_bias_gradient(&sums, tile->slope[0], part, pair0, pairs);
    store_block(sums, memory, block_parts + 4 * blockIdx.x);
}

#endif

// rl_c51_path_update_tf32: path targets of every class and action: logits, loss and parts of the gradients.
// launch: blocks groups*slices, block 512, shared 71680 + 8320*P
// chain: 14 us
// fuses: rl_c51_path_loss, rl_grad_chunk_squares
// Block slice * groups + group: eight pairs, tiles_each tiles of 32 rows (c51_update_tf32.cuh). h [R, 128]; next_prob
// [R, P, 21]; path_return [R, P*11]; next_class [P*11]; replay_discount, replay_terminal, replay_lots, replay_action,
// is_weight [R]; c51_packed_* of the online head. c51_grad_parts [slices, 129, pairs, 24] (all of it is written);
// c51_td_parts [groups, R] sums of cross-entropies; c51_block_parts [blocks, 4] (critic_step.cuh); row_gap [R] = E[Q] -
// mean target at the executed action. Loss = mean over pairs; gradient LOSS_LAMBDA_Q weight (p - target) / (R pairs).
// Slots read: LOSS_LAMBDA_Q, C51_V_MIN, C51_V_MAX.
extern "C" __global__ void __launch_bounds__(512, 1) rl_c51_path_update_tf32(
    const float* h, const float* next_prob, const float* path_return, const signed char* next_class,
    const signed char* replay_lots, const signed char* replay_action, const float* replay_discount,
    const unsigned char* replay_terminal, const float* is_weight, const unsigned int* c51_packed_w, const float* c51_packed_b,
    const float* isv, float* c51_grad_parts, float* c51_td_parts, float* c51_block_parts, float* row_gap, int groups,
    int slices, int tiles_each, int R, int P) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    extern __shared__ __align__(16) float memory[];
    const C51Batch batch = {h, next_prob, path_return, replay_discount, is_weight, next_class, nullptr, replay_lots,
                            replay_action, replay_terminal};
    c51_update<true>(memory, batch, c51_packed_w, c51_packed_b, isv, c51_grad_parts, c51_td_parts, c51_block_parts,
                    row_gap, groups, tiles_each, R, P);
#endif
}

// rl_c51_executed_update_tf32: n-step targets of the executed action alone; gradients of all other pairs are zero.
// launch: blocks groups*slices, block 512, shared 71680 + 8320*P
// fuses: bellman_target_projection, rl_c51_executed_loss, rl_grad_chunk_squares
// As rl_c51_path_update_tf32, with replay_next_lots, replay_reward [R] (n-step return). Loss = the executed pair's;
// gradient LOSS_LAMBDA_Q weight (p - target) / R. Slots read: LOSS_LAMBDA_Q, C51_V_MIN, C51_V_MAX.
extern "C" __global__ void __launch_bounds__(512, 1) rl_c51_executed_update_tf32(
    const float* h, const float* next_prob, const float* replay_reward, const signed char* replay_next_lots,
    const signed char* replay_lots, const signed char* replay_action, const float* replay_discount,
    const unsigned char* replay_terminal, const float* is_weight, const unsigned int* c51_packed_w, const float* c51_packed_b,
    const float* isv, float* c51_grad_parts, float* c51_td_parts, float* c51_block_parts, float* row_gap, int groups,
    int slices, int tiles_each, int R, int P) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    extern __shared__ __align__(16) float memory[];
    const C51Batch batch = {h, next_prob, replay_reward, replay_discount, is_weight, nullptr, replay_next_lots, replay_lots,
                            replay_action, replay_terminal};
    c51_update<false>(memory, batch, c51_packed_w, c51_packed_b, isv, c51_grad_parts, c51_td_parts, c51_block_parts,
                     row_gap, groups, tiles_each, R, P);
#endif
}
