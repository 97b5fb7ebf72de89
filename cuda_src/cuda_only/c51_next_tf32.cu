// The C51 head at h_n on tensor cores: double DQN's choice and the target distribution there, logits never stored.
#include "cuda_only/c51_next_wide.cuh"
#include "cuda_only/c51_tf32.cuh"
#include "include/reduce.cuh"
#include "nets/adam.cuh"
#include "nets/polyak.cuh"

#define NEXT_ROWS 32  // of a block

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// One class of 32 rows: the online head's action of largest expectation, the target head's distribution at it. A warp has
// an action of one head.
static __device__ __forceinline__ void next_distribution(unsigned int* rows, float (*q)[N_ACTIONS + 1], const float* next_h,
                                                         const unsigned int* packed_w, const float* packed_b, float* next_prob,
                                                         int p, int r0, int R, int P) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int action = warp % N_ACTIONS, pairs = P * N_ACTIONS, head = warp / N_ACTIONS;
    const int pair = p * N_ACTIONS + action;
    load_rows(rows, next_h, r0, NEXT_ROWS, R);
    float bias[6], sums[2][3][4];
    __syncthreads();
    pair_logits<2>(sums, rows, packed_w + (long long)(head * pairs + pair) * PAIR_WORDS, lane);
    load_bias(bias, packed_b, head * pairs + pair, t);
    if (head == 0) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const QuadRow row = quad_softmax(sums[i / 2], bias, i % 2, t);
            float mean = 0.0f;
#pragma unroll
            for (int k = 0; k < 6; ++k) mean = fmaf((float)atom_of(k, t), row.weight[k], mean);
            mean = quad_sum(mean) / row.sum;
            if (t == 0) q[8 * i + g][action] = mean;
        }
    }
    __syncthreads();
    if (head == 0) return;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int r = 8 * i + g;
        int best = 0;
        for (int a = 1; a < N_ACTIONS; ++a) best = q[r][a] > q[r][best] ? a : best;
        const bool chosen = best == action && r0 + r < R;
        if (!__any_sync(0xffffffffu, chosen)) continue;
        const QuadRow row = quad_softmax(sums[i / 2], bias, i % 2, t);
        float* to = next_prob + ((long long)(r0 + r) * P + p) * C51_ATOMS;
#pragma unroll
        for (int k = 0; k < 6; ++k) {
            if (chosen && atom_of(k, t) < C51_ATOMS) to[atom_of(k, t)] = row.weight[k] / row.sum;
        }
    }
}

// What decides the coming step, and the gradient norm of the update before.
static __device__ __forceinline__ void prepare_update(const float* c51_tile_sums, const unsigned int* adam_step,
                                                      const unsigned int* fault, float* update_control, float* isv,
                                                      int tiles, int fold) {
    __shared__ float scratch[32];
    float gradient = 0.0f;
    for (int i = threadIdx.x; fold && i < tiles; i += blockDim.x) gradient += c51_tile_sums[3 * i];
    gradient = block_sum(gradient, scratch);
    if (threadIdx.x != 0) return;
    update_control[0] = fault[1] == 0u ? 1.0f : 0.0f;
    adam_corrections(isv, (float)(adam_step[GROUP_Q] + 1u), update_control + 2 + 2 * GROUP_Q,
                     update_control + 3 + 2 * GROUP_Q);
    adam_corrections(isv, (float)(adam_step[GROUP_IQN] + 1u), update_control + 2 + 2 * GROUP_IQN,
                     update_control + 3 + 2 * GROUP_IQN);
    if (fold) isv[ISV_Q_GRAD_NORM_EMA] = norm_ema(isv[ISV_Q_GRAD_NORM_EMA], sqrtf(gradient));
}

// Element i of the next update's noise: the online head's n, then the target's.
static __device__ __forceinline__ void draw_noises(unsigned int* rng_noise, unsigned int* rng_target_noise, float* noises,
                                                   int i, int n) {
    if (i < 2 * n) noises[i] = noise_factor(i < n ? rng_noise + i : rng_target_noise + (i - n));
}

#endif

