// The rows of the supervised heads with products on tensor cores (fused/heads_update.cuh).
#include "cuda_only/block_tf32.cuh"
#include "fused/heads_update.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
static_assert(sizeof(Heads<Tf32Math, 64, 96, true>::Tile) <= 152704 &&
                  sizeof(Heads<Tf32Math, 64, 128, true>::Tile) <= 177280 &&
                  sizeof(Heads<Tf32Math, 16, 96, true>::Tile) <= 92160 &&
                  sizeof(Heads<Tf32Math, 16, 128, true>::Tile) <= 110592,
              "the launch rules ask for less shared memory than a tile takes");
#endif

// rl_heads_update_tf32: rl_heads_update with TF32 products and the weights in shared memory.
// launch: blocks (rows + each - 1)/each if rows < 128*each else 128, block 512, shared 152704 + 24576*(P/10) if each > 16 else 92160 + 18432*(P/10)
// chain: 17 us
// updates: grad_h
// fuses: rl_frd_fwd, rl_frd_softmax, rl_frd_softmax_ce_grad, rl_frd_layer2_bwd, rl_frd_layer1_bwd
// fuses: rl_direction_bce_grad, rl_outcome_ce_grad, rl_outcome_scale_grad
// Arguments and sums are those of rl_heads_update; tiles of `each` rows, 16 or 64. Slots read: LOSS_LAMBDA_AUX,
// LOSS_LAMBDA_BCE, FRD_LAMBDA, OUTCOME_LAMBDA.
extern "C" __global__ void __launch_bounds__(HEADS_THREADS, 1) rl_heads_update_tf32(
    const float* h, const float* heads_weights, const signed char* frd_target, const signed char* direction_target,
    const signed char* outcome_target, const int* position_class, const int* label_counts, const float* isv,
    float* grad_h, float* heads_parts, int rows, int each, int P, int first) {
    extern __shared__ __align__(16) float shared[];
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    const HeadsUpdate update = {h, heads_weights, frd_target, direction_target, outcome_target, position_class,
                                label_counts, isv, grad_h, heads_parts, rows, P, first};
    if (each == 64) run_heads<Tf32Math, 64, true>(shared, update);
    else run_heads<Tf32Math, 16, true>(shared, update);
#endif
}
