// A replay update of the implicit quantile head in three kernels: embeddings, rows, sums (nets/iqn.cuh says what it is).
#include "fused/iqn_update.cuh"
#include "include/rng.cuh"
#include "nets/adam.cuh"

#define REDUCE_THREADS 512
#define UPDATE_BLOCKS 128   // of the rows' kernels, at most
#define SUM_UNITS 4         // of the embedding a block of the sums
#define SUM_AHEAD 16        // parts that a thread of the sums asks for before it adds the first

// rl_iqn_embed: taus of an update and their embeddings; W and the target's W, transposed.
// launch: blocks 3*n + 2*P*N_ACTIONS/8 + 1, block 128
// fuses: rl_sample_tau, rl_iqn_cosines, rl_iqn_phi, rl_tau_midpoints
// The first 3n blocks embed a tau each, one thread a unit: n taus (at most 32) of the predictions (online head), n of
// the targets (target head), n midpoints (online head). The generators are read here and moved on by
// rl_iqn_update_reduce. The other blocks transpose eight columns each. rng_tau, rng_tau_next [n]; w_iqn_phi,
// target_w_iqn_phi [64, 128], b_iqn_phi, target_b_iqn_phi [128]; w_iqn, target_w_iqn [128, P*11]; iqn_tau [n], iqn_cos
// [n, 64] of the predictions; iqn_phi_sets [3, n, 128]; iqn_columns [2, P*11, 128]. Taus and cosines as the unfused
// kernels give them.
extern "C" __global__ void rl_iqn_embed(const unsigned int* rng_tau, const unsigned int* rng_tau_next,
                                        const float* w_iqn_phi, const float* b_iqn_phi, const float* target_w_iqn_phi,
                                        const float* target_b_iqn_phi, const float* w_iqn, const float* target_w_iqn,
                                        float* iqn_tau, float* iqn_cos, float* iqn_phi_sets, float* iqn_columns, int n,
                                        int P) {
    __shared__ float cosines[IQN_COSINES];
    const int k = threadIdx.x, pairs = P * N_ACTIONS, set = blockIdx.x / n, index = blockIdx.x - set * n;
    if (set >= 3) {
        const int first = (blockIdx.x - 3 * n) * 8;
        for (int c = first; c < first + 8 && c < 2 * pairs; ++c) {
            const float* from = c < pairs ? w_iqn + c : target_w_iqn + c - pairs;
            iqn_columns[c * HIDDEN_DIM + k] = from[k * pairs];
        }
        return;
    }
    unsigned int state = set == 0 ? rng_tau[index] : rng_tau_next[index];
    const float tau = set == 2 ? (index + 0.5f) / n : uniform_open(&state);
    if (k < IQN_COSINES) {
        cosines[k] = cos_pi(k * tau);
        if (set == 0) iqn_cos[index * IQN_COSINES + k] = cosines[k];
    }
    if (set == 0 && k == 0) iqn_tau[index] = tau;
    __syncthreads();
    const float* w = set == 1 ? target_w_iqn_phi : w_iqn_phi;
    float sum = 0.0f;
#pragma unroll 32
    for (int j = 0; j < IQN_COSINES; ++j) sum = fmaf(cosines[j], w[j * HIDDEN_DIM + k], sum);
    sum += set == 1 ? target_b_iqn_phi[k] : b_iqn_phi[k];
    iqn_phi_sets[blockIdx.x * HIDDEN_DIM + k] = sum < 0.0f ? 0.0f : sum;
}

// rl_iqn_path_update: forward, loss and gradients of the rows' own classes, every action against its path target.
// launch: blocks (rows+1)/2 if rows < 256 else 128, block 512, shared 88320 + 440*P
// fuses: rl_iqn_loss, rl_iqn_mean_weights, rl_iqn_argmax, rl_iqn_path_columns, rl_iqn_quantiles
// Float32 throughout; phases: iqn_update.cuh; shared memory and sums (iqn_update_parts): iqn_tile.cuh. h, next_h [rows,
// 128]; iqn_columns, iqn_phi_sets, iqn_tau of rl_iqn_embed; w_iqn [128, P*11], b_iqn, target_b_iqn [P*11]; replay_lots
// [rows]; next_class [P*11]; path_return [rows, P*11]; replay_discount, replay_terminal, is_weight [rows].
// Slots read: LOSS_LAMBDA_Q.
extern "C" __global__ void __launch_bounds__(IQN_THREADS, 1) rl_iqn_path_update(
    const float* h, const float* next_h, const float* w_iqn, const float* iqn_columns, const float* iqn_phi_sets,
    const float* iqn_tau, const float* b_iqn, const float* target_b_iqn, const signed char* replay_lots,
    const signed char* next_class, const float* path_return, const float* replay_discount,
    const unsigned char* replay_terminal, const float* is_weight, const float* isv, float* iqn_update_parts, int rows,
    int P, int n) {
    extern __shared__ __align__(16) float shared[];
    const IqnUpdate update = IQN_PATH_UPDATE;
    IqnRows<Fp32Math, N_ACTIONS, IQN_SUMS_IN_PART>(shared, update).run();
}

