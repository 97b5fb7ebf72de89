// A replay update of the implicit quantile head in three kernels: embeddings, rows, sums (nets/iqn.cu says what it is).
#include "fused/iqn_update.cuh"
#include "include/rng.cuh"

#define EMBED_UNITS 4      // units of the embedding a block owns
#define REDUCE_UNITS 8     // units of the embedding a block of the sums owns
#define REDUCE_GROUPS 4    // shares of the blocks' sums that are added side by side
#define REDUCE_ELEMENTS 256

// Quantile fraction `tau` of set 0 (predictions), 1 (targets): the next draw of its generator; 2: the midpoint.
static __device__ inline float drawn_tau(const unsigned int* rng_tau, const unsigned int* rng_tau_next, int set, int tau,
                                         int n) {
    if (set == 2) return (tau + 0.5f) / n;
    unsigned int state = set == 0 ? rng_tau[tau] : rng_tau_next[tau];
    return uniform_open(&state);
}

// rl_iqn_embed: taus of an update, their embeddings, the weights of expectations; W and the target's W column by column.
// launch: blocks HIDDEN_DIM/4, block 384
// fuses: rl_sample_tau, rl_iqn_cosines, rl_iqn_phi, rl_tau_midpoints, rl_iqn_mean_weights
// One block, four units of the embedding; three sets of n taus (at most 32): of the predictions (online head), of the
// targets (target head), midpoints (online head). The generators are read here and moved on by rl_iqn_update_reduce:
// every block draws the same taus. rng_tau, rng_tau_next [n]; w_iqn_phi, target_w_iqn_phi [64, 128], b_iqn_phi,
// target_b_iqn_phi [128]; w_iqn, target_w_iqn [128, P*11]; iqn_tau [n], iqn_cos [n, 64] of the predictions (block 0);
// iqn_phi, iqn_phi_next [n, 128]; iqn_mean_w [128, P*11] = W x mean of phi over midpoints; iqn_columns [2, P*11, 128]
// = W, then the target's W, transposed. Every number as the unfused kernels give it.
extern "C" __global__ void rl_iqn_embed(const unsigned int* rng_tau, const unsigned int* rng_tau_next,
                                        const float* w_iqn_phi, const float* b_iqn_phi, const float* target_w_iqn_phi,
                                        const float* target_b_iqn_phi, const float* w_iqn, const float* target_w_iqn,
                                        float* iqn_tau, float* iqn_cos, float* iqn_phi, float* iqn_phi_next,
                                        float* iqn_mean_w, float* iqn_columns, int n, int P) {
    __shared__ float cosines[3 * IQN_MAX_TAUS][IQN_COSINES + 1], weights[2][IQN_COSINES][EMBED_UNITS];
    __shared__ float middle[IQN_MAX_TAUS][EMBED_UNITS], mean[EMBED_UNITS];
    const int tid = threadIdx.x, threads = blockDim.x, k0 = blockIdx.x * EMBED_UNITS, pairs = P * N_ACTIONS;
    for (int i = tid; i < 3 * n * IQN_COSINES; i += threads) {
        const int row = i / IQN_COSINES, cosine = i % IQN_COSINES, set = row / n;
        const float tau = drawn_tau(rng_tau, rng_tau_next, set, row - set * n, n);
        cosines[row][cosine] = cos_pi(cosine * tau);
        if (blockIdx.x == 0 && set == 0) {
            iqn_cos[i] = cosines[row][cosine];
            if (cosine == 0) iqn_tau[row] = tau;
        }
    }
    for (int i = tid; i < IQN_COSINES * EMBED_UNITS; i += threads) {
        const int from = i / EMBED_UNITS * HIDDEN_DIM + k0 + i % EMBED_UNITS;
        weights[0][i / EMBED_UNITS][i % EMBED_UNITS] = w_iqn_phi[from];
        weights[1][i / EMBED_UNITS][i % EMBED_UNITS] = target_w_iqn_phi[from];
    }
    __syncthreads();
    for (int i = tid; i < 3 * n * EMBED_UNITS; i += threads) {
        const int unit = i % EMBED_UNITS, row = i / EMBED_UNITS, set = row / n, tau = row - set * n;
        float sum = 0.0f;
#pragma unroll 16
        for (int j = 0; j < IQN_COSINES; ++j) sum = fmaf(cosines[row][j], weights[set == 1][j][unit], sum);
        sum += set == 1 ? target_b_iqn_phi[k0 + unit] : b_iqn_phi[k0 + unit];
        sum = sum < 0.0f ? 0.0f : sum;
        if (set == 0) iqn_phi[tau * HIDDEN_DIM + k0 + unit] = sum;
        if (set == 1) iqn_phi_next[tau * HIDDEN_DIM + k0 + unit] = sum;
        if (set == 2) middle[tau][unit] = sum;
    }
    __syncthreads();
    if (tid < EMBED_UNITS) {
        float sum = 0.0f;
        for (int j = 0; j < n; ++j) sum += middle[j][tid];
        mean[tid] = sum / n;
    }
    __syncthreads();
    for (int i = tid; i < pairs * EMBED_UNITS; i += threads) {
        const int unit = i / pairs, c = i - unit * pairs;
        const float w = w_iqn[(long long)(k0 + unit) * pairs + c];
        iqn_mean_w[(long long)(k0 + unit) * pairs + c] = mean[unit] * w;
        iqn_columns[(long long)c * HIDDEN_DIM + k0 + unit] = w;
        iqn_columns[(long long)(pairs + c) * HIDDEN_DIM + k0 + unit] = target_w_iqn[(long long)(k0 + unit) * pairs + c];
    }
}

