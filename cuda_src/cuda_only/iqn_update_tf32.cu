// The rows of a replay update of the implicit quantile head, products on tensor cores (fused/iqn_update.cuh).
#include "cuda_only/block_tf32.cuh"
#include "fused/iqn_update.cuh"

// rl_iqn_path_update_tf32: rl_iqn_path_update with TF32 products.
// launch: blocks (rows+1)/2 if rows < 512 else 256, block 512, shared 84992 + 360*P
// fuses: rl_iqn_loss, rl_iqn_expected_q, rl_iqn_argmax, rl_iqn_path_columns, rl_iqn_forward, rl_row_mean, rl_iqn_backward
// Arguments, tiles and sums as there; the choice at h_n is float32. Slots read: LOSS_LAMBDA_Q.
extern "C" __global__ void __launch_bounds__(IQN_THREADS, 1) rl_iqn_path_update_tf32(
    const float* h, const float* next_h, const float* iqn_columns, const float* iqn_mean_w, const float* iqn_phi,
    const float* iqn_phi_next, const float* iqn_tau, const float* b_iqn, const float* target_b_iqn,
    const signed char* replay_lots, const signed char* next_class, const float* path_return,
    const float* replay_discount, const unsigned char* replay_terminal, const float* is_weight, const float* isv,
    float* iqn_update_parts, int rows, int P, int n) {
    extern __shared__ __align__(16) float shared[];
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    const IqnUpdate update = {h, next_h, iqn_columns, iqn_mean_w, iqn_phi, iqn_phi_next, iqn_tau, b_iqn, target_b_iqn,
                              replay_lots, next_class, nullptr, nullptr, path_return, nullptr, replay_discount, is_weight,
                              replay_terminal, isv, iqn_update_parts, rows, P, n};
    IqnRows<Tf32Math, N_ACTIONS>::run(shared, update);
#endif
}

// rl_iqn_executed_update_tf32: rl_iqn_executed_update with TF32 products.
// launch: blocks (rows+15)/16 if rows < 4096 else 256, block 512, shared 74752 + 2880*P
// fuses: rl_iqn_loss, rl_iqn_expected_q, rl_iqn_argmax, rl_iqn_executed_columns, rl_iqn_forward, rl_row_mean, rl_iqn_backward
// Arguments, tiles and sums as there; the choice at h_n is float32. Slots read: LOSS_LAMBDA_Q.
extern "C" __global__ void __launch_bounds__(IQN_THREADS, 1) rl_iqn_executed_update_tf32(
    const float* h, const float* next_h, const float* iqn_columns, const float* iqn_mean_w, const float* iqn_phi,
    const float* iqn_phi_next, const float* iqn_tau, const float* b_iqn, const float* target_b_iqn,
    const signed char* replay_lots, const signed char* replay_next_lots, const signed char* replay_action,
    const float* replay_reward, const float* replay_discount, const unsigned char* replay_terminal,
    const float* is_weight, const float* isv, float* iqn_update_parts, int rows, int P, int n) {
    extern __shared__ __align__(16) float shared[];
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    const IqnUpdate update = {h, next_h, iqn_columns, iqn_mean_w, iqn_phi, iqn_phi_next, iqn_tau, b_iqn, target_b_iqn,
                              replay_lots, nullptr, replay_next_lots, replay_action, nullptr, replay_reward,
                              replay_discount, is_weight, replay_terminal, isv, iqn_update_parts, rows, P, n};
    IqnRows<Tf32Math, 1>::run(shared, update);
#endif
}