// rl_iqn_executed_update: forward, loss and gradients of the executed action alone, against its n-step target.
// launch: blocks (rows+7)/8 if rows < 1024 else 128, block 512, shared 75776 + 1496*P
// fuses: rl_iqn_loss, rl_iqn_mean_weights, rl_iqn_argmax, rl_iqn_executed_columns, rl_iqn_quantiles
// As rl_iqn_path_update, with replay_next_lots, replay_action, replay_reward [rows] in the place of the path's tables.
// Slots read: LOSS_LAMBDA_Q.
extern "C" __global__ void __launch_bounds__(IQN_THREADS, 1) rl_iqn_executed_update(
    const float* h, const float* next_h, const float* w_iqn, const float* iqn_columns, const float* iqn_phi_sets,
    const float* iqn_tau, const float* b_iqn, const float* target_b_iqn, const signed char* replay_lots,
    const signed char* replay_next_lots, const signed char* replay_action, const float* replay_reward,
    const float* replay_discount, const unsigned char* replay_terminal, const float* is_weight, const float* isv,
    float* iqn_update_parts, int rows, int P, int n) {
    extern __shared__ __align__(16) float shared[];
    const IqnUpdate update = IQN_EXECUTED_UPDATE;
    IqnRows<Fp32Math, 1, IQN_SUMS_IN_PART>(shared, update).run();
}

// Sum of one element over the blocks' sums, given to the threads of group 0: group g of `groups` takes a run of blocks,
// ascending, then the groups' sums are added in order. Of a class (-1: of all) only blocks whose rows are in it have
// sums; in the place of the others a thread reads `spare`, so that no load stands behind a branch and waits for the one
// before. visited: the classes of each block; shared: a float a thread. Ends with a barrier.
static __device__ inline float sum_over_blocks(const float* parts, const float* spare, long long size, int blocks, int cls,
                                               const int* visited, int group, int groups, int lane, int lanes,
                                               float* shared) {
    const int each = (blocks + groups - 1) / groups, first = group * each;
    const int last = first + each < blocks ? first + each : blocks;
    float sum = 0.0f;
    for (int from = first; from < last; from += SUM_AHEAD) {
        float part[SUM_AHEAD];
        unsigned int has = 0u;
#pragma unroll
        for (int i = 0; i < SUM_AHEAD; ++i) {
            const int block = from + i;
            const bool counts = block < last && (cls < 0 || visited[block] >> cls & 1);
            part[i] = *(counts ? parts + block * size : spare);
            has |= counts ? 1u << i : 0u;
        }
#pragma unroll
        for (int i = 0; i < SUM_AHEAD; ++i) sum = has >> i & 1u ? sum + part[i] : sum;
    }
    shared[group * lanes + lane] = sum;
    __syncthreads();
    for (int g = 1; g < groups && group == 0; ++g) sum += shared[g * lanes + lane];
    return sum;
}

// Mean loss of the rows, and how many are not finite, from the blocks' sums: losses + block * size.
static __device__ inline void finish_loss(const float* losses, long long size, int blocks, int rows, float* loss_slot,
                                          int* nonfinite, float* scratch) {
    const int block = threadIdx.x;
    const float loss = block_sum(block < blocks ? losses[block * size] : 0.0f, scratch);
    const float bad = block_sum(block < blocks ? losses[block * size + 1] : 0.0f, scratch);
    if (threadIdx.x != 0) return;
    *loss_slot = loss / rows;
    *nonfinite = (int)bad;
}