// rl_iqn_path_update: forward, loss and gradients of the rows' own classes, every action against its path target.
// launch: blocks (rows+1)/2 if rows < 512 else 256, block 512, shared 84992 + 360*P
// fuses: rl_iqn_loss, rl_iqn_expected_q, rl_iqn_argmax, rl_iqn_path_columns, rl_iqn_forward, rl_row_mean, rl_iqn_backward
// Float32 throughout; tiles, sums and shared memory: iqn_update.cuh. h, next_h [rows, 128]; iqn_* as rl_iqn_embed left
// them; replay_lots [rows]; next_class [P*11]; path_return [rows, P*11]; replay_discount, replay_terminal, is_weight
// [rows]; iqn_update_parts. Slots read: LOSS_LAMBDA_Q.
extern "C" __global__ void __launch_bounds__(IQN_THREADS, 1) rl_iqn_path_update(
    const float* h, const float* next_h, const float* iqn_columns, const float* iqn_mean_w, const float* iqn_phi,
    const float* iqn_phi_next, const float* iqn_tau, const float* b_iqn, const float* target_b_iqn,
    const signed char* replay_lots, const signed char* next_class, const float* path_return,
    const float* replay_discount, const unsigned char* replay_terminal, const float* is_weight, const float* isv,
    float* iqn_update_parts, int rows, int P, int n) {
    extern __shared__ __align__(16) float shared[];
    const IqnUpdate update = {h, next_h, iqn_columns, iqn_mean_w, iqn_phi, iqn_phi_next, iqn_tau, b_iqn, target_b_iqn,
                              replay_lots, next_class, nullptr, nullptr, path_return, nullptr, replay_discount, is_weight,
                              replay_terminal, isv, iqn_update_parts, rows, P, n};
    IqnRows<Fp32Math, N_ACTIONS>::run(shared, update);
}

// rl_iqn_executed_update: the same for the executed action alone.
// launch: blocks (rows+15)/16 if rows < 4096 else 256, block 512, shared 74752 + 2880*P
// fuses: rl_iqn_loss, rl_iqn_expected_q, rl_iqn_argmax, rl_iqn_executed_columns, rl_iqn_forward, rl_row_mean, rl_iqn_backward
// Float32 throughout. As above with replay_next_lots, replay_action, replay_reward [rows] for the path's tables.
extern "C" __global__ void __launch_bounds__(IQN_THREADS, 1) rl_iqn_executed_update(
    const float* h, const float* next_h, const float* iqn_columns, const float* iqn_mean_w, const float* iqn_phi,
    const float* iqn_phi_next, const float* iqn_tau, const float* b_iqn, const float* target_b_iqn,
    const signed char* replay_lots, const signed char* replay_next_lots, const signed char* replay_action,
    const float* replay_reward, const float* replay_discount, const unsigned char* replay_terminal,
    const float* is_weight, const float* isv, float* iqn_update_parts, int rows, int P, int n) {
    extern __shared__ __align__(16) float shared[];
    const IqnUpdate update = {h, next_h, iqn_columns, iqn_mean_w, iqn_phi, iqn_phi_next, iqn_tau, b_iqn, target_b_iqn,
                              replay_lots, nullptr, replay_next_lots, replay_action, nullptr, replay_reward,
                              replay_discount, is_weight, replay_terminal, isv, iqn_update_parts, rows, P, n};
    IqnRows<Fp32Math, 1>::run(shared, update);
}

// This thread's share of the sum of one element over all blocks' sums: group g of `groups` takes a run of blocks,
// ascending.
static __device__ inline float shared_out_sum(const float* parts, long long size, int blocks, int group, int groups) {
    const int each = (blocks + groups - 1) / groups, first = group * each;
    const int last = first + each < blocks ? first + each : blocks;
    float sum = 0.0f;
#pragma unroll 16
    for (int b = first; b < last; ++b) sum += parts[b * size];
    return sum;
}