// rl_c51_next_tf32: target distributions at h_n, the next update's noise, what decides the step.
// launch: blocks P*((R+31)/32) + 1 + noise_blocks, block 704
// chain: 8 us
// updates: isv, rng_noise, rng_target_noise
// fuses: argmax_expected_q, rl_c51_next_distribution, rl_sample_noise, rl_l2_norm, rl_grad_norms
// Blocks of 32 rows and a class, then one for update_control and, with fold, the gradient norm of the update before, then
// noise_blocks (0 in the last update) of 704 elements for next_noises [2, n]. next_h [R, 128]; c51_packed_w, c51_packed_b
// (c51_packed.cuh); next_prob [R, P, 21]; c51_tile_sums [tiles, 3]; the rest as the fused kernels have it.
// Slots written: Q_GRAD_NORM_EMA. Read: ADAM_BETA1, ADAM_BETA2.
extern "C" __global__ void __launch_bounds__(704, 1) rl_c51_next_tf32(
    const float* next_h, const unsigned int* c51_packed_w, const float* c51_packed_b, const float* c51_tile_sums,
    const unsigned int* adam_step, const unsigned int* fault, unsigned int* rng_noise, unsigned int* rng_target_noise,
    float* isv, float* next_prob, float* update_control, float* next_noises, int noise_blocks, int tiles, int fold, int n,
    int P, int R) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    __align__(16) __shared__ unsigned int rows[NEXT_ROWS * ROW_WORDS];
    __shared__ float q[NEXT_ROWS][N_ACTIONS + 1];
    const int block = blockIdx.x, extra = block - P * ((R + NEXT_ROWS - 1) / NEXT_ROWS);
    if (extra < 0) {
        next_distribution(rows, q, next_h, c51_packed_w, c51_packed_b, next_prob, block % P, block / P * NEXT_ROWS, R, P);
    } else if (extra == 0) {
        prepare_update(c51_tile_sums, adam_step, fault, update_control, isv, tiles, fold);
    } else {
        draw_noises(rng_noise, rng_target_noise, next_noises, (extra - 1) * blockDim.x + threadIdx.x, n);
    }
#endif
}

// rl_c51_next_wide_tf32: rl_c51_next_tf32 for large batches, where reading the weights counts.
// launch: blocks P*groups + 1 + noise_blocks, block 512, shared 137280
// updates: isv, rng_noise, rng_target_noise
// fuses: argmax_expected_q, rl_c51_next_distribution, rl_sample_noise, rl_l2_norm, rl_grad_norms
// Blocks of a class, each with every groups-th 16 rows for each of its warps (c51_next_wide.cuh); noise_blocks of 512
// elements. Arrays and slots are those of rl_c51_next_tf32.
extern "C" __global__ void __launch_bounds__(512, 1) rl_c51_next_wide_tf32(
    const float* next_h, const unsigned int* c51_packed_w, const float* c51_packed_b, const float* c51_tile_sums,
    const unsigned int* adam_step, const unsigned int* fault, unsigned int* rng_noise, unsigned int* rng_target_noise,
    float* isv, float* next_prob, float* update_control, float* next_noises, int groups, int noise_blocks, int tiles,
    int fold, int n, int P, int R) {
    extern __shared__ __align__(16) float memory[];
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    const int extra = blockIdx.x - P * groups;
    if (extra < 0) {
        const ClassWeights weights = {(unsigned int*)memory, memory + 2 * N_ACTIONS * PAIR_WORDS};
        const int p = blockIdx.x % P, warp = threadIdx.x / 32;
        weights.fetch(c51_packed_w, c51_packed_b, p, P);
        // Blocks in turn, so that none has more rows than another. The first rows come while the weights do.
        const int lane = threadIdx.x % 32, step = groups * (blockDim.x / 32) * CLASS_ROWS;
        int r0 = (warp * groups + blockIdx.x / P) * CLASS_ROWS;
        unsigned int a[1][PAIR_STEPS][4];
        load_next_rows(next_h, r0, R, lane / 4, lane % 4, a);
        copy_wait<0>();
        __syncthreads();
        while (r0 < R) {
            class_of_rows(weights, a, next_prob, p, r0, R, P);
            r0 += step;
            if (r0 < R) load_next_rows(next_h, r0, R, lane / 4, lane % 4, a);
        }
    } else if (extra == 0) {
        prepare_update(c51_tile_sums, adam_step, fault, update_control, isv, tiles, fold);
    } else {
        draw_noises(rng_noise, rng_target_noise, next_noises, (extra - 1) * blockDim.x + threadIdx.x, n);
    }
#endif
}
