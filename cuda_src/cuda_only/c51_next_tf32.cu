// The C51 head at h_n on tensor cores: double DQN's choice and the target distribution there, logits never stored.
#include "cuda_only/c51_tf32.cuh"
#include "include/reduce.cuh"
#include "nets/adam.cuh"
#include "nets/polyak.cuh"

#define NEXT_ROWS 32   // rows of a block; a warp has an action of one head
#define WIDE_ROWS 64   // the same of a large batch, where reading the weights counts; a warp has both heads

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// One class of 16 M rows: the online head's action of largest expectation, the target head's distribution at it.
template <int M, int HEADS>
static __device__ __forceinline__ void next_distribution(float* rows, float (*q)[N_ACTIONS + 1], const float* next_h,
                                                         const float* packed_w, const float* packed_b, float* next_prob,
                                                         int p, int r0, int R, int P) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int action = warp % N_ACTIONS, pairs = P * N_ACTIONS, pair = p * N_ACTIONS + action;
    const bool online = warp < N_ACTIONS, target = HEADS == 2 || !online;
    const int first = online ? 0 : 1;  // head
    load_rows(rows, next_h, r0, 16 * M, R);
    float bias[6], sums[HEADS][M][3][4];
    __syncthreads();
    pair_logits<M, HEADS>(sums, rows, packed_w + (long long)(first * pairs + pair) * C51_STEPS * C51_STEP,
                          (long long)pairs * C51_STEPS * C51_STEP, lane);
    if (online) {
        load_bias(bias, packed_b, pair, t);
#pragma unroll
        for (int i = 0; i < 2 * M; ++i) {
            const QuadRow row = quad_softmax(sums[0][i / 2], bias, i % 2, t);
            float mean = 0.0f;
#pragma unroll
            for (int k = 0; k < 6; ++k) mean = fmaf((float)atom_of(k, t), row.weight[k], mean);
            mean = quad_sum(mean) / row.sum;
            if (t == 0) q[8 * i + g][action] = mean;
        }
    }
    __syncthreads();
    if (!target) return;
    load_bias(bias, packed_b, pairs + pair, t);
#pragma unroll
    for (int i = 0; i < 2 * M; ++i) {
        const int r = 8 * i + g;
        int best = 0;
        for (int a = 1; a < N_ACTIONS; ++a) best = q[r][a] > q[r][best] ? a : best;
        const bool chosen = best == action && r0 + r < R;
        if (!__any_sync(0xffffffffu, chosen)) continue;
        const QuadRow row = quad_softmax(sums[HEADS - 1][i / 2], bias, i % 2, t);
        float* to = next_prob + ((long long)(r0 + r) * P + p) * C51_ATOMS;
#pragma unroll
        for (int k = 0; k < 6; ++k) {
            if (chosen && atom_of(k, t) < C51_ATOMS) to[atom_of(k, t)] = row.weight[k] / row.sum;
        }
    }
}