// rl_iqn_update_reduce: the blocks' sums become the gradients of the four tensors and the loss; the taus move on.
// launch: blocks 33 + (P*N_ACTIONS*(HIDDEN_DIM + 1) + 63)/64, block 512
// chain: 10 us
// updates: isv, nonfinite_parts, rng_tau, rng_tau_next
// fuses: rl_iqn_backward, rl_iqn_phi_backward, rl_row_mean, rl_mean_into_slot, rl_sample_tau
// Blocks 0 to 31: four units of the embedding each, whose gradient goes through the ReLU into grad_w_iqn_phi [64, 128]
// and grad_b_iqn_phi [128]. Block 32: the loss and the generators. The others: 64 elements of grad_w_iqn [128, P*11] and
// grad_b_iqn [P*11]. Groups of 128 or 64 threads share the blocks' sums. iqn_update_parts [blocks, ...] (iqn_tile.cuh);
// iqn_phi_sets [3, n, 128]; iqn_cos [n, 64]; rng_tau, rng_tau_next [n]. nonfinite_parts[part] = rows whose loss is not
// finite; iqn_bad_parts [blocks of this kernel]: gradients that are not finite or too large for their square. Slots
// written: LOSS_IQN.
extern "C" __global__ void __launch_bounds__(REDUCE_THREADS, 2) rl_iqn_update_reduce(
    const float* iqn_update_parts, const float* iqn_phi_sets, const float* iqn_cos, unsigned int* rng_tau,
    unsigned int* rng_tau_next, float* isv, int* nonfinite_parts, int* iqn_bad_parts, float* grad_w_iqn,
    float* grad_b_iqn, float* grad_w_iqn_phi, float* grad_b_iqn_phi, int part, int rows, int blocks, int P, int n) {
    __shared__ float scratch[REDUCE_THREADS], grads[IQN_MAX_TAUS][SUM_UNITS], cosines[IQN_MAX_TAUS * IQN_COSINES];
    __shared__ int visited[UPDATE_BLOCKS], counts[32];
    const int tid = threadIdx.x, pairs = P * N_ACTIONS, unit_blocks = HIDDEN_DIM / SUM_UNITS;
    const int block = blockIdx.x, columns_end = IQN_COLUMN_SUMS(pairs), k0 = SUM_UNITS * block;
    const long long size = IQN_PART_SIZE(pairs);
    if (block == unit_blocks) {
        const float* losses = iqn_update_parts + columns_end + IQN_MAX_TAUS * HIDDEN_DIM;
        finish_loss(losses, size, blocks, rows, isv + ISV_LOSS_IQN, nonfinite_parts + part, scratch);
        if (tid == 0) iqn_bad_parts[block] = 0;
        if (tid < n) {
            xorshift32(&rng_tau[tid]);
            xorshift32(&rng_tau_next[tid]);
        }
        return;
    }
    const bool units = block < unit_blocks;
    const int lanes = units ? IQN_MAX_TAUS * SUM_UNITS : 64, lane = tid % lanes, group = tid / lanes;
    const int tau = lane / SUM_UNITS, unit = lane % SUM_UNITS;
    const int element = units ? columns_end + tau * HIDDEN_DIM + k0 + unit : (block - unit_blocks - 1) * 64 + lane;
    const bool real = units || element < columns_end;
    const int column = element < pairs * HIDDEN_DIM ? element / HIDDEN_DIM : element - pairs * HIDDEN_DIM;
    if (units) {
#pragma unroll 4
        for (int i = tid; i < n * IQN_COSINES; i += REDUCE_THREADS) cosines[i] = iqn_cos[i];
    }
    if (tid < blocks) visited[tid] = (int)iqn_update_parts[tid * size + columns_end + IQN_MAX_TAUS * HIDDEN_DIM + 2];
    __syncthreads();
    const int cls = units ? -1 : column / N_ACTIONS;
    const float* classes = iqn_update_parts + columns_end + IQN_MAX_TAUS * HIDDEN_DIM + 2;  // of block 0
    const float sum = sum_over_blocks(iqn_update_parts + (real ? element : 0), classes, size, blocks, cls, visited, group,
                                      REDUCE_THREADS / lanes, lane, lanes, scratch);
    float gradient = 0.0f;  // that this thread stores
    if (!units) {
        if (group == 0 && real) {
            gradient = sum;
            *(element < pairs * HIDDEN_DIM ? grad_w_iqn + element % HIDDEN_DIM * pairs + column : grad_b_iqn + column) = sum;
        }
    } else {
        if (group == 0) {
            const bool passes = tau < n && !(iqn_phi_sets[tau * HIDDEN_DIM + k0 + unit] == 0.0f);
            grads[tau][unit] = passes ? sum : 0.0f;
        }
        __syncthreads();
        const int own = tid / SUM_UNITS, k = tid % SUM_UNITS;  // a cosine, or behind the last one the bias
        if (own < IQN_COSINES) {
            for (int j = 0; j < n; ++j) gradient = fmaf(cosines[j * IQN_COSINES + own], grads[j][k], gradient);
            grad_w_iqn_phi[own * HIDDEN_DIM + k0 + k] = gradient;
        } else if (own == IQN_COSINES) {
            for (int j = 0; j < n; ++j) gradient += grads[j][k];
            grad_b_iqn_phi[k0 + k] = gradient;
        }
    }
    const int bad = block_sum_int(fabsf(gradient) < HUGE_GRADIENT ? 0 : 1, counts);
    if (tid == 0) iqn_bad_parts[block] = bad;
}
