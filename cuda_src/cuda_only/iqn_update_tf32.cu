// The rows of a replay update of the implicit quantile head, products on tensor cores (fused/iqn_update.cuh).
#include "cuda_only/block_tf32.cuh"
#include "fused/iqn_update.cuh"

// rl_iqn_path_update_tf32: rl_iqn_path_update with TF32 products.
// launch: blocks (rows+1)/2 if rows < 256 else 128, block 512, shared 88320 + (440 + 44*(HIDDEN_DIM + 1))*P
// chain: 15 us
// fuses: rl_iqn_loss, rl_iqn_mean_weights, rl_iqn_argmax, rl_iqn_path_columns, rl_iqn_quantiles
// Arguments, tiles and sums are those of rl_iqn_path_update; the choice at h_n is float32. Slots read: LOSS_LAMBDA_Q.
extern "C" __global__ void __launch_bounds__(IQN_THREADS, 1) rl_iqn_path_update_tf32(
    const float* h, const float* next_h, const float* w_iqn, const float* iqn_columns, const float* iqn_phi_sets,
    const float* iqn_tau, const float* b_iqn, const float* target_b_iqn, const signed char* replay_lots,
    const signed char* next_class, const float* path_return, const float* replay_discount,
    const unsigned char* replay_terminal, const float* is_weight, const float* isv, float* iqn_update_parts, int rows,
    int P, int n) {
    extern __shared__ __align__(16) float shared[];
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    const IqnUpdate update = IQN_PATH_UPDATE;
    IqnRows<Tf32Math, N_ACTIONS, IQN_SUMS_SHARED>(shared, update).run();
#endif
}

// rl_iqn_path_update_few_tf32: rl_iqn_path_update_tf32 for at most 256 rows: a block has one tile.
// launch: blocks (rows+1)/2, block 512, shared 88320 + 440*P
// chain: 15 us
// fuses: rl_iqn_loss, rl_iqn_mean_weights, rl_iqn_argmax, rl_iqn_path_columns, rl_iqn_quantiles
// Arguments and results are those of rl_iqn_path_update_tf32, bit for bit. Two blocks share a multiprocessor: the update
// of C51 and the policy's backward run beside it, and 128 blocks that take a multiprocessor each would wait for them.
// Slots read: LOSS_LAMBDA_Q.
extern "C" __global__ void __launch_bounds__(IQN_THREADS, 2) rl_iqn_path_update_few_tf32(
    const float* h, const float* next_h, const float* w_iqn, const float* iqn_columns, const float* iqn_phi_sets,
    const float* iqn_tau, const float* b_iqn, const float* target_b_iqn, const signed char* replay_lots,
    const signed char* next_class, const float* path_return, const float* replay_discount,
    const unsigned char* replay_terminal, const float* is_weight, const float* isv, float* iqn_update_parts, int rows,
    int P, int n) {
    extern __shared__ __align__(16) float shared[];
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    const IqnUpdate update = IQN_PATH_UPDATE;
    IqnRows<Tf32Math, N_ACTIONS, IQN_ONE_TILE>(shared, update).run();
#endif
}

// rl_iqn_executed_update_tf32: rl_iqn_executed_update with TF32 products.
// launch: blocks (rows+7)/8 if rows < 1024 else 128, block 512, shared 75776 + (1496 + 44*(HIDDEN_DIM + 1))*P
// fuses: rl_iqn_loss, rl_iqn_mean_weights, rl_iqn_argmax, rl_iqn_executed_columns, rl_iqn_quantiles
// Arguments, tiles and sums are those of rl_iqn_executed_update; the choice at h_n is float32. Slots read:
// LOSS_LAMBDA_Q.
extern "C" __global__ void __launch_bounds__(IQN_THREADS, 1) rl_iqn_executed_update_tf32(
    const float* h, const float* next_h, const float* w_iqn, const float* iqn_columns, const float* iqn_phi_sets,
    const float* iqn_tau, const float* b_iqn, const float* target_b_iqn, const signed char* replay_lots,
    const signed char* replay_next_lots, const signed char* replay_action, const float* replay_reward,
    const float* replay_discount, const unsigned char* replay_terminal, const float* is_weight, const float* isv,
    float* iqn_update_parts, int rows, int P, int n) {
    extern __shared__ __align__(16) float shared[];
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    const IqnUpdate update = IQN_EXECUTED_UPDATE;
    IqnRows<Tf32Math, 1, IQN_SUMS_SHARED>(shared, update).run();
#endif
}