// What the rest of the update needs of the whole batch or of nobody: importance weights, what decides the step, the
// gradient norm of the update before.
static __device__ __forceinline__ void prepare_update(const float* sample_priority, const float* c51_tile_sums,
                                                      const unsigned int* adam_step, const unsigned int* fault,
                                                      float* is_weight, float* update_control, float* isv, int R,
                                                      int tiles, int fold) {
    __shared__ float scratch[32];
    float least = MATH_FLOAT_MAX, gradient = 0.0f;
    for (int r = threadIdx.x; r < R; r += blockDim.x) least = min_keep_nan(least, sample_priority[r]);
    for (int i = threadIdx.x; fold && i < tiles; i += blockDim.x) gradient += c51_tile_sums[3 * i];
    least = block_min(least, scratch);
    gradient = block_sum(gradient, scratch);
    const float beta = isv[ISV_PER_BETA];
    for (int r = threadIdx.x; r < R; r += blockDim.x) is_weight[r] = powf(least / sample_priority[r], beta);
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

// rl_c51_next_tf32: target distributions at h_n, importance weights, the next update's noise, what decides the step.
// launch: blocks P*((R+31)/32) + 1 + noise_blocks, block 704
// updates: isv, rng_noise, rng_target_noise
// fuses: argmax_expected_q, rl_c51_next_distribution, rl_per_weights, rl_sample_noise, rl_l2_norm, rl_grad_norms
// Blocks of 32 rows and a class, then one for is_weight [R], update_control and, with fold, the gradient norm of the
// update before, then noise_blocks (0 in the last update) of 704 elements for next_noises [2, n]. next_h [R, 128];
// c51_packed_w, c51_packed_b (c51_packed.cuh); next_prob [R, P, 21]; c51_tile_sums [tiles, 3]; the rest as the fused
// kernels have it. Slots written: Q_GRAD_NORM_EMA. Read: PER_BETA, ADAM_BETA1, ADAM_BETA2.
extern "C" __global__ void __launch_bounds__(704, 1) rl_c51_next_tf32(
    const float* next_h, const float* c51_packed_w, const float* c51_packed_b, const float* sample_priority,
    const float* c51_tile_sums, const unsigned int* adam_step, const unsigned int* fault, unsigned int* rng_noise,
    unsigned int* rng_target_noise, float* isv, float* next_prob, float* is_weight, float* update_control,
    float* next_noises, int noise_blocks, int tiles, int fold, int n, int P, int R) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    __align__(16) __shared__ float rows[NEXT_ROWS * ROW_STRIDE];
    __shared__ float q[NEXT_ROWS][N_ACTIONS + 1];
    const int block = blockIdx.x, extra = block - P * ((R + NEXT_ROWS - 1) / NEXT_ROWS);
    if (extra < 0) {
        next_distribution<NEXT_ROWS / 16, 1>(rows, q, next_h, c51_packed_w, c51_packed_b, next_prob, block % P,
                                             block / P * NEXT_ROWS, R, P);
    } else if (extra == 0) {
        prepare_update(sample_priority, c51_tile_sums, adam_step, fault, is_weight, update_control, isv, R, tiles, fold);
    } else {
        draw_noises(rng_noise, rng_target_noise, next_noises, (extra - 1) * blockDim.x + threadIdx.x, n);
    }
#endif
}

// rl_c51_next_wide_tf32: the same for large batches.
// launch: blocks P*((R+63)/64) + 1 + noise_blocks, block 352
// updates: isv, rng_noise, rng_target_noise
// fuses: argmax_expected_q, rl_c51_next_distribution, rl_per_weights, rl_sample_noise, rl_l2_norm, rl_grad_norms
// Blocks of 64 rows and a class; noise_blocks of 352 elements. Arrays as above.
extern "C" __global__ void __launch_bounds__(352, 1) rl_c51_next_wide_tf32(
    const float* next_h, const float* c51_packed_w, const float* c51_packed_b, const float* sample_priority,
    const float* c51_tile_sums, const unsigned int* adam_step, const unsigned int* fault, unsigned int* rng_noise,
    unsigned int* rng_target_noise, float* isv, float* next_prob, float* is_weight, float* update_control,
    float* next_noises, int noise_blocks, int tiles, int fold, int n, int P, int R) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    __align__(16) __shared__ float rows[WIDE_ROWS * ROW_STRIDE];
    __shared__ float q[WIDE_ROWS][N_ACTIONS + 1];
    const int block = blockIdx.x, extra = block - P * ((R + WIDE_ROWS - 1) / WIDE_ROWS);
    if (extra < 0) {
        next_distribution<WIDE_ROWS / 16, 2>(rows, q, next_h, c51_packed_w, c51_packed_b, next_prob, block % P,
                                             block / P * WIDE_ROWS, R, P);
    } else if (extra == 0) {
        prepare_update(sample_priority, c51_tile_sums, adam_step, fault, is_weight, update_control, isv, R, tiles, fold);
    } else {
        draw_noises(rng_noise, rng_target_noise, next_noises, (extra - 1) * blockDim.x + threadIdx.x, n);
    }
#endif
}