// rl_iqn_update_reduce: the blocks' sums become the gradients of the four tensors and the loss; the taus move on.
// launch: blocks 17 + (P*N_ACTIONS*(HIDDEN_DIM + 1) + 255)/256, block 1024
// updates: isv, nonfinite_parts, rng_tau, rng_tau_next
// fuses: rl_iqn_backward, rl_iqn_phi_backward, rl_mean_into_slot, rl_sample_tau
// Blocks 0 to 15: eight units of the embedding each, whose gradient goes through the ReLU into grad_w_iqn_phi [64, 128]
// and grad_b_iqn_phi [128]. Block 16: the loss and the generators. The others: 256 elements of grad_w_iqn [128, P*11]
// and grad_b_iqn [P*11]. Four groups of threads each add a run of blocks, ascending, then the four sums in order.
// iqn_update_parts [blocks, ...] (iqn_update.cuh); iqn_phi [n, 128] after its ReLU; iqn_cos [n, 64]; rng_tau,
// rng_tau_next [n]. Slots written: LOSS_IQN. nonfinite_parts[part] = rows whose loss is not finite.
extern "C" __global__ void __launch_bounds__(REDUCE_GROUPS * REDUCE_ELEMENTS) rl_iqn_update_reduce(
    const float* iqn_update_parts, const float* iqn_phi, const float* iqn_cos, unsigned int* rng_tau,
    unsigned int* rng_tau_next, float* isv, int* nonfinite_parts, float* grad_w_iqn, float* grad_b_iqn,
    float* grad_w_iqn_phi, float* grad_b_iqn_phi, int part, int rows, int blocks, int P, int n) {
    __shared__ float sums[REDUCE_GROUPS][REDUCE_ELEMENTS], grads[IQN_MAX_TAUS][REDUCE_UNITS];
    const int group = threadIdx.x / REDUCE_ELEMENTS, lane = threadIdx.x % REDUCE_ELEMENTS;
    const int pairs = P * N_ACTIONS, unit_blocks = HIDDEN_DIM / REDUCE_UNITS, k0 = blockIdx.x * REDUCE_UNITS;
    const long long size = IQN_PART_SIZE(pairs), phi0 = (long long)pairs * (HIDDEN_DIM + 1);
    if (blockIdx.x == unit_blocks) {
        const float* last = iqn_update_parts + phi0 + IQN_MAX_TAUS * HIDDEN_DIM;
        float loss = 0.0f, bad = 0.0f;
        for (int b = threadIdx.x; b < blocks; b += blockDim.x) {
            loss += last[b * size];
            bad += last[b * size + 1];
        }
        loss = block_sum(loss, sums[0]);
        bad = block_sum(bad, sums[0]);
        if (threadIdx.x == 0) {
            isv[ISV_LOSS_IQN] = loss / rows;
            nonfinite_parts[part] = (int)bad;
        }
        if ((int)threadIdx.x < n) {
            xorshift32(&rng_tau[threadIdx.x]);
            xorshift32(&rng_tau_next[threadIdx.x]);
        }
        return;
    }
    const bool units = blockIdx.x < unit_blocks;
    const long long element = units ? phi0 + lane / REDUCE_UNITS * HIDDEN_DIM + k0 + lane % REDUCE_UNITS
                                    : (long long)(blockIdx.x - unit_blocks - 1) * REDUCE_ELEMENTS + lane;
    const bool real = units || element < phi0;
    sums[group][lane] = real ? shared_out_sum(iqn_update_parts + element, size, blocks, group, REDUCE_GROUPS) : 0.0f;
    __syncthreads();
    if (group == 0) {
        float sum = sums[0][lane];
        for (int g = 1; g < REDUCE_GROUPS; ++g) sum += sums[g][lane];
        if (!units && real) {
            const int column = (int)(element / HIDDEN_DIM), k = (int)(element % HIDDEN_DIM);
            if (column < pairs) grad_w_iqn[(long long)k * pairs + column] = sum;
            else grad_b_iqn[element - (long long)pairs * HIDDEN_DIM] = sum;
        } else if (units) {
            const int tau = lane / REDUCE_UNITS, unit = lane % REDUCE_UNITS;
            const bool passes = tau < n && !(iqn_phi[tau * HIDDEN_DIM + k0 + unit] == 0.0f);
            grads[tau][unit] = passes ? sum : 0.0f;
        }
    }
    __syncthreads();
    if (!units) return;
    for (int i = threadIdx.x; i < IQN_COSINES * REDUCE_UNITS; i += blockDim.x) {
        const int cosine = i / REDUCE_UNITS, unit = i % REDUCE_UNITS;
        float sum = 0.0f;
        for (int j = 0; j < n; ++j) sum = fmaf(iqn_cos[j * IQN_COSINES + cosine], grads[j][unit], sum);
        grad_w_iqn_phi[cosine * HIDDEN_DIM + k0 + unit] = sum;
    }
    if (threadIdx.x < REDUCE_UNITS) {
        float sum = 0.0f;
        for (int j = 0; j < n; ++j) sum += grads[j][threadIdx.x];
        grad_b_iqn_phi[k0 + threadIdx.x] = sum;
    }
}
